"""``autonovel export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Export(Verb):
    """Put the result of a run to use elsewhere: sorted folders, tables of labels, or the trained network."""

    run: Positional[Path]
    """The run folder."""
    to: Path
    """The folder to write."""
    format: str = "folders"
    """What to write: folders, csv, onnx, safetensors or another format of the documentation."""

    def do(self) -> None:
        """Write it."""
        from autonovel.export import export
        from autonovel.runs.folder import load

        print(export(load(self.run), self.to, format=self.format))
