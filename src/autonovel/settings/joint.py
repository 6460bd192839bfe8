"""How known and new classes are learned together: the settings of every objective.

What a class says of itself is when to use it; ``HOME`` is the module in ``autonovel.methods``, and the name in it, that does it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from autonovel.settings.augment import Augment
from autonovel.settings.fields import Range, When, family
from autonovel.settings.stages import Training


def rise(epoch: int, length: float) -> float:
    """How a weight grows: exp(-5 (1 - min(1, r / T))^2) in epoch r (from 0) of T; without length it is there at once."""
    share = 1.0 if length <= 0 else min(1.0, epoch / length)
    return math.exp(-5.0 * (1.0 - share) ** 2)


@dataclass(frozen=True)
class Joint(Training):
    """Stage 3: known and new classes together."""

    objective: ClassVar[str] = "auto"
    """What makes classes of the new images; auto takes what suits the pile. Each objective has settings and a schedule of its
    own."""

    epochs: Annotated[int, Range(1, open=0)] = 0
    """Passes over all images; 0 takes what suits the data."""
    batch: Annotated[int, Range(2, open=0)] = 0
    """Images in a step, before views are made of them; 0 takes what suits the data."""
    lr: Annotated[float, Range(0, above=True, open=0)] = 0.0
    """The learning rate at its highest; 0 takes what suits the batch."""
    weight_decay: Annotated[float, Range(0)] = 1.5e-4
    schedule: Literal["steps", "cosine", "triangle"] = "cosine"
    warmup: Annotated[int, Range(0), When("schedule", "cosine", "triangle")] = 10
    final: Annotated[float, Range(0, 1), When("schedule", "cosine", "triangle")] = 0.0025
    augment: Augment = Augment("crop", (0.4, 1.0), jitter=0.4, solarise=0.2)
    known_weight: Annotated[float, Range(0)] = 1.0
    """Weight of the cross-entropy on known images; 0 switches it off."""
    known_per_batch: Annotated[int, Range(0)] = 0
    """Known images in each batch; 0 takes them as they come in one shuffled pass over all images."""


@dataclass(frozen=True)
class AutoJoint(Joint):
    """Contrast for few images under method scratch, otherwise swap."""


@dataclass(frozen=True)
class NoJoint(Joint):
    """Skip the stage; method scratch groups what was learned before: many known classes with few images."""

    HIDES = tuple(f.name for f in fields(Joint))
    objective = "none"


@dataclass(frozen=True)
class PairsSettings(Joint):
    """The paper's: which two images belong together is read off their strongest features; classes may differ in size."""

    objective = "pairs"
    HOME = "pairs:Pairs"
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 60, "milestones": (50,), "ramp": 15}

    epochs: Annotated[int, Range(1, open=0)] = 200
    batch: Annotated[int, Range(2, open=0)] = 128
    lr: Annotated[float, Range(0, above=True, open=0)] = 0.1
    weight_decay: Annotated[float, Range(0)] = 1e-4
    schedule: Literal["steps", "cosine", "triangle"] = "steps"
    milestones: Annotated[tuple[int, ...], Range(0), When("schedule", "steps")] = (170,)
    warmup: Annotated[int, Range(0), When("schedule", "cosine", "triangle")] = 0
    final: Annotated[float, Range(0, 1), When("schedule", "cosine", "triangle")] = 0.0
    train_from: str = "layer4"
    augment: Augment = Augment("reflect")
    pairs: str = "rank"
    """The rule that says which two new images belong together."""
    top_k: Annotated[int, Range(1)] = 5
    """Size of the sets of largest features that rank and soft compare; soft needs more, about 15."""
    threshold: Annotated[float, Range(-1, 1)] = 0.85
    """The cosine above which two images belong together, for cosine; below 0.6 it fails, and each data set has its best one."""
    pair_weight: Annotated[float, Range(0)] = 1.0
    """Weight of the pairwise loss on new images; 0 switches it off."""
    consistency: Annotated[float, Range(0)] = 5.0
    """Final weight of the agreement between two views; 0 switches it off."""
    ramp: Annotated[int, Range(0)] = 50
    """Epochs until consistency and the incremental loss have their full weight."""

    def ramp_at(self, epoch: int) -> float:
        """The ramp in an epoch (from 0)."""
        return rise(epoch, self.ramp)


@dataclass(frozen=True)
class SwapSettings(Joint):
    """Each view predicts the cluster of the other: more accurate where classes are even."""

    objective = "swap"
    HOME = "swap:Swap"

    heads: Annotated[int, Range(1)] = 4
    """Heads that cluster side by side; the one with the lowest training loss answers."""
    hidden: Annotated[int, Range(1)] = 2048
    """Hidden units of the projection in front of each head."""
    projection: Annotated[int, Range(1)] = 256
    """Outputs of the projection."""
    over_factor: Annotated[int, Range(0)] = 3
    """Extra heads have this many times as many clusters; 0: no such heads."""
    small_views: Annotated[int, Range(0, open=-1)] = 0
    """Small views, which predict but give no targets. -1 takes two where there are more than ten new classes (known ones, where
    the number is estimated) and the network takes images of any size."""
    by_class: Annotated[float, Range(0, 1, open=-1)] = 0.0
    """Share of the loss in which each class, known or new, picks its images out of the batch; in the rest each image picks its
    class. -1 takes half where there are more than ten new classes (known ones, where the number is estimated)."""
    regroups: Annotated[int, Range(0)] = 0
    """How often, evenly over the epochs, the clusters of a head start again from groups in the features, and targets aim at the
    sizes of these: wherever the groups are clearer than the clusters, as with classes of different sizes."""
    divergence: Annotated[float, Range(0)] = 0.0
    """Final weight of pushing the predictions of labelled and unlabelled images apart; too much of it makes clusters collapse."""
    divergence_bound: Annotated[float, Range(most=0)] = 0.0
    """Log-probabilities below this (a negative number) count as this in the divergence, which limits it; 0: no limit."""
    divergence_ramp: Annotated[float, Range(0, 1)] = 0.5
    """Share of the epochs until the divergence has its full weight. With 0 it has it at once, with which clusters of many
    classes collapsed."""


@dataclass(frozen=True)
class ContrastSettings(Joint):
    """Each view finds the other, a labelled one its class: a space without clusters, for few images (method scratch)."""

    objective = "contrast"
    HOME = "contrast:Contrast"

    augment: Augment = Augment("crop", (0.4, 1.0), rotate=30.0, jitter=0.4, solarise=0.2)
    temperature: Annotated[float, Range(0, above=True)] = 0.2
    """Divides the cosines before the softmax."""
    known_share: Annotated[float, Range(0, 1)] = 0.5
    """How much of the loss of a labelled image is to find the others of its class; the rest is to find its own other view."""


@dataclass(frozen=True)
class NeighboursSettings(Joint):
    """An image and its nearest neighbours after stage 1 get one cluster: for piles without labels, after simclr or moco, where
    classes are even.

    Rate, optimiser and weight decay are those published for SCAN on CIFAR-10, as are 20 neighbours and balance 5; the lengths are
    what fits into a quarter of an hour on a large GPU. The plain view of an image is shifted, the other one varied.
    """

    objective = "neighbours"
    HOME = "neighbours:Neighbours"
    HIDES = ("known_per_batch",)
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 40}

    epochs: Annotated[int, Range(1, open=0)] = 100
    optimiser: Literal["sgd", "nesterov", "adam"] = "adam"
    lr: Annotated[float, Range(0, above=True, open=0)] = 1e-4
    weight_decay: Annotated[float, Range(0)] = 1e-4
    schedule: Literal["steps", "cosine", "triangle"] = "steps"
    warmup: Annotated[int, Range(0), When("schedule", "cosine", "triangle")] = 0
    final: Annotated[float, Range(0, 1), When("schedule", "cosine", "triangle")] = 0.0
    augment: Augment = Augment("scan", (0.4, 1.0), jitter=0.4, grey=0.2, solarise=0.1)
    nearest: Annotated[int, Range(1)] = 20
    """Nearest images of each image, found once from the features of the stages before; one of them is drawn each time."""
    heads: Annotated[int, Range(1)] = 4
    """Heads that cluster side by side; the one that agrees best with the neighbours answers."""
    balance: Annotated[float, Range(0)] = 5.0
    """Weight of a loss that is lowest where the mean prediction uses all clusters equally; 0 lets clusters die out."""


OBJECTIVES = family(
    Joint, "objective", NoJoint, PairsSettings, SwapSettings, ContrastSettings, NeighboursSettings, AutoJoint
)
"""What ``--joint.objective`` takes."""
