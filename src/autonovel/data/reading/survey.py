"""A look at the images before anything is decoded: how many, which classes, what size, colour or grey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autonovel.data.reading.decode import Form, Header, UnusableImageError
from autonovel.data.reading.inputs import open_sides
from autonovel.data.reading.pictures import Side
from autonovel.data.reading.problems import Problem
from autonovel.errors import InputError

SIZES = (16, 32, 64, 96, 128, 224)
"""Sides of the square that images are brought to when they have different sizes."""

_SAMPLE = 512


@dataclass(frozen=True)
class Survey:
    """What the images look like.

    Attributes:
        n_labelled: images with a known class.
        n_unlabelled: images without.
        classes: number of images of each known class, by name.
        side: median of the shorter side, in pixels.
        smallest: the smallest shorter side seen.
        largest: the largest longer side seen.
        one_size: whether all images seen have the same width and height.
        grey: whether every image is grey.
        problems: files that are known to be unusable so far; only a sample was opened.
        size: the square size that suits the images.
        notes: sentences the user should see.
    """

    n_labelled: int
    n_unlabelled: int
    classes: dict[str, int]
    side: int
    smallest: int
    largest: int
    one_size: bool
    grey: bool
    problems: tuple[Problem, ...]
    size: int
    notes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """1 when every image is grey, otherwise 3."""
        return 1 if self.grey else 3


def survey(labelled: Any, unlabelled: Any = None) -> Survey:
    """Look at the images of both sides: every file's size and date, and the headers of a sample."""
    return look(open_sides(labelled, unlabelled))


def look(sides: Sequence[Side]) -> Survey:
    """A survey of sides that are listed already."""
    labels = [label for side in sides for label in side.labels]
    problems = [problem for side in sides for problem in side.problems]
    headers: list[Header] = []
    for side in sides:
        for position in _sample(len(side.ids)):
            try:
                headers.append(side.pictures.header(position))
            except UnusableImageError as unusable:
                problems.append(Problem(side.ids[position], str(unusable)))
    if not headers:
        raise nothing_usable(sides, problems)
    shorter = [min(header.width, header.height) for header in headers]
    one_size = len({(header.width, header.height) for header in headers}) == 1
    median = int(np.median(shorter))
    classes = Counter(label for label in labels if label is not None)
    return Survey(
        n_labelled=sum(classes.values()),
        n_unlabelled=len(labels) - sum(classes.values()),
        classes={name: classes[name] for name in order_of_classes(classes)},
        side=median,
        smallest=min(shorter),
        largest=max(max(header.width, header.height) for header in headers),
        one_size=one_size,
        grey=all(header.grey for header in headers) and _all_grey(sides),
        problems=tuple(problems),
        size=suitable_size(median, keep=one_size and headers[0].width == headers[0].height),
        notes=tuple(note for side in sides for note in side.notes),
    )


def choose_form(sides: Sequence[Side], size: int | None, channels: int | None) -> tuple[Form, str]:
    """Size and channels for all images, as asked for or as suits them, and a sentence about what was chosen."""
    if size is not None and not 4 <= size <= 1024:
        raise InputError(f"Images cannot be brought to {size} pixels; choose a size from 4 to 1024.")
    if channels not in (None, 1, 3):
        raise InputError(f"Images have 1 channel (grey) or 3 (colour), not {channels}.")
    if size is not None and channels is not None:
        return Form(size, channels), ""
    seen = look(sides)
    form = Form(size or seen.size, channels or seen.channels)
    colour = "grey" if form.channels == 1 else "colour"
    kept = seen.one_size and form.size == seen.side == seen.largest
    how = "kept at" if kept else f"with shorter sides around {seen.side} pixels, brought to"
    return form, f"Images {how} {form.size} x {form.size}, {colour}."


def suitable_size(side: int, *, keep: bool) -> int:
    """The square size for images with this shorter side: kept where all have it, otherwise the nearest usual one.

    >>> suitable_size(28, keep=True), suitable_size(28, keep=False), suitable_size(375, keep=False)
    (28, 32, 224)
    """
    if keep and side <= SIZES[-1]:
        return side
    return min(SIZES, key=lambda usual: abs(np.log(usual / side)))


def order_of_classes(names: Iterable[str]) -> list[str]:
    """Class names in the order of their labels: by number when all are whole numbers, otherwise by the alphabet.

    >>> order_of_classes(["10", "9"]), order_of_classes(["dog", "Cat"])
    (['9', '10'], ['Cat', 'dog'])
    """
    distinct = sorted(set(names))
    return sorted(distinct, key=int) if all(_is_whole(name) for name in distinct) else distinct


def nothing_usable(sides: Sequence[Side], problems: Sequence[Problem]) -> InputError:
    """The error for a set without a single usable image."""
    from autonovel.data.reading.problems import summary

    where = " and ".join(side.origin for side in sides)
    found = f" ({summary(problems)})" if problems else ""
    return InputError(f"There are no usable images in {where}{found}.")


def _is_whole(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdecimal() and len(name) < 19


def _sample(n: int) -> list[int]:
    return sorted({int(position) for position in np.linspace(0, n - 1, min(n, _SAMPLE))}) if n else []


def _all_grey(sides: Sequence[Side]) -> bool:
    """Whether every image is grey; called when a sample was, since one coloured image decides it."""
    for side in sides:
        for position in range(len(side.ids)):
            try:
                if not side.pictures.header(position).grey:
                    return False
            except UnusableImageError:
                continue
    return True
