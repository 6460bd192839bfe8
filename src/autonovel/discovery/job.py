"""A run to be made: images, settings, seed and machine, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autonovel.base.chance import seeded
from autonovel.data.images import ImageSet
from autonovel.discovery.plan import Stage, numbered, plan
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.methods.base import Task
from autonovel.models.net import Net, build
from autonovel.settings.recipe import Recipe


@dataclass
class Job:
    """What is to be done.

    Attributes:
        data: all images, labelled and not.
        recipe: every setting.
        n_new: how many new classes to look for; None estimates it.
        seed: everything random depends on it.
        mode: device and precision.
        reporter: sees the progress.
        cache: where features of a pre-trained network are kept; None keeps none.
        remarks: what else the summary should say.
        shorter: a recipe that takes less time, and what to type for it; said together with the time that this one takes.
    """

    data: ImageSet
    recipe: Recipe
    n_new: int | None
    seed: int = 0
    mode: Mode = field(default_factory=Mode.of)
    reporter: Reporter = field(default_factory=Reporter)
    cache: Path | None = None
    remarks: Mapping[str, Any] = field(default_factory=dict)
    shorter: tuple[str, Recipe] | None = None

    @property
    def stages(self) -> list[Stage]:
        """The plan."""
        return plan(self.recipe, self.data.n_known)

    @property
    def trains(self) -> bool:
        """Whether any stage takes steps, which look at varied images."""
        methods = [stage.method for stage in self.stages if stage.method is not None]
        return any(method(self.task(self.n_new)).settings.epochs for method in methods)

    def task(self, n_new: int | None, recipe: Recipe | None = None) -> Task:
        """The task of a method that looks for this many new classes, with this recipe or another one."""
        return Task(recipe or self.recipe, self.data.n_known, n_new or 0, len(self.data), self.data.families)

    def new_net(self, number: int = 1) -> Net:
        """The first, second, ... network with its first weights and without heads."""
        size = self.recipe.model.size or self.data.images.shape[1]
        with seeded(self.seed, numbered("backbone", number)):
            return build(self.recipe.model, channels=self.data.channels, size=size)
