"""``autonovel predict``."""

from __future__ import annotations

import csv
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autonovel.base.errors import InputError, option
from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional

if TYPE_CHECKING:
    from autonovel.answers.table import AnswerTable

ENDINGS = (".csv", ".jsonl", ".parquet")
FIELDS = ("image", "cluster", "name", "probability", "known", "unlike")
MOST_PRINTED = 20
"""Images in the table that is printed."""


@dataclass(frozen=True)
class Predict(Verb):
    """Sort new images into the known and the discovered classes of a run."""

    run: Positional[Path]
    """The run folder."""
    images: Positional[str]
    """A folder of images, a file that lists them, tar or Parquet shards, an address, or - for a list on standard input, one
    path a line."""
    features: bool = False
    """IMAGES is a folder that describe has made, or another file of features."""
    engine: Literal["local", "ray"] | None = None
    """Describe the images first, shard by shard, with a worker for each core or GPU of this machine (local) or on a cluster."""
    address: str | None = None
    """With --engine ray, the address of the cluster; left out, Ray starts on this machine."""
    to: Path | None = None
    """The file to write: .csv, .jsonl or .parquet, or - for CSV on standard output. Left out, a table is printed."""
    pile: Literal["new", "mixed"] | None = None
    """Whether the images show new classes alone or known ones too; left out, what the run decided for its own pile."""

    def idle(self, path: str) -> str:
        """An address is that of a cluster, and features need no describing."""
        if path == "engine" and self.features:
            return "features are described already"
        return f"it belongs to {option('engine', 'ray')}" if path == "address" and self.engine != "ray" else ""

    def do(self) -> None:
        """Sort them."""
        from autonovel.runs.folder import load

        _ = (run := load(self.run)).summary  # what is wrong with the folder is said before torch is loaded
        file = None if self.to is None or str(self.to) == "-" else self.to
        if file is not None and file.suffix.lower() not in ENDINGS:
            raise InputError(f"{file} has no ending that says how to write it; choose one of {', '.join(ENDINGS)}.")
        images: Any = self.images
        if images == "-":
            # as bytes: names of files need not be UTF-8, and text has more ends of lines than files have
            images = [os.fsdecode(line) for line in sys.stdin.buffer.read().splitlines() if line]
        if images and not self.features and self.engine is None:
            from autonovel.data.reading.inputs import open_input

            images = open_input(None, images)  # what is wrong with it, too
        from autonovel.answers.further import predict
        from autonovel.machine.progress import make_reporter

        if self.features or self.engine is not None:
            from autonovel.api.describe import described_for
            from autonovel.api.features import predict_features

            if self.engine is not None:
                images = described_for(run, self.images, self.engine, self.address, make_reporter())
            answers = predict_features(run, images, to=file, pile=self.pile)
        else:
            answers = predict(run, images, to=file, pile=self.pile, reporter=make_reporter())
        if file is None and self.to is not None:
            _print_csv(answers)
            return
        if file is None:
            _print_table(answers)
        known, new = f"{answers.n_known:,} of known classes", f"{len(answers) - answers.n_known:,} of new ones"
        say(f"{len(answers):,} {'image' if len(answers) == 1 else 'images'}: {known}, {new}")
        if answers.n_unlike:
            several = f"{answers.n_unlike:,} of them resemble", "these"
            many, them = ("One of them resembles", "it") if answers.n_unlike == 1 else several
            say(f"{many} none of the classes; look at {them} first (column unlike)")
        if file is not None:
            say(f"The classes: {file}")
        elif len(answers) > MOST_PRINTED:
            say(f"The first {MOST_PRINTED} are shown; {option('to', 'FILE.csv')} writes all.")


def _print_csv(answers: AnswerTable) -> None:
    """All answers on standard output, where another program reads them as they are."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows((a.image, a.cluster, a.name, f"{a.probability:.4f}", int(a.known), int(a.unlike)) for a in answers)
    if sys.stdout.isatty():
        say(text.getvalue().removesuffix("\n"))
    else:
        sys.stdout.write(text.getvalue())


def _print_table(answers: AnswerTable) -> None:
    rows = [("image", "class", "probability", "")]
    rows += [
        (a.image, a.name, f"{a.probability:.0%}", "resembles none" if a.unlike else "known" if a.known else "new")
        for a in answers[:MOST_PRINTED]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(word.ljust(n) for word, n in zip(row, widths, strict=True)).rstrip())
