"""``autonovel data``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Data(Verb):
    """List the benchmarks, or verify the files of one, downloading them if they are missing."""

    name: Positional[str] = ""
    """The benchmark; all are listed when left out."""
    root: Path = Path("data")
    """The folder with the files."""

    def do(self) -> None:
        """List or fetch."""
        from autonovel.data.benchmarks.splits import BENCHMARKS, fetch_benchmark
        from autonovel.machine.progress import make_reporter

        if self.name:
            say(fetch_benchmark(self.name, self.root, progress=make_reporter().counter("bytes downloaded")))
            return
        for name, text in BENCHMARKS.items():
            say(f"{name:<14} {text}")
