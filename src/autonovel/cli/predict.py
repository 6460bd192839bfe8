"""``autonovel predict``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Predict(Verb):
    """Sort new images into the known and the discovered classes of a run."""

    run: Positional[Path]
    """The run folder."""
    images: Positional[str]
    """A folder of images, a file that lists them, or - for a list on standard input, one path a line."""
    to: Path
    """The file to write: .csv, .jsonl or .parquet."""
    pile: Literal["new", "mixed"] | None = None
    """Whether the images are of new classes alone or may be of known ones too; what the run decided of its own when left out."""

    def do(self) -> None:
        """Sort them."""
        from autonovel.answers.further import predict
        from autonovel.machine.progress import make_reporter
        from autonovel.runs.folder import load

        images: Any = self.images
        if images == "-":
            # as bytes: names of files need not be UTF-8, and text has more ends of lines than files have
            images = [os.fsdecode(line) for line in sys.stdin.buffer.read().splitlines() if line]
        found = predict(load(self.run), images, to=self.to, pile=self.pile, reporter=make_reporter())
        known, new = f"{found.n_known:,} of known classes", f"{len(found) - found.n_known:,} of new ones"
        say(f"{len(found):,} {'image' if len(found) == 1 else 'images'}: {known}, {new}")
        if found.n_unlike:
            say(f"{found.n_unlike:,} of them resemble none of the classes; look at these first (column unlike)")
        say(f"The classes: {self.to}")
