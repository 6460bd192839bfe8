"""``autonovel verify``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autonovel.base.errors import TrainingError
from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Verify(Verb):
    """Check that a finished run is whole: every file as it was written, and every edit that was confirmed."""

    run: Positional[Path]
    """The run folder."""

    def do(self) -> None:
        """Say what is wrong, a line each."""
        from autonovel.runs.folder import load
        from autonovel.runs.verify import problems_of

        run = load(self.run)
        count = 0
        for count, problem in enumerate(problems_of(run), 1):  # noqa: B007
            say(problem)
        if count:
            said = "the line above says" if count == 1 else f"the {count} lines above say"
            raise TrainingError(f"{run.path} is not as it was written; {said} where.")
        say(f"{run.path} is whole: {len(run.checksums)} files as they were written, {len(run.edits)} edits.")
