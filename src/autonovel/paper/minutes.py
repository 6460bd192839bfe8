"""How long runs take: roughly, from what epochs took on an H200 that had nothing else to do. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from autonovel.paper.cells import Scale
from autonovel.paper.planned import Wanted, recipe_of
from autonovel.settings.recipe import Recipe

IMAGES: Mapping[str, tuple[int, int]] = {
    "cifar10": (25_000, 25_000), "cifar10-both": (0, 60_000), "cifar100": (40_000, 10_000), "cifar100-20-both": (0, 60_000),
    "svhn": (45_000, 28_000), "stl10-both": (0, 13_000), "omniglot": (19_280, 660), "imagenet": (1_130_000, 39_000),
    "digits-split": (720, 718),
}  # fmt: skip
"""Labelled and unlabelled images of each data set."""

PIXELS = {"imagenet": 49.0, "stl10-both": 9.0, "digits-split": 0.25, "omniglot": 0.3}
"""Of an image, in times of one of CIFAR-10's."""

SECONDS: Mapping[str, float] = {
    "rotation": 44e-6, "simclr": 21e-6, "moco": 21e-6, "moco-v2": 21e-6, "supervised": 6e-6, "similarity": 8e-6,
    "kcl": 8e-6, "mcl": 8e-6, "dtc": 40e-6, "joint": 11e-6,
}  # fmt: skip
"""An image and epoch of each stage, with a ResNet-18 on images of 32 pixels; the last three blocks from the end frozen."""

DEEPER = 3.5
"""Times as long where all blocks learn and not the last one alone."""
EACH = 15.0
"""Seconds to begin a run, and to score and write what came out."""
EPISODES = 150.0
"""Seconds of prototypical pre-training."""


def minutes(jobs: Iterable[Wanted], scale: Scale) -> float:
    """Of these runs on an H200, stages that they share counted once."""
    seconds, shared = 0.0, set[str]()
    for job in jobs:
        if job.counts_alone:
            continue
        recipe = recipe_of(job.plan, scale)
        known, new = IMAGES[job.plan.data.partition(":")[0]]
        known, new = (known, new) if job.plan.labelled else (0, known + new)
        scaled = PIXELS.get(job.plan.data.partition(":")[0], 1.0)
        parts = {"pretrain": known + new, "supervised": known, "similarity": known}
        for stage, images in parts.items():
            key = json.dumps([job.plan.data.partition(":")[0], stage, replace(recipe, name="").to_dict().get(stage)])
            if key not in shared:
                shared.add(key)
                seconds += _stage(recipe, stage, images, scaled)
        if not job.plan.until:
            last = recipe.method if recipe.method in ("kcl", "mcl", "dtc") else "joint"
            seconds += EACH + _stage(recipe, last, new if last != "joint" else known + new, scaled)
    return seconds / 60


def _stage(recipe: Recipe, stage: str, images: int, scaled: float) -> float:
    if stage not in recipe.to_dict():  # it means nothing here
        return 0.0
    settings = getattr(recipe, stage)
    name = settings.method if stage == "pretrain" else stage
    if name == "prototypical":
        return EPISODES
    deeper = (
        DEEPER if settings.train_from == "all" and name in ("supervised", "joint", "similarity", "kcl", "mcl") else 1.0
    )
    return float(settings.epochs) * images * scaled * deeper * SECONDS.get(name, 0.0)
