"""A look at the images before any is decoded: how many, which classes, what size, colour or grey."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autonovel.base.errors import InputError
from autonovel.data.reading.decode import Form, Header, UnusableImageError
from autonovel.data.reading.parts import Part
from autonovel.data.reading.problems import Problem, summary

LOOKED_AT = 64
"""Pixels that a person wants to see of an image, however little a small network makes do with; thumbnails have as many."""

SIZES = (16, 32, 64, 96, 128, 224)
"""Sides of the square that images are brought to when they have different sizes."""

_SAMPLE = 512


@dataclass(frozen=True)
class Survey:
    """What the images look like, as far as the headers of a sample tell.

    Attributes:
        n_labelled: images with a known class.
        n_unlabelled: images without.
        classes: number of images of each known class, by name.
        side: median of the shorter side, in pixels.
        smallest: the smallest shorter side seen.
        largest: the largest longer side seen.
        one_size: whether all images seen have the same width and height.
        problems: files found to be unusable so far.
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
    problems: tuple[Problem, ...]
    size: int
    notes: tuple[str, ...]
    _ask_grey: Callable[[], bool] = field(repr=False, compare=False)

    @cached_property
    def grey(self) -> bool:
        """Whether every image is grey. One coloured image decides it, so a grey sample makes this look at all others."""
        return self._ask_grey()

    def kept_size(self, asked: int, used: int) -> int:
        """Pixels that images are decoded to: as asked for, else what the network uses, and more where people look at them.

        Smaller images are enlarged where they are needed so, not in the cache.

        Args:
            asked: by a person; 0 leaves it to the images.
            used: what the network uses; 0 takes images as they are.
        """
        return asked or min(self.size, max(LOOKED_AT, used or self.size))

    @property
    def channels(self) -> int:
        """1 when every image is grey, otherwise 3."""
        return 1 if self.grey else 3


def look_at(parts: Sequence[Part]) -> Survey:
    """A survey of these parts; no header is read twice, not even when it is asked later whether all are grey."""
    labels = [label for part in parts for label in part.labels]
    problems = [problem for part in parts for problem in part.problems]
    headers: list[Header] = []
    for part in parts:
        for position in _sample(len(part)):
            try:
                headers.append(part.reader.header(position))
            except UnusableImageError as unusable:
                problems.append(Problem(part.ids[position], str(unusable)))
    if not headers:
        raise nothing_usable(parts, problems)
    shorter = [min(header.width, header.height) for header in headers]
    one_size = len({(header.width, header.height) for header in headers}) == 1
    median = int(np.median(shorter))
    grey_sample = all(header.grey for header in headers)
    classes = Counter(label for label in labels if label is not None)
    return Survey(
        n_labelled=sum(classes.values()),
        n_unlabelled=len(labels) - sum(classes.values()),
        classes={name: classes[name] for name in order_of_classes(classes)},
        side=median,
        smallest=min(shorter),
        largest=max(max(header.width, header.height) for header in headers),
        one_size=one_size,
        problems=tuple(problems),
        size=suitable_size(median, keep=one_size and headers[0].width == headers[0].height),
        notes=tuple(note for part in parts for note in part.notes),
        _ask_grey=lambda: grey_sample and _others_are_grey(parts),
    )


def choose_form(survey: Survey, size: int | None, channels: int | None) -> tuple[Form, str]:
    """Size and channels for all images, as asked for or as suits them, and a sentence about what was chosen."""
    form = Form(size or survey.size, channels or survey.channels)
    colour = "grey" if form.channels == 1 else "colour"
    kept = survey.one_size and form.size == survey.side == survey.largest
    how = "kept at" if kept else f"with shorter sides around {survey.side} pixels, brought to"
    return form, f"Images {how} {form.size} x {form.size}, {colour}."


def suitable_size(side: int, *, keep: bool) -> int:
    """The square size for images with this shorter side: the same where ``keep`` asks for it, else the nearest usual one.

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


def nothing_usable(parts: Sequence[Part], problems: Sequence[Problem]) -> InputError:
    """The error for an input without a single usable image."""
    where = " and ".join(part.origin for part in parts)
    reasons = f" ({summary(problems)})" if problems else ""
    return InputError(
        f"There are no usable images in {where}{reasons}; give images that can be opened, JPEG or PNG for example."
    )


def _is_whole(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdecimal() and len(name) < 19


def _sample(n: int) -> list[int]:
    return sorted({int(position) for position in np.linspace(0, n - 1, min(n, _SAMPLE))}) if n else []


def _others_are_grey(parts: Sequence[Part]) -> bool:
    """Whether every image outside the sample is grey."""
    for part in parts:
        seen = set(_sample(len(part)))
        for position in range(len(part)):
            try:
                if position not in seen and not part.reader.header(position).grey:
                    return False
            except UnusableImageError:
                continue
    return True
