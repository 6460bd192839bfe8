"""``autonovel cluster``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autonovel.base.errors import InputError, option
from autonovel.cli.common import OnePile, load_api_while
from autonovel.discovery.arguments import check_arguments
from autonovel.discovery.trackers import check_tracker

if TYPE_CHECKING:
    from autonovel.settings.resolve import Asked


@dataclass(frozen=True)
class Cluster(OnePile):
    """Sort images into clusters without any labels."""

    k: int | Literal["auto", "true"] = "auto"
    """How many clusters to make; auto estimates it, true takes it from a benchmark."""
    out: Path = Path("runs/cluster")
    """The run folder. The same command with the same folder continues where it stopped."""
    recipe: str = "folder"
    """The recipe to start from (autonovel recipes lists them). Every field of it is a flag of its own."""
    log: Literal["tensorboard", "mlflow", "wandb"] | None = None
    """Write the losses for one of these too: on this machine, unless you have logged in to its server or named one."""
    report: bool = True
    """Write clusters.png and report.html at the end."""

    def check(self) -> None:
        """Refuse what cannot work, before an image is read."""
        if self.k == "true" and not self.data:
            raise InputError(f"{option('k', 'true')} is for benchmarks; give the number of clusters, or auto.")
        check_tracker(self.log)
        check_arguments(out=self.out, device=self.device, seed=self.seed, k="auto" if self.k == "true" else self.k)

    def do(self, asked: Asked) -> None:
        """Sort."""
        api, (images, truth) = load_api_while(self.read)
        k = len(truth.class_names) if self.k == "true" else self.k
        passed = self.passed_on(asked)
        run = api.cluster(images, k, truth=truth, cache=self.cache, log=self.log, report=False, **passed)
        self.say_and_draw(run, passed, report=self.report)
