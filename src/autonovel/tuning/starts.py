"""Stages that several runs have in common, trained once; who needs one that another is training waits for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.discovery.plan import Stage, before_estimate, plan
from autonovel.discovery.prepare import facts_of, prepare
from autonovel.discovery.resume import config_of
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.runs.files import lock
from autonovel.runs.folder import Folder
from autonovel.settings.recipe import Recipe
from autonovel.settings.resolve import Asked, Resolved

ANY_NUMBER = 2
"""Of new classes: these stages do not depend on it."""


@dataclass(frozen=True)
class Starts:
    """A folder of first stages; threads and processes may use it at the same time.

    Attributes:
        folder: where they are.
        seed: of their training.
        mode: device and precision.
        reporter: hears when one is trained.
        cache: where features of a pre-trained network are kept; None keeps none.
        progress: sees the progress of the training.
    """

    folder: Path
    seed: int
    mode: Mode
    reporter: Reporter
    cache: Path | None = None
    progress: Reporter = field(default_factory=Reporter)

    def before(self, data: ImageSet, recipe: Recipe, *, estimated: bool = False) -> Folder | None:
        """A run with the stages before the one that discovers, trained now if nobody has done so; None if there are none.

        Args:
            data: the images.
            recipe: settled for them.
            estimated: whether the number of classes will be, so that only the stages before that are shared.
        """
        start: Folder | None = None
        for stage in _shared(recipe, data.n_known, estimated):
            start = self._trained(stage, data, recipe, None if estimated else ANY_NUMBER, start)
        return start

    def _trained(
        self, stage: Stage, data: ImageSet, recipe: Recipe, n_new: int | None, before: Folder | None
    ) -> Folder:
        assert stage.method is not None
        # what the stage does not depend on is as everywhere, so that the folder is the same for all who share it
        images = stage.method.sees == "images"
        kept = ["model", "mirror", "smallest_part", "pile", "estimate", "pretrain", *([] if images else ["supervised"])]
        common = replace(Recipe(name="start"), **{name: getattr(recipe, name) for name in kept})
        if stage.name == "similarity":  # which method mcl has, and autonovel only with learned pairs
            common = replace(common, method="mcl", similarity=recipe.similarity)
        if images:
            data, n_new = replace(data, labels=np.full_like(data.labels, UNKNOWN), class_names=()), ANY_NUMBER
        folder = self.folder / f"{stage.name}-{self._digest(data, common, n_new, before)}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as file:
            lock(file, wait=True)
            if not Folder(folder).has(f"{stage.name}.safetensors"):
                self.reporter.message(f"training stage {stage.name}, which trials share")
                resolved = Resolved(common, (), Asked.of(common), facts_of(data, n_new, self.mode))
                job = prepare(data, resolved, n_new, self.seed, self.mode, self.progress, cache=self.cache)
                job.run(Folder(folder), start_from=before, until=stage.name)
        return Folder(folder)

    def _digest(self, data: ImageSet, common: Recipe, n_new: int | None, before: Folder | None) -> str:
        """What the stage depends on: of the images only the labelled ones, where nothing before it has seen the others."""
        described = config_of(data, common, n_new, self.seed)["run"]
        if before is None and data.n_known:
            about = described["data"]
            described["data"] = [about["shape"], about["class_names"], about["labelled"]]
            described["places"] = np.flatnonzero(data.is_labelled).tolist()
        return digest(described)


def digest(value: Any) -> str:
    """A short name for anything that JSON can hold."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def _shared(recipe: Recipe, n_known: int, estimated: bool) -> Iterator[Stage]:
    """The stages that other runs may need too: those that have a part of the recipe and do not see all images with labels."""
    stages = plan(recipe, n_known)
    for stage in before_estimate(stages) if estimated else stages:
        if stage.method is not None and stage.method.sees != "both" and hasattr(recipe, stage.name):
            yield stage
