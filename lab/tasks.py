"""The tasks of the laboratory and its studies: which piles, and what was compared on them, as data.

A task is a line of words: images, then what becomes of them, in turn.

    cifar10                              a benchmark by name, as it is
    omniglot:Latin unlabelled            without any labels
    digits mixed=0.3                     a share of the labelled images lose their labels and join the pile
    cifar100 hide=4 left=8 draw=2        four known classes, drawn, are the new ones, eight others the known ones; no others
    cifar100 hide=2,7,11                 these known classes are the new ones, the other known ones stay
    photos/tiny hide=10 left=10 uneven=15    a folder with a sub-folder for each class; the last new class keeps a fifteenth
    cifar10 sizes=5000,4000,3000,2000,500    so many images of each new class
    few.npz exchanged each=50            arrays images, labels, known; known and new classes exchanged; 50 images of each class
    example                              the pictures of examples/make_folder.py
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, unknown
from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS
from autonovel.data.benchmarks.splits import benchmark_names, load_benchmark
from autonovel.data.images import UNKNOWN, ImageSet, Pixels, Truth
from autonovel.data.reading.inputs import open_input

UNEVEN = 15
"""So many times as many images has the first class as the last, where nothing else is said."""
EXAMPLE_IMAGES = 60
"""Of each class of the example folder."""
LARGEST = 224
"""Side of images from files, where they are not smaller."""


@dataclass(frozen=True)
class Pile:
    """Images of which everything is known, and what may be shown of that.

    Attributes:
        images: (n, ...), pixels or what stands for them.
        classes: int64 (n,), the class of every image, known ones first.
        names: of all classes.
        n_known: how many of them are known.
        shown: bool (n,), the images whose label is shown.
        test: images and classes of a test split.
    """

    images: npt.NDArray[Any]
    classes: npt.NDArray[np.int64]
    names: tuple[str, ...]
    n_known: int
    shown: npt.NDArray[np.bool_]
    test: tuple[Pixels, npt.NDArray[np.int64]] | None = None

    def kept(self, keep: npt.NDArray[Any]) -> Pile:
        """These images alone."""
        return replace(self, images=self.images[keep], classes=self.classes[keep], shown=self.shown[keep])

    def with_known(self, known: npt.NDArray[Any], new: npt.NDArray[Any]) -> Pile:
        """The images of these classes alone, in this order; what is new is shown nowhere."""
        order = [*known, *new]
        number = np.full(len(self.names), UNKNOWN)
        number[order] = np.arange(len(order))
        keep = number[self.classes] >= 0
        part = self.kept(keep)
        classes, names = number[part.classes], tuple(self.names[c] for c in order)
        return replace(
            part, classes=classes, names=names, n_known=len(known), shown=classes < len(known), test=None
        )  # fmt: skip

    @property
    def new(self) -> range:
        """The numbers of the new classes."""
        return range(self.n_known, len(self.names))

    def task(self) -> tuple[ImageSet, Truth]:
        """As a method gets it, and the truth for scoring."""
        labels = np.where(self.shown, self.classes, UNKNOWN)
        ids = tuple(f"{place:06d}" for place in range(len(labels)))
        shown = ImageSet(self.images, labels, ids, self.names[: self.n_known])
        return shown, Truth(self.classes, self.names, *(self.test or (None, None)))


def make_task(words: str, root: Path | None, *, unverified: bool = False) -> tuple[ImageSet, Truth]:
    """A task from its line of words: the images with the labels that a method may see, and the truth for scoring."""
    source, *steps = words.split()
    return changed(read(source, root, unverified), steps).task()


def changed(pile: Pile, steps: Sequence[str]) -> Pile:
    """The pile after these steps; what is drawn depends on ``draw``."""
    given = {name: value for name, _, value in (step.partition("=") for step in steps)}
    rng = np.random.default_rng(int(given.pop("draw", 0)))
    left = int(given.pop("left", 0))
    for name, value in given.items():
        if name not in STEPS:
            raise unknown("step of a task", name, [*STEPS, "left", "draw"])
        pile = hidden(pile, value, left, rng) if name == "hide" else STEPS[name](pile, value, rng)
    return pile


# ---- where images come from


@cache
def read(source: str, root: Path | None, unverified: bool) -> Pile:
    """The images of a benchmark, an .npz file, a folder or the example, read once."""
    if source == "example":
        return _example()
    path = Path(source)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            labels, known = file["labels"], file["known"].astype(bool)
            classes = np.unique(labels, return_inverse=True)[1]
            old = np.unique(classes[known])
            whole = Pile(file["images"], classes, tuple(map(str, np.unique(labels))), len(old), known)
        pile = whole.with_known(old, np.setdiff1d(classes, old))
        return pile
    if path.is_dir():
        return _labelled_folder(path)
    if source not in benchmark_names():
        raise unknown("benchmark, folder or .npz file", source, benchmark_names())
    data, truth = load_benchmark(source, root, unverified=unverified)
    test = None if truth.test_images is None else (truth.test_images, truth.test_labels)
    return Pile(data.images, truth.labels, truth.class_names, data.n_known, data.is_labelled, test)


def _labelled_folder(path: Path) -> Pile:
    """A sub-folder for each class, all of them known; at their own size or 224 pixels."""
    files = sorted(file for folder in path.iterdir() if folder.is_dir() for file in folder.iterdir())
    given = open_input((files, [file.parent.name for file in files]))
    data = given.load(size=min(LARGEST, given.survey.size), least=0).images
    return Pile(data.images, data.labels, data.class_names, data.n_known, data.is_labelled)


def _example() -> Pile:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import make_folder

    names = (*make_folder.KNOWN, *make_folder.NEW)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder.make_folder(folder, EXAMPLE_IMAGES)
        data = open_input(folder / "labelled", folder / "unlabelled").load(size=LARGEST).images
        with (folder / "truth.csv").open() as file:
            truth = {Path(row["path"]).name: row["label"] for row in csv.DictReader(file)}
        images = np.array(data.images)
    kinds = [
        data.class_names[label] if label >= 0 else truth[Path(image).name]
        for label, image in zip(data.labels.tolist(), data.ids, strict=True)
    ]
    classes = np.array([names.index(kind) for kind in kinds])
    return Pile(images, classes, names, len(make_folder.KNOWN), data.is_labelled)


# ---- what becomes of them


def hidden(pile: Pile, value: str, left: int, rng: np.random.Generator) -> Pile:
    """Some known classes in the place of the new ones: so many, drawn, or those that are named; ``left`` others stay known."""
    order = rng.permutation(pile.n_known)
    if "," in value:
        new = np.array([int(c) for c in value.split(",")])
        order = np.concatenate([new, np.setdiff1d(order, new)])
    else:
        new = order[: int(value)]
    known = order[len(new) :][: left or None]
    if len(known) < left or not 1 < len(new) <= len(order) - 2:
        raise InputError(
            f"{pile.n_known} known classes cannot give {len(new)} new ones and {left or 2} that stay known."
        )
    return pile.with_known(np.sort(known), new)


def _sizes(pile: Pile, value: str, rng: np.random.Generator) -> Pile:
    sizes = [int(size) for size in value.split(",")]
    if len(sizes) != len(pile.new):
        raise InputError(f"sizes={value} has {len(sizes)} sizes for {len(pile.new)} new classes; give one for each.")
    return _cut(pile, dict(zip(pile.new, sizes, strict=True)), rng)


def _uneven(pile: Pile, value: str, rng: np.random.Generator) -> Pile:
    shares = np.geomspace(1, 1 / float(value or UNEVEN), len(pile.new))
    sizes = {c: max(3, round(part * int((pile.classes == c).sum()))) for c, part in zip(pile.new, shares, strict=True)}
    return _cut(pile, sizes, rng)


def _each(pile: Pile, value: str, rng: np.random.Generator) -> Pile:
    return _cut(pile, dict.fromkeys(range(len(pile.names)), int(value)), rng)


def _cut(pile: Pile, sizes: Mapping[int, int], rng: np.random.Generator) -> Pile:
    """At most so many images of these classes, drawn."""
    keep = np.ones(len(pile.classes), dtype=bool)
    for c, size in sizes.items():
        keep[rng.permutation(np.flatnonzero(pile.classes == c))[size:]] = False
    return pile.kept(keep)


def _mixed(pile: Pile, value: str, rng: np.random.Generator) -> Pile:
    known = np.flatnonzero(pile.shown)
    shown = pile.shown.copy()
    shown[rng.permutation(known)[: round(float(value) * len(known))]] = False
    return replace(pile, shown=shown)


def _unlabelled(pile: Pile, value: str, rng: np.random.Generator) -> Pile:
    return replace(pile, n_known=0, shown=np.zeros_like(pile.shown), test=None)


def _exchanged(pile: Pile, value: str, rng: np.random.Generator) -> Pile:
    return pile.with_known(np.array(pile.new), np.arange(pile.n_known))


STEPS: Mapping[str, Callable[[Pile, str, np.random.Generator], Pile]] = {
    "hide": lambda pile, value, rng: hidden(pile, value, 0, rng),
    "sizes": _sizes,
    "uneven": _uneven,
    "each": _each,
    "mixed": _mixed,
    "unlabelled": _unlabelled,
    "exchanged": _exchanged,
}


# ---- the studies

Fields = Mapping[str, Any]
"""Fields of a recipe by name, and what they are set to."""


@dataclass(frozen=True)
class Study:
    """What a claim of the evidence rests on, to be measured again by name.

    Attributes:
        tasks: each in words.
        recipe: name and preset, joined by a colon.
        rows: name -> fields that the row sets.
    """

    tasks: tuple[str, ...]
    recipe: str
    rows: Mapping[str, Fields] = field(default_factory=lambda: {"": {}})


STUDIES: Mapping[str, Study] = {
    "demo": Study(("digits",), "digits:paper"),
    "mixed": Study(("digits", "digits mixed=0.3"), "digits:fast"),
    "best": Study(("cifar10", "cifar100"), "best:fast"),
    "frozen": Study(("cifar10", "cifar100", "cifar100 mixed=0.5"), "folder:paper", {"": {"method": "features"}}),
    "scratch": Study(("example exchanged",), "folder:paper", {"": {"method": "scratch", "pile": "new"}}),
    "neighbours": Study(("cifar10-all",), "cluster-neighbours:paper", {"": {}, "kmeans": {"method": "kmeans"}}),
    "characters": Study(tuple(f"omniglot:{name}" for name in EVALUATION_ALPHABETS), "characters:paper"),
    "sizes": Study(
        ("digits hide=0,1,2", "digits hide=0,1,2 uneven=10"), "digits:fast",
        {"": {}, "balanced": {"joint.regroups": 0}},
    ),
}  # fmt: skip
"""By name; what the paper compares is measured by ``autonovel reproduce``."""
