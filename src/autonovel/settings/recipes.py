"""Named recipes: values of the settings. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError, unknown
from autonovel.settings.augment import Augment
from autonovel.settings.compared import stages_for
from autonovel.settings.estimate import JudgesSettings, PaperSettings
from autonovel.settings.fields import from_dict, overlay, tidied, usual
from autonovel.settings.joint import AutoJoint, Joint, NeighboursSettings, NoJoint, PairsSettings, SwapSettings
from autonovel.settings.recipe import COMPARED, Model, Recipe
from autonovel.settings.stages import NoPretraining, PrototypicalSettings, RotationSettings, SimCLRSettings, Supervised

PRESETS = ("paper", "reference", "fast")


def with_fields(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with fields set by their names; a name may be several joined by ``+``, which are given the same value.

    Another method (``pretrain.method``, ``joint.objective``, ``estimate.method``) brings its own settings and schedule; fields
    beside it have the last word.

    >>> with_fields(Recipe(), {"joint.top_k": 3, "supervised.train_from+joint.train_from": "layer3"}).joint.train_from
    'layer3'
    >>> with_fields(Recipe(), {"pretrain.method": "simclr"}).pretrain.batch
    512
    """
    single = {path: value for paths, value in values.items() for path in paths.split("+")}
    method = single.get("method", recipe.method)
    if method != recipe.method and method in COMPARED:  # its own stages have settings that depend on the data
        own = stages_for(method, recipe.name, recipe.preset, recipe.supervised.augment, recipe.joint.augment)
        recipe = replace(recipe, incremental=False, **own)  # type: ignore[arg-type]
    return overlay(recipe, single, recipe.preset)


# ---- The recipes

SHORT_SUPERVISED = Supervised(epochs=20, schedule="triangle", warmup=2)
"""A fifth of the paper's time for the known classes (CIFAR-10: 90.2 % in the end, where the long stages have 91.2)."""


def _cifar10(preset: str) -> Recipe:
    return Recipe(
        pretrain=usual(RotationSettings, preset),
        supervised=SHORT_SUPERVISED if preset == "fast" else Supervised(),
        joint=usual(PairsSettings, preset),
    )


def _pairs(preset: str, consistency: float, ramp: int) -> PairsSettings:
    """As for CIFAR-10, but for the weight of consistency and how long it takes to come."""
    own = usual(PairsSettings, preset)
    ramp = round(ramp * own.epochs / PairsSettings().epochs)
    return replace(own, consistency=consistency, ramp=ramp, augment=Augment("shift"))


def _cifar100(preset: str) -> Recipe:
    return replace(_cifar10(preset), name="cifar100", joint=_pairs(preset, consistency=50.0, ramp=150))


def _cifar100_incremental(preset: str) -> Recipe:
    joint = _pairs(preset, consistency=50.0, ramp=150)
    if preset == "reference":  # the authors ran this one longer than their text says
        joint = replace(joint, batch=256, epochs=400, milestones=(340,), consistency=25.0, ramp=300)
    return replace(_cifar10(preset), name="cifar100-incremental", incremental=True, joint=joint)


def _svhn(preset: str) -> Recipe:
    # a smaller part loses the digit in the middle, or shows the one beside it
    joint = _pairs(preset, consistency=50.0, ramp=80)
    return replace(_cifar10(preset), name="svhn", mirror="no", smallest_part=0.5, joint=joint)


LR_OF_512 = 0.4
"""The learning rate of swapped prediction for batches of 512; it goes with the size of the batch."""


def _best(preset: str) -> Recipe:
    strong = Augment("mixed", jitter=0.4, solarise=0.2)
    share = 0.5 if preset == "fast" else 1.0
    return Recipe(
        name="best",
        incremental=True,
        model=Model(head="cosine"),
        pretrain=NoPretraining(),
        supervised=Supervised(
            epochs=int(60 * share),
            batch=256,
            weight_decay=5e-4,
            schedule="cosine",
            warmup=5,
            train_from="all",
            augment=strong,
        ),
        joint=SwapSettings(batch=512, lr=LR_OF_512, small_views=-1, by_class=-1.0, augment=strong),
    )


def _folder(preset: str) -> Recipe:
    best = _best(preset)
    return replace(
        best,
        name="folder",
        method="auto",
        pile="auto",
        mirror="auto",
        model=replace(best.model, backbone="auto", width=0),
        supervised=replace(best.supervised, batch=0, augment=Joint().augment),
        estimate=JudgesSettings(),
        joint=AutoJoint(),
    )


PROBE_ALPHABETS = ("Alphabet_of_the_Magi", "Japanese_(katakana)", "Latin", "Cyrillic", "Grantha")
"""The known alphabets of OmniGlot that pre-training leaves out, to calibrate the number of classes on."""


def _omniglot(preset: str) -> Recipe:
    reference = preset == "reference"
    part = Augment("redrawn" if reference else "crop", (0.85, 1.0))
    # the text does not say how long; the authors trained for 15,800 episodes and went from there straight to joint training
    short = PrototypicalSettings(epochs=50, episodes=100, ways=30, milestones=(25, 40), decay=0.2)
    fast = replace(short, epochs=10, milestones=(6, 8))
    pretrain = {"reference": PrototypicalSettings(), "fast": fast}.get(preset, short)
    return Recipe(
        name="omniglot",
        mirror="no",
        smallest_part=0.5,
        model=Model(backbone="vgg", head="mlp", size=32),
        pretrain=replace(pretrain, augment=part),
        supervised=Supervised(
            epochs=0 if reference else 10, optimiser="adam", lr=1e-3, milestones=(), decay=0.1, augment=part
        ),
        estimate=PaperSettings(
            probe_families=PROBE_ALPHABETS,
            reading="code" if reference else "text",
            anchor_share=0.7 if reference else 0.8,
        ),
        joint=PairsSettings(
            epochs=100,
            batch=100 if reference else 128,
            known_per_batch=68 if reference else 0,
            optimiser="adam",
            lr=0.01,
            weight_decay=0.0,
            milestones=(99,) if reference else (),  # their scheduler, stepped before an epoch, slows down the last one
            consistency=100.0,
            ramp=1,
            augment=part,
        ),
    )


def _characters(preset: str) -> Recipe:
    """Many known classes with few images each: episodes over them teach a space, in which the pile is grouped.

    Compared on known alphabets of OmniGlot (lab/log.md).
    """
    return Recipe(
        name="characters",
        method="scratch",
        pile="auto",
        mirror="no",
        smallest_part=0.5,
        model=Model(backbone="vgg", head="mlp", size=32),
        pretrain=PrototypicalSettings(
            epochs=10 if preset == "fast" else 100,
            ways=20 if preset == "fast" else 60,
            schedule="cosine",
            turns=True,
            families=1.0,
            augment=Augment("drawing", (0.85, 1.0), rotate=10.0, zoom=0.1),
        ),
        supervised=Supervised(epochs=0),
        joint=NoJoint(),
    )


def _cluster(preset: str) -> Recipe:
    """The unsupervised mode: rotation, then pairs and consistency on the last block; no labels."""
    return replace(_cifar10(preset), name="cluster", model=Model(backbone="auto", width=0))


def _cluster_neighbours(preset: str) -> Recipe:
    """No labels: SimCLR, then nearest neighbours."""
    return Recipe(
        name="cluster-neighbours",
        model=Model(backbone="auto", width=0),
        pretrain=usual(SimCLRSettings, preset),
        joint=usual(NeighboursSettings, preset),
    )


def _imagenet(preset: str) -> Recipe:
    """Known classes by their labels alone, as the authors began; each of the three parts of 30 new classes is a run."""
    part = Augment("crop", (0.5, 1.0))
    own = _pairs(preset, consistency=10.0, ramp=50)
    long: dict[str, Any] = {} if preset == "fast" else {"epochs": 90, "milestones": (30, 60)}
    return Recipe(
        name="imagenet",
        smallest_part=0.5,
        model=Model(backbone="resnet18-large", shortcut="conv"),
        pretrain=NoPretraining(),
        supervised=replace(
            SHORT_SUPERVISED if preset == "fast" else Supervised(epochs=90, milestones=(30, 60), decay=0.1),
            batch=256, train_from="all", augment=part,
        ),
        estimate=PaperSettings(anchor_share=0.9, outlier_threshold=0.3),
        joint=replace(own, batch=512, known_per_batch=384, augment=part, **long),
    )  # fmt: skip


def _digits_split(preset: str) -> Recipe:
    """The paper's three stages on the digits, small enough for minutes on a CPU."""
    vary, short = Augment("turn", rotate=10.0, zoom=0.1, shift=0.06), 2 if preset == "fast" else 1
    return Recipe(
        name="digits-split",
        mirror="no",
        model=Model(backbone="small", width=16, size=16),
        pretrain=replace(usual(RotationSettings, "fast"), epochs=20 // short, warmup=4, augment=vary),
        supervised=replace(SHORT_SUPERVISED, epochs=10 // short, augment=vary),
        joint=replace(
            usual(PairsSettings, "fast"), epochs=40 // short, milestones=(35 // short,), ramp=10, augment=vary
        ),
    )


def _digits(preset: str) -> Recipe:
    # compared on probe classes among the known digits (lab/log.md, which also says what is not clean about it)
    vary = Augment("turn", rotate=10.0, zoom=0.1, shift=0.06)
    return Recipe(
        name="digits",
        mirror="no",
        smallest_part=0.6,
        incremental=True,
        model=Model(
            backbone="small", width=16, head="cosine", temperature=0.2, size=16, networks=3 if preset == "fast" else 8
        ),
        pretrain=NoPretraining(),
        supervised=Supervised(epochs=1, schedule="cosine", warmup=1, train_from="all", augment=vary),
        joint=SwapSettings(
            epochs=20,
            batch=128,
            lr=0.1,
            weight_decay=1e-4,
            warmup=2,
            final=0.0,
            hidden=64,
            projection=64,
            regroups=9,
            augment=vary,
        ),
    )


_RECIPES: dict[str, tuple[str, Callable[[str], Recipe]]] = {
    "cifar10": ("the paper's settings for CIFAR-10", _cifar10),
    "cifar100": ("the paper's settings for CIFAR-100", _cifar100),
    "cifar100-incremental": (
        "the same with the incremental head, which the authors trained differently",
        _cifar100_incremental,
    ),
    "svhn": ("the paper's settings for SVHN", _svhn),
    "digits": ("small grey images, a minute or two on a CPU (the demo)", _digits),
    "omniglot": ("the paper's settings for OmniGlot, one alphabet at a time", _omniglot),
    "characters": (
        "characters, signs: many known classes with few images each, grouped without joint training",
        _characters,
    ),
    "imagenet": ("the paper's settings for ImageNet, 30 new classes at a time", _imagenet),
    "digits-split": (
        "the paper's stages on the digits, in minutes on a CPU (to reproduce its tables small)",
        _digits_split,
    ),
    "folder": ("anyone's images: network, resolution, batch and epochs from the data", _folder),
    "cluster": ("no labels at all: the paper's unsupervised mode", _cluster),
    "cluster-neighbours": ("no labels at all: contrast, then one cluster for neighbours", _cluster_neighbours),
    "best": ("the most accurate settings for small colour images: swapped prediction, all layers", _best),
}


def describe_recipes() -> dict[str, str]:
    """The names of all recipes, each with a line that says what it is for."""
    return {name: text for name, (text, _) in _RECIPES.items()}


def get_recipe(name: str, preset: str = "paper") -> Recipe:
    """The recipe of this name in one of the presets, or the one in a JSON file, which has its preset already.

    >>> get_recipe("cifar100").joint.consistency
    50.0
    """
    if is_file(name):
        return _read(Path(name))
    if name not in _RECIPES:
        raise unknown("recipe", name, _RECIPES)
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    return tidied(replace(_RECIPES[name][1](preset), preset=preset))


def is_file(name: str) -> bool:
    """Whether a recipe is named by the file that it is in."""
    return name.endswith(".json")


def _read(file: Path) -> Recipe:
    """The recipe that :meth:`Recipe.to_dict` gave; fields that the file does not have take their defaults."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is no JSON: {error}"
        raise InputError(
            f"The recipe {file} cannot be read ({reason}); give a file that autonovel tune or Recipe.to_dict made, or the "
            "name of a recipe."
        ) from None
    if not isinstance(values, dict):
        raise InputError(
            f"The recipe {file} cannot be used: it must hold the fields of a recipe by name, as Recipe.to_dict gives them."
        )
    try:
        return from_dict(Recipe, values)
    except (InputError, TypeError, AttributeError) as error:
        raise InputError(f"The recipe {file} cannot be used: {str(error).rstrip('.')}.") from None
