"""``autonovel show``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional
from autonovel.cli.results import print_result


@dataclass(frozen=True)
class Show(Verb):
    """Print the result of a finished run, with the names it has been given and all corrections."""

    run: Positional[Path]
    """The run folder."""
    json: bool = False
    """Print the result as JSON."""

    def do(self) -> None:
        """Print it."""
        from autonovel.runs.folder import load

        print_result(load(self.run), json=self.json)
