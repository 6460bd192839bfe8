"""``autonovel browse``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.cli.common import Verb, agree_to_fetch
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Browse(Verb):
    """Look at the clusters of a run in a web browser, name and correct them. Only this machine can reach the page."""

    run: Positional[Path]
    """The run folder."""
    port: int = 0
    """The port of the page; 0 takes a free one."""
    open: bool = True
    """Open the page in the browser."""
    read_only: bool = False
    """Look only: changes are refused."""
    fetch: bool = False
    """Fetch pictures from the stores that the run names, such as s3://bucket."""

    def do(self) -> None:
        """Serve the page until Ctrl-C."""
        from autonovel.report.server import serve
        from autonovel.runs.folder import load

        agree_to_fetch(run := load(self.run), self.fetch)
        serve(run, port=self.port, open_page=self.open, read_only=self.read_only)
