"""``autonovel report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Report(Verb):
    """Write the report of a run as it is now: one HTML file with pictures of every cluster, which opens without a server.
    clusters.png is drawn again as well."""

    run: Positional[Path]
    """The run folder."""

    def do(self) -> None:
        """Write it."""
        from autonovel.report.html import draw_report
        from autonovel.runs.folder import load

        say(draw_report(load(self.run)))
