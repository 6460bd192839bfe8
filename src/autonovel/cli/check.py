"""``autonovel check``."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autonovel.base.errors import InputError, listed, option
from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional

if TYPE_CHECKING:
    from autonovel.api.check import Doubt

MOST_PRINTED = 20
"""Lines of the table that is printed."""


@dataclass(frozen=True)
class Check(Verb):
    """Look through labelled images: labels that are probably wrong, pictures that are there twice (resized, compressed anew or
    cut too), blurred and odd ones. Nothing is changed."""

    labelled: Positional[Path]
    """Images of the known classes: a folder with one sub-folder per class, or a CSV or Parquet table (path,label)."""
    to: Path | None = None
    """The .csv file to write all of it to; the first lines are printed in any case."""
    json: bool = False
    """Print all of it as JSON."""
    device: str = "auto"
    """Where to compute: cpu, cuda, cuda:N or auto."""
    cache: Path | None = None
    """The folder for decoded images and features; your cache folder when left out."""

    def do(self) -> None:
        """Look."""
        from autonovel.data.reading.inputs import open_input
        from autonovel.machine.disk import whole, why_not_writable

        if self.to is not None and (self.to.suffix.lower() != ".csv" or not self.to.parent.is_dir()):
            raise InputError(
                f"{self.to} cannot be written; give a .csv file in a folder that exists as {option('to')}."
            )
        if self.to is not None and (why := why_not_writable(self.to.parent)):
            raise InputError(f"{self.to} cannot be written ({why}); give another file as {option('to')}.")
        given = open_input(self.labelled, to_sort=False)
        _ = given.survey  # what is wrong with the folder is said before torch is loaded
        from autonovel.api.check import Doubt, check

        doubts = check(given, device=self.device, cache=self.cache)
        if self.to is not None:
            text = io.StringIO()
            writer = csv.writer(text)
            writer.writerows([Doubt._fields, *doubts])
            with whole(self.to) as path:
                path.write_text(text.getvalue(), encoding="utf-8", newline="")
        if self.json:
            say(json.dumps([doubt._asdict() for doubt in doubts]))
            return
        _print(doubts)
        if self.to is not None:
            say(f"All of it: {self.to}")
        elif len(doubts) > MOST_PRINTED:
            say(f"The first of each kind are shown; {option('to', 'FILE.csv')} writes all.")


def _print(doubts: list[Doubt]) -> None:
    counts = Counter(doubt.problem for doubt in doubts)
    if not doubts:
        say("Nothing stands out.")
        return
    say("To look at: " + listed(f"{count:,} {problem}" for problem, count in counts.items()))
    each = max(1, MOST_PRINTED // len(counts))
    shown = [doubt for problem in counts for doubt in [d for d in doubts if d.problem == problem][:each]]
    rows = [("problem", "image", "label", "other", "score")]
    rows += [(d.problem, d.image, d.label, d.other, "" if d.score is None else f"{d.score:.2f}") for d in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(word.ljust(n) for word, n in zip(row, widths, strict=True)).rstrip())
