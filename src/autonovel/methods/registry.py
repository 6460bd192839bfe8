"""Every method by name. Imports no torch, so that the command line can list them; a class is imported when it is asked for.

One line here and a file beside it add a method: nothing else asks for a method's name or type.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from autonovel.errors import InputError, did_you_mean


class Entry(NamedTuple):
    """A method that can be chosen.

    Attributes:
        home: the module in this folder and the name in it.
        line: when to use it.
    """

    home: str
    line: str

    def load(self) -> Any:
        """The class or function itself."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(f"autonovel.methods.{module}"), name)


PRETRAINING: Mapping[str, Entry | None] = {
    "none": None,
    "rotation": Entry("rotation:Rotation", "tell by how many quarter turns an image was rotated: the paper's choice"),
    "simclr": Entry(
        "simclr:SimCLR",
        "find the other view of an image in the batch: better raw features than rotation; wants large batches",
    ),
    "moco": Entry("moco:MoCo", "the same among a queue of earlier images: for small batches"),
    "moco-v2": Entry("moco:MoCoV2", "moco with a deeper projection: the better of the two in the paper"),
    "prototypical": Entry("prototypical:Prototypical", "episodes over many known classes with few images each"),
}
"""What ``--pretrain.method`` takes."""

OBJECTIVES: Mapping[str, Entry] = {
    "pairs": Entry("pairs:Pairs", "the paper's: which two images belong together is read off their strongest features"),
    "swap": Entry("swap:Swapped", "each view predicts the cluster of the other: more accurate where classes are even"),
    "contrast": Entry(
        "contrast:Contrasted",
        "each view finds the other, a labelled one its class: a space without clusters, for few images (method scratch)",
    ),
    "auto": Entry("swap:Swapped", "contrast for few images under method scratch, otherwise swap"),
}
"""What ``--joint.objective`` takes."""

PAIR_RULES: Mapping[str, str] = {
    "rank": "the same top_k strongest features: the paper's choice, and hard to go wrong with",
    "soft": "the share of strongest features in common: level with rank at top_k 15, far behind at 5",
    "cosine": "a cosine above pair_threshold: level with rank where the threshold is right, which each data set decides",
    "nearest": "nearest neighbours in the batch: nothing to choose; level with rank on CIFAR-10, behind where it is harder",
    "kmeans-batch": "k-means in each batch: good with many classes (CIFAR-100), poor with few",
    "kmeans-all": "k-means over the whole pile: for comparison, 18 to 33 points behind rank in the paper",
}
"""What ``--joint.pairs`` takes, and when; the rules themselves are in ``autonovel.pairs``."""

PLANS: Mapping[str, Entry] = {
    "auto": Entry("autonovel:plan", "features where they are at hand and the images large enough, otherwise scratch"),
    "autonovel": Entry("autonovel:plan", "learn a representation, then the known classes, then known and new together"),
    "features": Entry("features:plan", "groups on pre-trained features in the space that known classes teach: seconds"),
    "scratch": Entry(
        "features:plan_after_training",
        "a network of its own, answered in that space: for small piles without photographs",
    ),
    "kmeans": Entry("kmeans:plan", "the first stages, then k-means on their features: the baseline to beat"),
}
"""What ``--method`` takes: whole methods, each a list of stages."""

CHOICES: Mapping[str, Mapping[str, Entry | None]] = {
    "method": PLANS,
    "pretrain.method": PRETRAINING,
    "joint.objective": OBJECTIVES,
}
"""The settings that name a method, each with what it takes."""


def find(kind: Mapping[str, Any], name: str, flag: str) -> Any:
    """The class or function of this name; None for a method that stands for no stage."""
    if name not in kind:
        hint = did_you_mean(name, kind)
        raise InputError(f"{flag} is '{name}'; choose one of {', '.join(kind)}{hint}.")
    entry = kind[name]
    return None if entry is None else entry.load()
