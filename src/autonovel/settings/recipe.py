"""Every setting of the method, as frozen dataclasses with the meaning of each field.

A recipe is the whole truth about a run: two runs with the same recipe, data and seed are the same run. An ablation is a
:func:`dataclasses.replace` of one field. Nothing here imports torch, so that the command line can show it at once.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_type_hints

from autonovel.base.errors import InputError, did_you_mean
from autonovel.settings.kinds import in_words, is_a

Crop = Literal["none", "zero", "reflect", "resized", "mixed"]


@dataclass(frozen=True)
class Augment:
    """How an image is varied before the network sees it; every image of a batch is varied on its own."""

    crop: Crop = "zero"
    """Where the crop comes from: a shift, by up to four pixels, of the image padded with black (zero) or its mirror image
    (reflect), a part of it scaled up (resized), or by chance a shift or a scaled part (mixed)."""
    area: tuple[float, float] = (0.5, 1.0)
    """The share of the image that a scaled part covers, for crop resized and mixed."""
    redraw: bool = False
    """Draw a scaled part that reaches over the border again, as torchvision does; otherwise it is cut off there, which stretches
    it more."""
    flip: bool = True
    """Mirror left and right by chance. Switch it off where a mirrored object is another object (digits, letters)."""
    rotate: float = 0.0
    """The largest rotation, in degrees."""
    zoom: float = 0.0
    """The largest change of size, as a share (0.15: from 85 % to 115 %)."""
    shift: float = 0.0
    """The largest shift, as a share of the side; unlike that of a crop it is not rounded to pixels."""
    outside: Literal["black", "edge"] = "black"
    """What rotate, zoom and shift show beyond the image: black, or its nearest pixel, for drawings on white paper. The shift of
    a crop alone is not concerned."""
    jitter: float = 0.0
    """The strength of random brightness, contrast and saturation; the hue turns by a quarter of it."""
    grey: float = 0.0
    """How often the colour is dropped."""
    solarise: float = 0.0
    """How often bright pixels are inverted."""
    cutout: float = 0.0
    """How often a square is covered with the image's mean colour."""
    cutout_side: float = 0.5
    """The side of that square, as a share of the image's side; parts of it may lie outside."""


KEEP_LAYOUT = ("small", "vgg")
"""Backbones whose features keep the layout of the image: all images, and all views of them, must be squares of one size."""


@dataclass(frozen=True)
class Model:
    """The network."""

    backbone: str = "resnet18"
    """The network: auto takes what suits the images. efficientnet-lite0 is pre-trained and needs no download; timm:NAME, hf:NAME
    and FILE.safetensors are pre-trained too. resnet18: 3x3 stem, for images up to about 64 pixels. resnet18-large: the usual
    stem for photographs. vgg: four blocks for 32x32 characters. small: for tiny grey images."""
    width: int = 64
    """Channels of the first block; 0 takes what suits the data."""
    shortcut: Literal["pool", "conv"] = "pool"
    """How a residual block changes its shape: average pooling and zero channels, or a 1x1 convolution."""
    head: Literal["linear", "mlp", "cosine"] = "linear"
    """What turns a feature into class scores. mlp has one hidden layer; cosine compares directions (for swap)."""
    temperature: float = 0.1
    """Divides the cosines of cosine heads, and of the heads of swap, before the softmax."""
    size: int = 0
    """Images are resized to this many pixels before training; 0 leaves them as they are."""
    networks: int = 1
    """Networks that are trained one after the other, each from first weights of its own. With more than one, all heads of
    all of them answer together: clusters are matched and probabilities averaged. Takes that many times as long."""


@dataclass(frozen=True)
class Training:
    """How the weights of a stage are trained."""

    epochs: int = 200
    """Passes over the images of the stage; 0 leaves the stage out (pretrain, supervised) or takes what suits the data (joint)."""
    batch: int = 128
    """Images in a step (before views are made of them); 0 takes what suits the data (stages supervised and joint)."""
    optimiser: Literal["sgd", "nesterov", "adam"] = "sgd"
    """The rule that moves the weights: gradient descent with momentum 0.9, the same in Nesterov's form, or Adam."""
    lr: float = 0.1
    """The learning rate at its highest; 0 takes what suits the batch (stage joint)."""
    weight_decay: float = 1e-4
    """Pull of all trained weights towards zero."""
    schedule: Literal["steps", "cosine", "triangle"] = "steps"
    """The learning rate over time: multiplied by decay at the milestones; or half a cosine down to lr x final after a
    linear warm-up; or a linear rise during warm-up and a linear fall to lr x final after it."""
    milestones: tuple[int, ...] = ()
    """Epochs (counted from 0) at which the learning rate is multiplied by decay, for schedule steps."""
    decay: float = 0.1
    """The factor at each milestone."""
    warmup: int = 0
    """Epochs of linear rise, for schedules cosine and triangle."""
    final: float = 0.0
    """Where cosine and triangle end, as a share of lr."""
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


def rise(epoch: int, length: float) -> float:
    """How a weight grows: exp(-5 (1 - min(1, r / T))^2) in epoch r (from 0) of T; without length it is there at once."""
    share = 1.0 if length <= 0 else min(1.0, epoch / length)
    return math.exp(-5.0 * (1.0 - share) ** 2)


@dataclass(frozen=True)
class Contrast:
    """Settings of simclr, moco and moco-v2."""

    temperature: float = 0.0
    """Divides the cosines before the softmax; 0 takes what was published (simclr 0.5, moco 0.07, moco-v2 0.2)."""
    queue: int = 4096
    """Earlier images that moco compares with; at least a batch."""
    momentum: float = 0.99
    """How slowly moco's second network follows the first; larger data sets take 0.999."""
    augment: Augment = Augment("resized", area=(0.2, 1.0), jitter=0.4, grey=0.2)
    """How images are varied, in place of the stage's own: these methods learn what strong variations leave as it is. Crops that
    lose the object hurt where it is small or stands beside others (SVHN): raise area."""


@dataclass(frozen=True)
class Pretrain(Training):
    """Stage 1: a representation from all images, without labels (or, for prototypical, from the labelled ones)."""

    method: str = "rotation"
    """What is learned, without labels except for prototypical. Another method than the recipe's brings its own schedule, where
    none is given."""
    ways: int = 20
    """Classes of an episode, for prototypical."""
    shots: int = 5
    """Images a class in an episode that make its prototype, for prototypical. Classes with fewer images than shots and queries
    together take no part."""
    queries: int = 5
    """Images a class in an episode that are to be recognised, for prototypical."""
    episodes: int = 100
    """Episodes an epoch, for prototypical."""
    turns: bool = False
    """Each quarter turn of a class is a class of its own, which makes four times as many, for prototypical. For characters and
    other images in which up and down mean something."""
    families: float = 0.0
    """Share of the episodes that are filled with one family of classes after another, for prototypical, where class names have
    the form FAMILY/NAME (from a table of paths and labels). Classes of a family are then turned alike. For piles that are one
    family: an alphabet, a genus."""
    contrast: Contrast = Contrast()
    """Settings of simclr, moco and moco-v2."""


@dataclass(frozen=True)
class Supervised(Training):
    """Stage 2: fine-tuning on the known classes."""


@dataclass(frozen=True)
class Estimate:
    """How the number of new classes is estimated, where it is not given."""

    method: Literal["calibrated", "paper", "silhouette", "judges"] = "calibrated"
    """calibrated: a tree cut where a cut is right for known classes that training has not seen. paper: the paper's
    Algorithm 1. silhouette: needs no known classes. judges: silhouette, graph and tree, of which the middle one
    decides."""
    max_new: int = 100
    """The largest number to consider."""
    probe_share: float = 0.25
    """Share of the known classes that training leaves out, to learn from them what a class looks like. Where the number is given
    none is."""

    probe_families: tuple[str, ...] = ()
    """Families of known classes to leave out, where class names have the form FAMILY/NAME. When left empty, random families, or
    single classes where there are no families or only large ones."""
    coverage: float = 0.8
    """How often the interval should hold the true number (calibrated)."""
    size_range: tuple[int, int] | None = None
    """Smallest and largest class size in the pile, where they are known; otherwise it is read off the pile (calibrated)."""

    reading: Literal["text", "code"] = "text"
    """Algorithm 1 as the paper's text says, or as the authors' code does it (paper)."""
    anchor_share: float = 0.8
    """Share of the probe classes that are anchors; the others check the clustering (paper)."""
    outlier_threshold: float = 0.01
    """Clusters with fewer unlabelled points than this share of the largest are not counted (paper)."""


@dataclass(frozen=True)
class Swap:
    """Settings of the swap objective."""

    heads: int = 4
    """Heads that cluster side by side; the one with the lowest training loss answers."""
    over_factor: int = 3
    """Extra heads have this many times as many clusters; 0: no such heads."""
    small_views: int = 0
    """Small views, which predict but give no targets. -1 takes two where there are more than ten new classes (known ones, where
    the number is estimated) and the network takes images of any size."""
    hidden: int = 2048
    """Hidden units of the projection in front of each head."""
    projection: int = 256
    """Outputs of the projection."""
    by_class: float = 0.0
    """Share of the loss in which each class, known or new, picks its images out of the batch; in the rest each image picks its
    class. -1 takes half where there are more than ten new classes (known ones, where the number is estimated)."""
    regroups: int = 0
    """How often, evenly over the epochs, the clusters of a head start again from groups in the features, and targets aim at the
    sizes of these: wherever the groups are clearer than the clusters, as with classes of different sizes."""
    divergence: float = 0.0
    """Final weight of pushing the predictions of labelled and unlabelled images apart; too much of it makes clusters collapse."""
    divergence_ramp: float = 0.5
    """Share of the epochs until the divergence has its full weight. With 0 it has it at once, with which clusters of many
    classes collapsed."""
    divergence_bound: float = 0.0
    """Log-probabilities below this (a negative number) count as this in the divergence, which limits it; 0: no limit."""


@dataclass(frozen=True)
class JointContrast:
    """Settings of the contrast objective."""

    temperature: float = 0.2
    """Divides the cosines before the softmax."""
    known_share: float = 0.5
    """How much of the loss of a labelled image is to find the others of its class; the rest is to find its own other view."""
    augment: Augment = Augment("resized", area=(0.4, 1.0), rotate=30.0, jitter=0.4, solarise=0.2)
    """How images are varied, in place of the stage's own."""


@dataclass(frozen=True)
class Neighbours:
    """Settings of the neighbours objective."""

    nearest: int = 20
    """Nearest images of each image, found once from the features of the stages before; one of them is drawn each time."""
    heads: int = 4
    """Heads that cluster side by side; the one that agrees best with the neighbours answers."""
    balance: float = 5.0
    """Weight of a loss that is lowest where the mean prediction uses all clusters equally; 0 lets clusters die out."""
    augment: Augment = Augment(
        "resized", area=(0.4, 1.0), jitter=0.4, grey=0.2, solarise=0.1, cutout=0.5, cutout_side=0.4
    )
    """How the varied view of an image is made; its plain view is made by the stage's own settings."""


@dataclass(frozen=True)
class Joint(Training):
    """Stage 3: known and new classes together."""

    objective: str = "pairs"
    """What makes classes of the new images; auto takes what suits the pile. none leaves the stage out, with method scratch, which
    then groups what the stages before have learned: for many known classes with few images each."""
    pairs: str = "rank"
    """The rule that says which two new images belong together, for objective pairs."""
    top_k: int = 5
    """Size of the sets of largest features that rank and soft compare; soft needs more, about 15."""
    pair_threshold: float = 0.85
    """The cosine above which two images belong together, for cosine; below 0.6 it fails, and each data set has its best one."""
    known_weight: float = 1.0
    """Weight of the cross-entropy on known images; 0 switches it off."""
    pair_weight: float = 1.0
    """Weight of the pairwise loss on new images; 0 switches it off."""
    consistency: float = 5.0
    """Final weight of the agreement between two views; 0 switches it off."""
    ramp: int = 50
    """Epochs until consistency and the incremental loss have their full weight (pairs)."""
    incremental: bool = False
    """Extend the head of the known classes by the new ones and train it on both (pairs only; swap always does)."""
    known_per_batch: int = 0
    """Known images in each batch; 0 takes them as they come in one shuffled pass over all images."""
    swap: Swap = Swap()
    """Settings of the swap objective."""
    contrast: JointContrast = JointContrast()
    """Settings of the contrast objective."""
    neighbours: Neighbours = Neighbours()
    """Settings of the neighbours objective."""

    def ramp_at(self, epoch: int) -> float:
        """The ramp in an epoch (from 0)."""
        return rise(epoch, self.ramp)


@dataclass(frozen=True)
class Recipe:
    """All settings of a run."""

    name: str = "cifar10"
    """What this recipe is called."""
    preset: str = "paper"
    """paper follows the text of the paper, reference what its authors ran, fast takes a fraction of the time."""
    method: str = "autonovel"
    """The whole method, a plan of stages. auto takes pre-trained features where they are at hand and suit the images."""
    pile: Literal["new", "mixed", "auto"] = "new"
    """May the pile hold images of known classes too? auto decides from the images and says so."""
    mirror: Literal["given", "auto"] = "given"
    """Whether the flip of each stage stands as it is given, or (auto) is switched off in all of them where mirrored images of
    the known classes no longer look like their class (digits, letters)."""
    model: Model = Model()
    """The network."""
    pretrain: Pretrain = Pretrain()
    """Stage 1: a representation from all images."""
    supervised: Supervised = Supervised()
    """Stage 2: the known classes."""
    estimate: Estimate = Estimate()
    """How the number of new classes is estimated, where it is not given."""
    joint: Joint = Joint()
    """Stage 3: known and new classes together."""

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)


T = TypeVar("T")


def from_dict(kind: type[T], values: dict[str, Any]) -> T:
    """A settings object from the plain values of :func:`dataclasses.asdict`, nested ones included.

    >>> from_dict(Recipe, Recipe(name="mine").to_dict()) == Recipe(name="mine")
    True
    """
    default = kind()
    known = [f.name for f in fields(default)]  # type: ignore[arg-type]
    if unknown := sorted(values.keys() - set(known)):
        near = did_you_mean(unknown[0], known)
        raise InputError(f"{kind.__name__} has no setting '{unknown[0]}'{near}; it has {', '.join(known)}.")
    ready: dict[str, Any] = {}
    for name, value in values.items():
        own = getattr(default, name)
        if is_dataclass(own) and isinstance(value, dict):
            ready[name] = from_dict(type(own), value)
        elif fits(kind, name, value):
            ready[name] = tuple(value) if isinstance(value, list) else value
        else:
            give = taken(kind, name, "null")
            raise InputError(f"The setting {name} of {kind.__name__} cannot be {value!r}; give {give}.")
    return kind(**ready)


@cache
def _types(kind: type) -> dict[str, Any]:
    """The types of the fields; looked up once, for that compiles every annotation anew."""
    return get_type_hints(kind)


def fits(kind: type, name: str, value: Any) -> bool:
    """Whether a field of a settings class can hold this value, which may have been read from JSON.

    >>> fits(Joint, "epochs", 5), fits(Joint, "epochs", "many"), fits(Augment, "area", [0.4, 1])
    (True, False, True)
    """
    return is_a(_types(kind)[name], value)


def taken(kind: type, name: str, none: str) -> str:
    """What a field of a settings class takes, for a sentence.

    >>> taken(Recipe, "pile", "None"), taken(Estimate, "size_range", "null"), taken(Recipe, "joint", "null")
    ('new, mixed or auto', '2 whole numbers or null', 'its settings by name')
    """
    hint = _types(kind)[name]
    return "its settings by name" if is_dataclass(hint) else in_words(hint, none)
