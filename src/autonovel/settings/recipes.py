"""Named recipes: values of the settings. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError, did_you_mean, unknown
from autonovel.settings.recipe import (
    Augment,
    Contrast,
    Estimate,
    Joint,
    Model,
    Pretrain,
    Recipe,
    Supervised,
    Swap,
    fits,
    from_dict,
    taken,
)

PRESETS = ("paper", "reference", "fast")

PROBE_ALPHABETS = ("Alphabet_of_the_Magi", "Japanese_(katakana)", "Latin", "Cyrillic", "Grantha")
"""The known alphabets of OmniGlot that pre-training leaves out, to calibrate the number of classes on."""

# ---- How each pre-training is trained

_ROTATION = Pretrain(
    epochs=200,
    optimiser="nesterov",
    lr=0.1,
    weight_decay=5e-4,
    milestones=(60, 120, 160),
    decay=0.2,
    augment=Augment("zero"),
)
_SIMCLR = Pretrain(
    method="simclr",
    epochs=400,
    batch=512,
    lr=0.25,
    weight_decay=5e-4,
    schedule="cosine",
    warmup=10,
    augment=Augment("zero"),
)
_MOCO = replace(_SIMCLR, method="moco", lr=0.06, warmup=0)
_PROTOTYPICAL = Pretrain(
    method="prototypical", epochs=200, episodes=79, ways=20, optimiser="adam", lr=1e-3, weight_decay=0.0
)
_PRETRAINING = {
    "rotation": (_ROTATION, replace(_ROTATION, epochs=40, lr=0.2, schedule="triangle", warmup=8)),
    "simclr": (_SIMCLR, replace(_SIMCLR, epochs=80, warmup=5)),
    "moco": (_MOCO, replace(_MOCO, epochs=80)),
    "moco-v2": (replace(_MOCO, method="moco-v2"), replace(_MOCO, method="moco-v2", epochs=80)),
    "prototypical": (_PROTOTYPICAL, replace(_PROTOTYPICAL, epochs=13)),
}
"""By method: how it is trained, and how in preset fast.

rotation: as in the paper. simclr and moco: the paper does not say, so batch 512 and half a cosine as published. An image is two
inputs of the network and not four, so twice as many epochs are as many inputs, and about the time, of rotation.
simclr: its authors' rate is for another optimiser (LARS); with plain momentum 0.25 for 512 images is what open code for CIFAR-10
settled on. moco: 0.03 for 256 images, as published, and the weight decay of its authors' notebook for CIFAR-10.
prototypical: what the authors ran on OmniGlot.
"""


def with_pretraining(recipe: Recipe, method: str) -> Recipe:
    """The recipe with another pre-training, trained as that one is.

    How images are varied, and whatever is set otherwise than in the recipe of this name, stays.

    >>> recipe = with_pretraining(get_recipe("cifar10"), "simclr")
    >>> recipe.pretrain.batch, recipe.pretrain.schedule
    (512, 'cosine')
    """
    own, preset = recipe.pretrain, recipe.preset
    if method == own.method:
        return recipe
    named = get_recipe(recipe.name, preset).pretrain if recipe.name in _RECIPES and preset in PRESETS else own
    usual = named if own.method == named.method else _trained_as(named, own.method, preset)
    given = {f.name: getattr(own, f.name) for f in fields(own) if getattr(own, f.name) != getattr(usual, f.name)}
    return replace(recipe, pretrain=replace(_trained_as(own, method, preset), **given))


def _trained_as(own: Pretrain, method: str, preset: str) -> Pretrain:
    """The schedule of a method and the images of a recipe."""
    if method not in _PRETRAINING:  # none, or a method that has no schedule of its own
        return replace(own, method=method)
    usual = _PRETRAINING[method][preset == "fast"]
    return replace(usual, augment=own.augment, contrast=own.contrast, train_from=own.train_from)


def with_fields(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with fields set by their names; a name may be several joined by ``+``, which are given the same value.

    Another ``pretrain.method`` brings its own schedule, as it does on the command line; fields beside it have the last word.

    >>> with_fields(Recipe(), {"joint.top_k": 3, "supervised.train_from+joint.train_from": "layer3"}).joint.train_from
    'layer3'
    """
    single = {path: value for paths, value in values.items() for path in paths.split("+")}
    if "pretrain.method" in single:
        recipe = with_pretraining(recipe, single["pretrain.method"])
    for path, value in single.items():
        recipe = _with_field(recipe, path, value, path)
    return recipe


def _with_field(settings: Any, path: str, value: Any, whole: str) -> Any:
    name, _, rest = path.partition(".")
    if name not in {f.name for f in fields(settings)} or is_dataclass(getattr(settings, name)) != bool(rest):
        raise InputError(
            f"A recipe has no field '{whole}'{_most_like(whole)}; autonovel recipes NAME shows all of them."
        )
    if not rest and not fits(type(settings), name, value):
        give = taken(type(settings), name, "None")
        raise InputError(f"The field {whole} of a recipe cannot be {value!r}; give {give}.")
    inner = _with_field(getattr(settings, name), rest, value, whole) if rest else value
    return replace(settings, **{name: inner})


def _most_like(path: str) -> str:
    """Fields of all stages, by their whole names."""
    return did_you_mean(path, _names(Recipe()))


def _names(settings: Any, prefix: str = "") -> list[str]:
    parts = [(f"{prefix}{name}", value) for name, value in vars(settings).items()]
    return [n for name, value in parts for n in (_names(value, f"{name}.") if is_dataclass(value) else [name])]


# ---- The recipes

_CIFAR10 = Recipe(
    name="cifar10",
    pretrain=_ROTATION,
    supervised=Supervised(
        epochs=100,
        lr=0.1,
        milestones=tuple(range(10, 100, 10)),
        decay=0.5,
        train_from="layer4",
        augment=Augment("zero"),
    ),
    joint=Joint(epochs=200, lr=0.1, milestones=(170,), train_from="layer4", augment=Augment("reflect")),
)


def _shortened(recipe: Recipe) -> Recipe:
    """The same method on schedules that take a quarter of the time (CIFAR-10: 90.2 %, where the long ones have 91.2)."""
    joint = recipe.joint
    return replace(
        recipe,
        pretrain=_trained_as(recipe.pretrain, recipe.pretrain.method, "fast"),
        supervised=replace(recipe.supervised, epochs=20, schedule="triangle", warmup=2),
        joint=replace(joint, epochs=60, milestones=(50,), ramp=max(1, round(joint.ramp * 60 / joint.epochs))),
    )


def _cifar10(preset: str) -> Recipe:
    return _shortened(_CIFAR10) if preset == "fast" else _CIFAR10


def _cifar100(preset: str) -> Recipe:
    recipe = replace(
        _CIFAR10, name="cifar100", joint=replace(_CIFAR10.joint, consistency=50.0, ramp=150, augment=Augment("zero"))
    )
    return _shortened(recipe) if preset == "fast" else recipe


def _cifar100_incremental(preset: str) -> Recipe:
    recipe = _cifar100(preset)
    joint = replace(recipe.joint, incremental=True)
    if preset == "reference":  # the authors ran this one longer than their text says
        joint = replace(joint, batch=256, epochs=400, milestones=(340,), consistency=25.0, ramp=300)
    return replace(recipe, name="cifar100-incremental", joint=joint)


def _svhn(preset: str) -> Recipe:
    shift = Augment("zero", flip=False)
    # a stronger crop loses the digit in the middle, or shows the one beside it
    contrast = Contrast(augment=replace(Contrast().augment, flip=False, area=(0.5, 1.0)))
    recipe = replace(
        _CIFAR10,
        name="svhn",
        pretrain=replace(_CIFAR10.pretrain, augment=shift, contrast=contrast),
        supervised=replace(_CIFAR10.supervised, augment=shift),
        joint=replace(_CIFAR10.joint, consistency=50.0, ramp=80, augment=shift),
    )
    return _shortened(recipe) if preset == "fast" else recipe


LR_OF_512 = 0.4
"""The learning rate of swapped prediction for batches of 512; it goes with the size of the batch."""


def _best(preset: str) -> Recipe:
    strong = Augment("mixed", jitter=0.4, solarise=0.2)
    share = 0.5 if preset == "fast" else 1.0
    return Recipe(
        name="best",
        model=Model(head="cosine"),
        pretrain=Pretrain(method="none"),
        supervised=Supervised(
            epochs=int(60 * share), batch=256, lr=0.1, weight_decay=5e-4, schedule="cosine", warmup=5, augment=strong
        ),
        joint=Joint(
            objective="swap",
            epochs=0,
            batch=512,
            lr=LR_OF_512,
            weight_decay=1.5e-4,
            schedule="cosine",
            warmup=10,
            final=0.0025,
            incremental=True,
            swap=Swap(small_views=-1, by_class=-1.0),
            augment=strong,
        ),
    )


def _folder(preset: str) -> Recipe:
    best = _best(preset)
    strong = replace(best.joint.augment, crop="resized", area=(0.4, 1.0))
    return replace(
        best,
        name="folder",
        method="auto",
        pile="auto",
        mirror="auto",
        model=replace(best.model, backbone="auto", width=0),
        estimate=Estimate(method="judges"),
        supervised=replace(best.supervised, batch=0, augment=strong),
        joint=replace(best.joint, objective="auto", batch=0, lr=0.0, swap=Swap(), augment=strong),
    )


def _omniglot(preset: str) -> Recipe:
    reference = preset == "reference"
    part = Augment("resized", area=(0.85, 1.0), redraw=reference, flip=False)
    # the text does not say how long; the authors trained for 15,800 episodes and went from there straight to joint training
    short = replace(_PROTOTYPICAL, epochs=50, episodes=100, ways=30, milestones=(25, 40), decay=0.2)
    pretrain = {"reference": _PROTOTYPICAL, "fast": replace(short, epochs=10, milestones=(6, 8))}.get(preset, short)
    return Recipe(
        name="omniglot",
        model=Model(backbone="vgg", head="mlp", size=32),
        pretrain=replace(pretrain, augment=part, contrast=Contrast(augment=replace(part, area=(0.5, 1.0)))),
        supervised=Supervised(
            epochs=0 if reference else 10, optimiser="adam", lr=1e-3, train_from="layer4", augment=part
        ),
        estimate=Estimate(
            method="paper",
            probe_families=PROBE_ALPHABETS,
            reading="code" if reference else "text",
            anchor_share=0.7 if reference else 0.8,
        ),
        joint=Joint(
            epochs=100,
            batch=100 if reference else 128,
            known_per_batch=68 if reference else 0,
            optimiser="adam",
            lr=0.01,
            weight_decay=0.0,
            milestones=(99,) if reference else (),  # their scheduler, stepped before an epoch, slows down the last one
            train_from="layer4",
            consistency=100.0,
            ramp=1,
            augment=part,
        ),
    )


def _characters(preset: str) -> Recipe:
    """Many known classes with few images each: episodes over them teach a space, in which the pile is grouped.

    Compared on known alphabets of OmniGlot (docs/results.md).
    """
    pretrain = replace(
        _PROTOTYPICAL,
        epochs=10 if preset == "fast" else 100,
        ways=20 if preset == "fast" else 60,
        schedule="cosine",
        turns=True,
        families=1.0,
        augment=Augment("resized", area=(0.85, 1.0), redraw=True, flip=False, rotate=10.0, zoom=0.1, outside="edge"),
    )
    return Recipe(
        name="characters",
        method="scratch",
        pile="auto",
        model=Model(backbone="vgg", head="mlp", size=32),
        pretrain=pretrain,
        supervised=Supervised(epochs=0),
        joint=Joint(objective="none"),
    )


def _cluster(preset: str) -> Recipe:
    """The unsupervised mode: rotation, then pairs and consistency on the last block; no labels."""
    recipe = replace(_cifar10(preset), name="cluster")
    return replace(recipe, model=replace(recipe.model, backbone="auto", width=0))


def _cluster_neighbours(preset: str) -> Recipe:
    """No labels: SimCLR, then nearest neighbours.

    Rate, optimiser and weight decay of joint training are those published for SCAN on CIFAR-10, as are 20 neighbours and
    balance 5 (the defaults); the lengths are what fits into a quarter of an hour on a large GPU.
    """
    fast = preset == "fast"
    return Recipe(
        name="cluster-neighbours",
        model=Model(backbone="auto", width=0),
        pretrain=_PRETRAINING["simclr"][fast],
        joint=Joint(
            objective="neighbours", epochs=40 if fast else 100, batch=0, optimiser="adam", lr=1e-4, weight_decay=1e-4
        ),
    )


def _digits(preset: str) -> Recipe:
    # compared on probe classes among the known digits (docs/digits.md, which also says what is not clean about it)
    vary = Augment("none", flip=False, rotate=10.0, zoom=0.1, shift=0.06)
    return Recipe(
        name="digits",
        model=Model(
            backbone="small", width=16, head="cosine", temperature=0.2, size=16, networks=3 if preset == "fast" else 8
        ),
        pretrain=Pretrain(
            method="none", contrast=Contrast(augment=replace(vary, crop="resized", area=(0.6, 1.0), jitter=0.4))
        ),
        supervised=Supervised(epochs=1, batch=128, lr=0.1, schedule="cosine", warmup=1, augment=vary),
        joint=Joint(
            objective="swap",
            epochs=20,
            batch=128,
            lr=0.1,
            schedule="cosine",
            warmup=2,
            incremental=True,
            swap=Swap(heads=4, hidden=64, projection=64, regroups=9),
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
    return replace(_RECIPES[name][1](preset), preset=preset)


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
