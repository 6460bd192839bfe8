"""``autonovel demo``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autonovel.cli.common import TrainingVerb

if TYPE_CHECKING:
    from autonovel.settings.resolve import Asked


@dataclass(frozen=True)
class Demo(TrainingVerb):
    """Discover the digits 5 to 9 among scikit-learn's embedded images, knowing 0 to 4: no download, a minute or two on a CPU."""

    out: Path = Path("runs/demo")
    """The run folder. The same command with the same folder continues where it stopped."""
    recipe: str = "digits"
    """The recipe to start from (autonovel recipes lists them). Every field of it is a flag of its own."""

    def do(self, asked: Asked) -> None:
        """Discover the digits."""
        from autonovel.api.discover import discover
        from autonovel.data.benchmarks.splits import load_benchmark

        images, truth = load_benchmark("digits", None)
        n_new = len(truth.class_names) - images.n_known
        passed = self.passed_on(asked)
        run = discover(images, n_new=n_new, truth=truth, report=False, **passed)
        self.say_and_draw(run, passed)
