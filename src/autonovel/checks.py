"""What cannot work is refused before any training, each case with one sentence."""

from __future__ import annotations

from autonovel.data.images import ImageSet
from autonovel.errors import InputError
from autonovel.settings import Recipe


def check(data: ImageSet, recipe: Recipe, n_new: int | None) -> None:
    """Refuse what cannot work, each with one sentence."""
    unlabelled = int((~data.is_known).sum())
    if n_new is not None and n_new < 2:
        raise InputError(f"--n-new is {n_new}; there must be at least 2 new classes to tell apart.")
    if not unlabelled:
        raise InputError("There are no unlabelled images to discover classes in.")
    if unlabelled < (n_new or 2):
        raise InputError(
            f"There are {unlabelled} unlabelled images, fewer than the {n_new or 2} new classes to find (--n-new)."
        )
    if data.n_known == 1:
        raise InputError("Only one class is known; label images of at least two classes.")
    missing = [name for i, name in enumerate(data.class_names) if not (data.labels == i).any()]
    if missing:
        raise InputError(f"The known class '{missing[0]}' has no image; leave it out or add images of it.")
    if recipe.pretrain.method == "rotation" and data.images.shape[1] != data.images.shape[2] and not recipe.model.size:
        raise InputError("Rotation needs square images; set --model.size.")
    if recipe.joint.objective == "pairs" and recipe.joint.incremental and recipe.model.head == "cosine":
        raise InputError(
            "A cosine head cannot be extended by the pairs objective; use --model.head linear or --no-incremental."
        )
    if recipe.joint.objective == "swap" and recipe.joint.swap.views < 2:
        raise InputError("--joint.swap.views must be at least 2: each view predicts the other.")
    if (
        recipe.model.backbone in ("small", "vgg")
        and data.images.shape[1] != data.images.shape[2]
        and not recipe.model.size
    ):
        raise InputError(f"The {recipe.model.backbone} network needs square images; set --model.size.")
    if recipe.joint.objective == "pairs" and not any(
        (recipe.joint.known_weight, recipe.joint.pair_weight, recipe.joint.consistency, recipe.joint.incremental)
    ):
        raise InputError("Every loss of joint training is switched off; leave at least one weight above 0.")
    for name, value, least in _limits(recipe):
        if not value >= least:
            raise InputError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}.")
    for stage in _STAGES:
        settings = getattr(recipe, stage)
        if settings.lr <= 0:
            raise InputError(f"--{stage}.lr is {settings.lr}; it must be above 0.")
        if settings.nesterov and not settings.momentum:
            raise InputError(f"--{stage}.nesterov needs momentum; set --{stage}.momentum or --{stage}.no-nesterov.")
    for name in ("temperature", "epsilon"):
        if getattr(recipe.joint.swap, name) <= 0:
            raise InputError(f"--joint.swap.{name} must be above 0.")


_STAGES = ("pretrain", "supervised", "joint")


def _limits(recipe: Recipe) -> list[tuple[str, float, float]]:
    """Settings that have a smallest sensible value: (flag, value, least)."""
    least = {"epochs": 1, "batch": 2, "momentum": 0, "weight_decay": 0, "warmup": 0, "final": 0, "decay": 0}
    rows = [
        (f"{stage}.{name}", getattr(getattr(recipe, stage), name), low)
        for stage in _STAGES
        for name, low in least.items()
    ]
    joint, swap = recipe.joint, recipe.joint.swap
    rows += [
        (f"joint.{name}", getattr(joint, name), 0) for name in ("known_weight", "pair_weight", "consistency", "ramp")
    ]
    ones = ("heads", "hidden", "projection", "iterations")
    rows += [(f"joint.swap.{name}", getattr(swap, name), 1) for name in ones]
    rows += [(f"joint.swap.{name}", getattr(swap, name), 0) for name in ("over_factor", "small_views")]
    rows += [("joint.swap.small_size", swap.small_size, 8 if swap.small_views else 0)]
    model = recipe.model
    return [
        *rows,
        ("model.width", model.width, 1),
        ("model.size", model.size, 0),
        ("model.networks", model.networks, 1),
    ]
