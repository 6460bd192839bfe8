"""What can be chosen by name, and when to choose it. Imports no torch: what does the work is imported when it is asked for.

A class of settings in :mod:`~autonovel.settings.stages` or :mod:`~autonovel.settings.joint`, in its family there, and a file in
``autonovel.methods`` add a method: nothing else asks for a method's name or type.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from autonovel.settings.estimate import ESTIMATES
from autonovel.settings.joint import OBJECTIVES
from autonovel.settings.stages import PRETRAINING, Training

PAIR_RULES: Mapping[str, str] = {
    "rank": "the same top_k strongest features: the paper's choice, and hard to go wrong with",
    "soft": (
        "the share of strongest features in common: level with rank at top_k 15 or ahead "
        "of it; at 5 far behind in the paper, not here"
    ),
    "cosine": "a cosine above threshold: level with rank where the threshold is right, which each data set decides",
    "nearest": "nearest neighbours in the batch: nothing to choose; level with rank on CIFAR-10, behind where it is harder",
    "kmeans-batch": "k-means in each batch: good with many classes (CIFAR-100), poor with few",
    "learned": "a similarity network, learned on the known classes (stage similarity): what kcl and mcl go by",
    "kmeans-all": "k-means over the whole pile: for comparison, 18 to 33 points behind rank in the paper",
}
"""What ``--joint.pairs`` takes, and when; the rules themselves are in ``autonovel.pairs``."""

DEPTHS: Mapping[str, str] = {
    "heads": "the heads alone: on features that tell classes apart already (pre-trained, simclr, moco), never after rotation",
    "layer4": "the last block and the heads: the paper's choice, quick, and little of the first stage is forgotten",
    "layer3": "the last two blocks: as good as layer4 in the paper, and slower",
    "layer2": "the last three blocks: slower, and no better after rotation",
    "layer1": "all blocks but the first convolution: best after simclr and moco in the paper, by 1 to 3 points",
    "all": "everything: for swap, and wherever the first stage was skipped",
}
"""What ``train_from`` takes for our own networks, and when."""

METHODS: Mapping[str, str] = {
    "auto": "features where a pre-trained network is installed and images have 24 pixels or more, otherwise scratch",
    "autonovel": "learn a representation, then the known classes, then known and new together",
    "features": "groups the features of a pre-trained network, in the space that known classes teach: seconds",
    "scratch": "trains a network on your images and groups its features: for small piles that are no photographs",
    "kmeans": "the first stages, then k-means on their features: the baseline to beat",
    "kcl": "which images are alike is learned on known classes, then clusters by divergence; to compare",
    "mcl": "the same by the likelihood of pairs, the better of the two; to compare",
    "dtc": "clusters of k-means that sharpen themselves, the whole network trained; to compare",
}
"""What ``--method`` takes: whole methods, each a list of stages in ``discovery/plan.py``."""


@cache
def described() -> dict[str, dict[str, str]]:
    """Every setting that chooses by name: what it takes, each with a line that says when to take it."""
    families = {"pretrain.method": PRETRAINING, "joint.objective": OBJECTIVES, "estimate.method": ESTIMATES}
    own = {"MODULE:FUNCTION": "a rule of your own, which takes an autonovel.pairs.PairInput"}
    return {
        "method": dict(METHODS),
        **{path: {name: when_to_use(kind) for name, kind in members.items()} for path, members in families.items()},
        "joint.pairs": {**PAIR_RULES, **own},
        "joint.train_from": dict(DEPTHS),
    }


def when_to_use(kind: type) -> str:
    """The first paragraph of what a class of settings says, as the end of a sentence.

    >>> when_to_use(PRETRAINING["moco-v2"])
    'moco with a deeper projection: the better of the two in the paper'
    """
    text = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    return text[:1].lower() + text[1:].removesuffix(".")


def home_of(settings: Training) -> Any:
    """The method that is made of these settings; None for a stage that is left out."""
    return load(settings.HOME) if settings.HOME else None


def load(home: str) -> Any:
    """The class or function of this name, ``rotation:Rotation``, in ``autonovel.methods``."""
    module, _, name = home.partition(":")
    return getattr(import_module(f"autonovel.methods.{module}"), name)
