"""``autonovel report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.base.screen import say
from autonovel.cli.common import Verb, agree_to_fetch
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Report(Verb):
    """Write the report of a run as it is now: one HTML file with pictures of every cluster, which opens without a server.
    clusters.png is drawn again as well."""

    run: Positional[Path]
    """The run folder."""
    fetch: bool = False
    """Fetch pictures from the stores that the run names, such as s3://bucket."""

    def do(self) -> None:
        """Write it."""
        from autonovel.report.html import draw_report
        from autonovel.runs.folder import load

        agree_to_fetch(run := load(self.run), self.fetch)
        say(draw_report(run))
