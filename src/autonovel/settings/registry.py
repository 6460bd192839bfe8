"""Every method by name. Imports no torch, so that the command line can list them; a class is imported when it is asked for.

One line here and a file beside it add a method: nothing else asks for a method's name or type.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from autonovel.base.errors import InputError, did_you_mean


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
    "rotation": Entry(
        "rotation:Rotation",
        "tell by how many quarter turns an image was rotated: the paper's choice, with layer4 or more trained after it; not for "
        "images that look alike when turned",
    ),
    "simclr": Entry(
        "simclr:SimCLR",
        "find the other view of an image in the batch: the best raw features, with which heads alone go a long way; wants "
        "large batches, and crops that keep the object",
    ),
    "moco": Entry("moco:MoCo", "the same among a queue of earlier images: where memory allows only small batches"),
    "moco-v2": Entry("moco:MoCoV2", "moco with a deeper projection: the better of the two in the paper"),
    "prototypical": Entry(
        "prototypical:Prototypical",
        "episodes over the known classes: where they are many with few images each (OmniGlot)",
    ),
}
"""What ``--pretrain.method`` takes."""

OBJECTIVES: Mapping[str, Entry | None] = {
    "none": None,
    "pairs": Entry(
        "pairs:Pairs",
        "the paper's: which two images belong together is read off their strongest features; classes may differ in size",
    ),
    "swap": Entry("swap:Swapped", "each view predicts the cluster of the other: more accurate where classes are even"),
    "contrast": Entry(
        "contrast:Contrasted",
        "each view finds the other, a labelled one its class: a space without clusters, for few images (method scratch)",
    ),
    "neighbours": Entry(
        "neighbours:Neighbours",
        "an image and its nearest neighbours after stage 1 get one cluster: for piles without labels, after simclr or moco, "
        "where classes are even",
    ),
    "auto": Entry("swap:Swapped", "contrast for few images under method scratch, otherwise swap"),
}
"""What ``--joint.objective`` takes."""

PAIR_RULES: Mapping[str, str] = {
    "rank": "the same top_k strongest features: the paper's choice, and hard to go wrong with",
    "soft": (
        "the share of strongest features in common: level with rank at top_k 15 or ahead "
        "of it; at 5 far behind in the paper, not here"
    ),
    "cosine": "a cosine above pair_threshold: level with rank where the threshold is right, which each data set decides",
    "nearest": "nearest neighbours in the batch: nothing to choose; level with rank on CIFAR-10, behind where it is harder",
    "kmeans-batch": "k-means in each batch: good with many classes (CIFAR-100), poor with few",
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

PLANS: Mapping[str, Entry] = {
    "auto": Entry("autonovel:plan", "features where they are at hand and the images large enough, otherwise scratch"),
    "autonovel": Entry("autonovel:plan", "learn a representation, then the known classes, then known and new together"),
    "features": Entry(
        "features:plan",
        "groups on pre-trained features, in the space that known classes teach if there are any: seconds",
    ),
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


SKIPPED: Mapping[str, str] = {
    "pretrain.method": "skip the stage",
    "joint.objective": "skip the stage; method scratch groups what was learned before: many known classes with few images",
}
"""What ``none`` means, by setting."""


def described() -> dict[str, dict[str, str]]:
    """Every setting that chooses by name: what it takes, each with a line that says when to take it."""
    by_name = {
        setting: {name: SKIPPED[setting] if entry is None else entry.line for name, entry in entries.items()}
        for setting, entries in CHOICES.items()
    }
    own = {"MODULE:FUNCTION": "a rule of your own, which takes an autonovel.pairs.PairInput"}
    return by_name | {"joint.pairs": {**PAIR_RULES, **own}, "joint.train_from": dict(DEPTHS)}


def find(kind: Mapping[str, Any], name: str, flag: str) -> Any:
    """The class or function of this name; None for a method that stands for no stage."""
    if name not in kind:
        hint = did_you_mean(name, kind)
        raise InputError(f"{flag} is '{name}'; choose one of {', '.join(kind)}{hint}.")
    entry = kind[name]
    return None if entry is None else entry.load()
