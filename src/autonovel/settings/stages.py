"""How the stages before the last one are trained: the settings of every pre-training, and of learning the known classes.

What a class says of itself is when to use it; ``HOME`` is the module in ``autonovel.methods``, and the name in it, that does it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from autonovel.settings.augment import Augment
from autonovel.settings.fields import Range, When, family


@dataclass(frozen=True)
class Training:
    """How the weights of a stage are trained."""

    HIDES: ClassVar[tuple[str, ...]] = ()
    """Fields that mean nothing in this stage."""
    FAST: ClassVar[Mapping[str, Any]] = {}
    """What preset fast has in place of the defaults."""
    HOME: ClassVar[str] = ""
    """What is done with these settings; nothing for a stage that is left out."""

    epochs: Annotated[int, Range(0)] = 100
    """Passes over the images of the stage; 0 leaves the stage out."""
    batch: Annotated[int, Range(2)] = 128
    """Images in a step, before views are made of them."""
    optimiser: Literal["sgd", "nesterov", "adam"] = "sgd"
    """The rule that moves the weights: gradient descent with momentum 0.9, the same in Nesterov's form, or Adam."""
    lr: Annotated[float, Range(0, above=True)] = 0.1
    """The learning rate at its highest."""
    weight_decay: Annotated[float, Range(0)] = 1e-4
    """Pull of all trained weights towards zero."""
    schedule: Literal["steps", "cosine", "triangle"] = "steps"
    """The learning rate over time: multiplied by decay at the milestones; or half a cosine down after a linear warm-up; or a
    linear rise during warm-up and a linear fall after it."""
    milestones: Annotated[tuple[int, ...], Range(0), When("schedule", "steps")] = ()
    """Epochs (counted from 0) at which the learning rate is multiplied by decay."""
    decay: Annotated[float, Range(0), When("schedule", "steps")] = 0.1
    """The factor at each milestone."""
    warmup: Annotated[int, Range(0), When("schedule", "cosine", "triangle")] = 0
    """Epochs of linear rise."""
    final: Annotated[float, Range(0, 1), When("schedule", "cosine", "triangle")] = 0.0
    """Where the learning rate ends, as a share of lr."""
    train_from: str = "all"
    """The first block that learns ('all', 'layer1' .. 'layer4', or 'heads' for the heads alone); those before it are
    frozen, except for their batch-norm statistics."""
    augment: Augment = Augment()
    """How images are varied."""

    def lr_at(self, time: float) -> float:
        """The learning rate at a time in epochs (a whole number is the start of an epoch)."""
        if self.schedule == "steps":
            return self.lr * self.decay ** sum(int(time) >= milestone for milestone in self.milestones)
        if time < self.warmup:
            return self.lr * time / self.warmup
        share = min(1.0, (time - self.warmup) / max(1e-9, self.epochs - self.warmup))
        fall = 0.5 * (1 + math.cos(math.pi * share)) if self.schedule == "cosine" else 1 - share
        return self.lr * (self.final + (1 - self.final) * fall)


EVERYTHING = tuple(f.name for f in fields(Training))
"""What a stage that is left out hides."""


@dataclass(frozen=True)
class Supervised(Training):
    """Stage 2: fine-tuning on the known classes. As in the paper."""

    HIDES: ClassVar[tuple[str, ...]] = ("final",)

    milestones: Annotated[tuple[int, ...], Range(0), When("schedule", "steps")] = tuple(range(10, 100, 10))
    decay: Annotated[float, Range(0), When("schedule", "steps")] = 0.5
    batch: Annotated[int, Range(2, open=0)] = 128
    train_from: str = "layer4"


# ---- Stage 1


@dataclass(frozen=True)
class Pretrain(Training):
    """Stage 1: a representation from all images, without labels (or, for prototypical, from the labelled ones)."""

    HIDES: ClassVar[tuple[str, ...]] = ("final", "train_from")

    method: ClassVar[str] = "none"
    """What is learned, without labels except for prototypical. Each method has settings and a schedule of its own."""


@dataclass(frozen=True)
class NoPretraining(Pretrain):
    """Skip the stage."""

    HIDES = EVERYTHING

    epochs: Annotated[int, Range(0)] = 0


@dataclass(frozen=True)
class RotationSettings(Pretrain):
    """Tell by how many quarter turns an image was rotated: the paper's choice, with layer4 or more trained after it; not for
    images that look alike when turned."""

    method = "rotation"
    HOME = "rotation:Rotation"
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 40, "lr": 0.2, "schedule": "triangle", "warmup": 8}

    epochs: Annotated[int, Range(0)] = 200
    optimiser: Literal["sgd", "nesterov", "adam"] = "nesterov"
    weight_decay: Annotated[float, Range(0)] = 5e-4
    milestones: Annotated[tuple[int, ...], Range(0), When("schedule", "steps")] = (60, 120, 160)
    decay: Annotated[float, Range(0), When("schedule", "steps")] = 0.2


@dataclass(frozen=True)
class SimCLRSettings(Pretrain):
    """Find the other view of an image in the batch: the best raw features, with which heads alone go a long way; wants large
    batches, and crops that keep the object.

    The paper does not say how it was trained, so batch 512 and half a cosine as published. An image is two inputs of the network
    and not four, so twice as many epochs are as many inputs, and about the time, of rotation. The rate of its authors is for
    another optimiser (LARS); with plain momentum 0.25 for 512 images is what open code for CIFAR-10 settled on.
    """

    method = "simclr"
    HOME = "simclr:SimCLR"
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 80, "warmup": 5}

    epochs: Annotated[int, Range(0)] = 400
    batch: Annotated[int, Range(2)] = 512
    lr: Annotated[float, Range(0, above=True)] = 0.25
    weight_decay: Annotated[float, Range(0)] = 5e-4
    schedule: Literal["steps", "cosine", "triangle"] = "cosine"
    warmup: Annotated[int, Range(0), When("schedule", "cosine", "triangle")] = 10
    augment: Augment = Augment("crop", (0.2, 1.0), jitter=0.4, grey=0.2)
    temperature: Annotated[float, Range(0, above=True)] = 0.5
    """Divides the cosines before the softmax."""


@dataclass(frozen=True)
class MoCoSettings(Pretrain):
    """The same among a queue of earlier images: where memory allows only small batches.

    Batch and schedule are those of simclr. The rate is 0.03 for 256 images, as published, and the weight decay that of its
    authors' notebook for CIFAR-10.
    """

    method = "moco"
    HOME = "moco:MoCo"
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 80}

    epochs: Annotated[int, Range(0)] = 400
    batch: Annotated[int, Range(2)] = 512
    lr: Annotated[float, Range(0, above=True)] = 0.06
    weight_decay: Annotated[float, Range(0)] = 5e-4
    schedule: Literal["steps", "cosine", "triangle"] = "cosine"
    augment: Augment = Augment("crop", (0.2, 1.0), jitter=0.4, grey=0.2)
    temperature: Annotated[float, Range(0, above=True)] = 0.07
    """Divides the cosines before the softmax."""
    queue: Annotated[int, Range(1)] = 4096
    """Earlier images that an image is compared with; at least a batch."""
    momentum: Annotated[float, Range(0, 1)] = 0.99
    """How slowly the second network follows the first; larger data sets take 0.999."""


@dataclass(frozen=True)
class MoCoV2Settings(MoCoSettings):
    """Moco with a deeper projection: the better of the two in the paper."""

    method = "moco-v2"
    HOME = "moco:MoCoV2"

    temperature: Annotated[float, Range(0, above=True)] = 0.2


@dataclass(frozen=True)
class PrototypicalSettings(Pretrain):
    """Episodes over the known classes: where they are many with few images each (OmniGlot).

    Trained as its authors did on OmniGlot.
    """

    method = "prototypical"
    HOME = "prototypical:Prototypical"
    HIDES = (*Pretrain.HIDES, "batch")
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 13}

    epochs: Annotated[int, Range(0)] = 200
    optimiser: Literal["sgd", "nesterov", "adam"] = "adam"
    lr: Annotated[float, Range(0, above=True)] = 1e-3
    weight_decay: Annotated[float, Range(0)] = 0.0
    ways: Annotated[int, Range(2)] = 20
    """Classes of an episode."""
    shots: Annotated[int, Range(1)] = 5
    """Images a class in an episode that make its prototype. Classes with fewer images than shots and queries together take no
    part."""
    queries: Annotated[int, Range(1)] = 5
    """Images a class in an episode that are to be recognised."""
    episodes: Annotated[int, Range(1)] = 79
    """Episodes an epoch."""
    turns: bool = False
    """Each quarter turn of a class is a class of its own, which makes four times as many. For characters and other images in
    which up and down mean something."""
    families: Annotated[float, Range(0, 1)] = 0.0
    """Share of the episodes that are filled with one family of classes after another, where class names have the form
    FAMILY/NAME (from a table of paths and labels). Classes of a family are then turned alike. For piles that are one family: an
    alphabet, a genus."""


PRETRAINING = family(
    Pretrain,
    "method",
    NoPretraining,
    RotationSettings,
    SimCLRSettings,
    MoCoSettings,
    MoCoV2Settings,
    PrototypicalSettings,
)
"""What ``--pretrain.method`` takes."""
