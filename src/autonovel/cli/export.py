"""``autonovel export``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autonovel.base.errors import InputError, option
from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional
from autonovel.export.formats import FORMATS, HOW, NETWORKS

if TYPE_CHECKING:
    Format = str
    How = str
else:
    Format, How = Literal[tuple(FORMATS)], Literal[tuple(HOW)]


@dataclass(frozen=True)
class Export(Verb):
    """Put the result of a run to use elsewhere: sorted folders, tables of labels, or the trained network."""

    run: Positional[Path]
    """The run folder."""
    to: Path
    """The folder to write; a table may be named as a file; with --format hub the repository, as in me/birds."""
    format: Format = "folders"
    """folders sorts the images, imagefolder and yolo for training; csv, spreadsheet, parquet, coco, cvat, fiftyone and
    label-studio list them with classes; safetensors, onnx and torch write the network, and hub uploads it."""
    how: How = "copy"
    """How images get into sorted folders; link makes symbolic links."""
    overwrite: bool = False
    """Replace what an earlier export left there; other files are left alone."""
    all: bool = False
    """Export the labelled images too."""
    private: bool = True
    """Make a new repository on the hub private."""
    yes: bool = False
    """Move files without asking; --how move says first out of which folders."""

    def idle(self, path: str) -> str:
        """What belongs to other formats, or to moving files."""
        if path == "private" and self.format != "hub":
            return f"it belongs to {option('format', 'hub')}"
        if path == "yes" and self.how != "move":
            return f"it belongs to {option('how', 'move')}"
        if path == "overwrite" and self.format == "hub":
            return "an upload replaces files of the same name in any case"
        if path == "all" and self.format in NETWORKS:
            return f"{self.format} is the network, without any images"
        return ""

    def do(self) -> None:
        """Write it."""
        from autonovel.api.run import load
        from autonovel.export import export
        from autonovel.export.formats import NotAgreed
        from autonovel.machine.progress import make_reporter

        options: dict[str, Any] = {"format": self.format, "how": self.how, "overwrite": self.overwrite, "all": self.all}
        run, reporter = load(self.run), make_reporter()
        if self.format in ("onnx", "torch"):
            reporter.message("tracing the network, writing it, and comparing its answers with torch's: about a minute")
        try:
            with reporter.working(f"writing {self.format}"):
                written = export(run, self.to, **options, private=self.private, yes=self.yes)
            say(written)
        except NotAgreed as question:
            if not sys.stdin.isatty():
                raise
            say(f"{str(question).partition(';')[0]}. Move them? [y/N]")
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise InputError("Nothing was moved.") from None
            say(export(run, self.to, **options, private=self.private, yes=True))
