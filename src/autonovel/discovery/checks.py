"""Refuses what cannot work before any training, each case with one sentence."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from autonovel.base.errors import InputError, kind_found, option
from autonovel.data.images import ImageSet
from autonovel.settings.recipe import KEEP_LAYOUT, Recipe


def check_images(data: ImageSet, n_new: int | None) -> None:
    """Refuse images in which ``n_new`` new classes (None: a number to be estimated) cannot be discovered."""
    unlabelled = int((~data.is_labelled).sum())
    if n_new is not None and n_new < 2:
        raise InputError(
            f"{_flag(data)} is {n_new}; there must be at least 2 {kind_found(data.n_known)} to tell apart."
        )
    if not unlabelled:
        raise InputError("There are no unlabelled images to discover classes in; give some beside the labelled ones.")
    if n_new is None and unlabelled < 3:
        raise InputError(
            f"There are {unlabelled} unlabelled images, too few to estimate the number of classes; give {_flag(data)}."
        )
    if n_new is not None and unlabelled < n_new:
        raise InputError(
            f"There are {unlabelled} unlabelled images, fewer than the {n_new} {kind_found(data.n_known)} to find; "
            f"give {_flag(data)} {unlabelled} or less, or more images."
        )
    if data.n_known == 1:
        raise InputError("Only one class is known; label images of at least two classes.")
    missing = [name for i, name in enumerate(data.class_names) if not (data.labels == i).any()]
    if missing:
        raise InputError(f"The known class '{missing[0]}' has no image; leave it out or add images of it.")


def check_settings(data: ImageSet, recipe: Recipe) -> None:
    """Refuse settings that cannot work, or not with these images."""
    if recipe.model.backbone in KEEP_LAYOUT and data.images.shape[1] != data.images.shape[2] and not recipe.model.size:
        raise InputError(f"The {recipe.model.backbone} network needs square images; set {option('model.size')}.")
    for name, value, least in _limits(recipe):
        if not value >= least:
            raise InputError(f"{option(name)} is {value}; it must be at least {least}.")
    share = recipe.estimate.coverage
    if not 0 < share < 1:
        raise InputError(f"{option('estimate.coverage')} is {share}; it must lie between 0 and 1.")
    sizes = recipe.estimate.size_range
    if sizes is not None and not 1 <= sizes[0] <= sizes[1]:
        raise InputError(
            f"{option('estimate.size_range')} is {sizes[0]} {sizes[1]}; give the smallest size, then the largest."
        )
    for stage in _STAGES:
        settings = getattr(recipe, stage)
        if not 0 < settings.lr < math.inf:
            raise InputError(f"{option(f'{stage}.lr')} is {settings.lr}; give a number above 0, 0.1 for example.")
    if not (temperature := recipe.model.temperature) > 0:
        raise InputError(f"{option('model.temperature')} is {temperature}; it must be above 0.")


def check_distinct(data: ImageSet, n_new: int | None) -> None:
    """Refuse a pile that, but for copies, has fewer images than there are classes to find."""
    if n_new is None:
        return
    unlabelled, distinct = int((~data.is_labelled).sum()), _count_distinct(data, n_new)
    if distinct < 2:
        raise InputError(f"All {unlabelled} unlabelled images are the same; give images that differ.")
    if distinct < n_new:
        raise InputError(
            f"Only {distinct} of the {unlabelled} unlabelled images differ, fewer than the {n_new} "
            f"{kind_found(data.n_known)} to find; give {_flag(data)} {distinct} or less, or more images."
        )


def _count_distinct(data: ImageSet, enough: int) -> int:
    """How many different images are unlabelled; as soon as there are enough, no more are looked at."""
    seen: set[bytes] = set()
    for row in np.flatnonzero(~data.is_labelled):
        seen.add(hashlib.blake2b(data.images[row].tobytes()).digest())
        if len(seen) == enough:
            break
    return len(seen)


def _flag(data: ImageSet) -> str:
    """What the number of classes is called on the command line."""
    return option("n_new" if data.n_known else "k")


_STAGES = ("pretrain", "supervised", "joint")


def _limits(recipe: Recipe) -> list[tuple[str, float, float]]:
    """Settings that have a smallest sensible value: (flag, value, least)."""
    least = {"epochs": 0, "batch": 2, "weight_decay": 0, "warmup": 0, "final": 0, "decay": 0}
    rows = [
        (f"{stage}.{name}", getattr(getattr(recipe, stage), name), low)
        for stage in _STAGES
        for name, low in least.items()
    ]
    joint, swap = recipe.joint, recipe.joint.swap
    rows += [("joint.epochs", joint.epochs, 1)]
    rows += [
        (f"joint.{name}", getattr(joint, name), 0) for name in ("known_weight", "pair_weight", "consistency", "ramp")
    ]
    rows += [(f"joint.swap.{name}", getattr(swap, name), 1) for name in ("heads", "hidden", "projection")]
    rows += [(f"joint.swap.{name}", getattr(swap, name), 0) for name in ("over_factor", "small_views")]
    episode = {"ways": 2, "shots": 1, "queries": 1, "episodes": 1}
    rows += [(f"pretrain.{name}", getattr(recipe.pretrain, name), low) for name, low in episode.items()]
    rows += [("estimate.max_new", recipe.estimate.max_new, 2)]
    model = recipe.model
    return [
        *rows,
        ("model.width", model.width, 1),
        ("model.size", model.size, 0),
        ("model.networks", model.networks, 1),
    ]
