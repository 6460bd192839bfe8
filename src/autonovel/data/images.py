"""Images in memory: the one form in which every source reaches the method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError

Pixels = npt.NDArray[np.uint8]
"""Images as an array: (n, height, width, channels), or one image without the first axis."""

UNKNOWN = -1
"""The label of an unlabelled image."""


class Source(NamedTuple):
    """The file that an image came from; all is empty for an image that came from no file.

    Paths are text that every file and terminal takes: bytes of a name that are not UTF-8 appear as escapes like ``\\xff``.

    Attributes:
        absolute: the path of the file from the root of the file system.
        relative: its path below the folder that the user gave (for a table, below the folder of the table), or as it
            stood in a list of files.
        digest: tells whether the file has changed since it was read; empty where nobody knows.
    """

    absolute: str
    relative: str
    digest: str = ""


NO_SOURCE = Source("", "")


@dataclass(frozen=True)
class ImageSet:
    """Images with the labels that the method may see.

    An unlabelled image has the label ``-1``, and nothing in here says what it really shows: the true labels of
    unlabelled images are kept apart (:class:`Truth`) and reach nothing but scoring.

    Attributes:
        images: uint8, shape (n, height, width, channels) with 1 or 3 channels; an array or a memory map.
        labels: int64, shape (n,): 0 .. n_known - 1, or -1 where unlabelled.
        ids: one name per image, unique; file paths for images that come from files.
        class_names: the names of the known classes, in the order of their labels.
        sources: the file that each image came from; empty where none of them came from a file.
    """

    images: Pixels
    labels: npt.NDArray[np.int64]
    ids: tuple[str, ...]
    class_names: tuple[str, ...]
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3):
            raise InputError(
                f"Images must be uint8 with shape (n, height, width, 1 or 3); these are {self.images.dtype} {shape}."
            )
        if not shape[0] == len(self.labels) == len(self.ids):
            raise InputError(
                f"There are {shape[0]} images, {len(self.labels)} labels and {len(self.ids)} ids; "
                "give one label and one id per image."
            )
        if self.sources and len(self.sources) != shape[0]:
            raise InputError(
                f"There are {shape[0]} images and {len(self.sources)} sources; give one source per image, or none."
            )
        if len(self.labels) and (self.labels.min() < UNKNOWN or self.labels.max() >= len(self.class_names)):
            raise InputError(
                f"Labels run from {self.labels.min()} to {self.labels.max()}, but {len(self.class_names)} classes are "
                "named (use -1 for an unlabelled image)."
            )
        if twice := _first_repeated(self.class_names):
            raise InputError(f"Two known classes are called {twice!r}; give each a name of its own.")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_known(self) -> int:
        """How many classes are known."""
        return len(self.class_names)

    @property
    def is_labelled(self) -> npt.NDArray[np.bool_]:
        """Which images are labelled."""
        return np.asarray(self.labels != UNKNOWN)

    @property
    def families(self) -> npt.NDArray[np.int64] | None:
        """The family of every known class, where all their names have the form FAMILY/NAME and there are several families."""
        heads = [name.partition("/")[0] for name in self.class_names if "/" in name]
        if len(heads) < self.n_known or len(set(heads)) < 2:
            return None
        return np.unique(heads, return_inverse=True)[1].astype(np.int64)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return int(self.images.shape[3])

    @classmethod
    def from_arrays(
        cls,
        images: npt.ArrayLike,
        labels: npt.ArrayLike | None = None,
        *,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> ImageSet:
        """Images and labels as arrays.

        Args:
            images: (n, h, w) or (n, h, w, 1 or 3); uint8, boolean, or floating point in [0, 1] or [0, 255].
            labels: any integers or strings; -1, an empty string, None or NaN where unlabelled. All unlabelled when left out.
            class_names: names for the sorted distinct labels; their text when left out.
            ids: a name for each image; its position when left out.

        >>> ImageSet.from_arrays(np.zeros((3, 8, 8)), [7, -1, 9]).labels.tolist()
        [0, -1, 1]
        """
        pixels = as_uint8(np.asarray(images))
        n = len(pixels)
        given = np.full(n, UNKNOWN) if labels is None else np.asarray(labels)
        if given.shape != (n,):
            raise InputError(f"There are {n} images but labels of shape {given.shape}; give one label per image.")
        if given.dtype.kind in "fc":
            if not np.all(np.isfinite(given) & (given == np.round(given.real))):
                raise InputError("Labels must be integers or strings; these have fractions or are not finite.")
            given = given.astype(np.int64)
        elif given.dtype.kind not in "iubUSO":
            raise InputError(f"Labels must be integers or strings, not {given.dtype}.")
        if given.dtype.kind == "S":
            given = np.char.decode(given, "utf-8", "backslashreplace")
        known = says_a_class(given)
        values = given[known].astype(str) if given.dtype.kind in "OU" else given[known]
        distinct, index = np.unique(values, return_inverse=True)
        if class_names is not None and len(class_names) != len(distinct):
            raise InputError(
                f"The labels hold {len(distinct)} known classes but there are {len(class_names)} class names."
            )
        compact = np.full(n, UNKNOWN, dtype=np.int64)
        compact[known] = index
        names = tuple(str(name) for name in (distinct.tolist() if class_names is None else class_names))
        width = len(str(max(n - 1, 0)))
        called = tuple(f"{i:0{width}d}" for i in range(n)) if ids is None else tuple(map(str, ids))
        if twice := _first_repeated(called):
            raise InputError(f"Two images have the id {twice!r}; give each an id of its own.")
        return cls(pixels, compact, called, names)

    def subset(self, keep: npt.NDArray[Any]) -> ImageSet:
        """The images at these positions (or under this mask); the known classes stay as they are."""
        positions = np.flatnonzero(keep) if keep.dtype == bool else keep
        return replace(
            self,
            images=self.images[positions],
            labels=self.labels[positions],
            ids=tuple(self.ids[i] for i in positions.tolist()),
            sources=tuple(self.sources[i] for i in positions.tolist()) if self.sources else (),
        )


@dataclass(frozen=True)
class Truth:
    """What scoring may know and training must not: the true classes.

    Classes are numbered with the known ones first (the labels of the :class:`ImageSet`), the new ones after them.

    Attributes:
        labels: int64, shape (n,): the true class of every image of the training set, in its order.
        class_names: names of all classes, known and new.
        test_images: images that took no part in training (may be empty), in the form of ``ImageSet.images``.
        test_labels: their true classes.
    """

    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    test_images: Pixels | None = None
    test_labels: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for labels in (self.labels, self.test_labels):
            if labels is not None and len(labels) and not 0 <= labels.min() <= labels.max() < len(self.class_names):
                raise InputError(
                    f"True classes run from {labels.min()} to {labels.max()}, but {len(self.class_names)} classes are named; "
                    "give every image one."
                )
        shown, known = (0 if part is None else len(part) for part in (self.test_images, self.test_labels))
        if shown != known:
            raise InputError(f"There are {shown} test images and {known} test labels; give one label per image.")


def says_a_class(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of these labels (n,) name a class; -1, an empty text, None and NaN stand for no label.

    >>> says_a_class(np.array(["cat", "", None, float("nan"), -1], dtype=object)).tolist()
    [True, False, False, False, False]
    """
    nothing = (UNKNOWN, str(UNKNOWN), "", None, str(UNKNOWN).encode(), b"")
    return np.array([label == label and label not in nothing for label in labels.tolist()], dtype=bool)


def _first_repeated(names: Sequence[str]) -> str | None:
    """The first name that occurs a second time; None where each occurs once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def as_uint8(images: npt.NDArray[Any]) -> Pixels:
    """An array of images as people usually have it, as uint8 (n, h, w, channels)."""
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(
            f"Images must have shape (n, height, width) or (n, height, width, 1 or 3); these have {images.shape}."
        )
    if min(images.shape[1:3]) < 1:
        raise InputError(f"Images must have at least one pixel; these have shape {images.shape}.")
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind not in "buif":
        raise InputError(f"Pixel values must be numbers, not {images.dtype}.")
    if images.size and not (np.isfinite(images).all() and images.min() >= 0 and images.max() <= 255):
        raise InputError("Pixel values must be finite and lie in [0, 1] or [0, 255].")
    scale = 255.0 if images.dtype.kind in "bf" and (not images.size or images.max() <= 1) else 1.0
    return np.asarray(np.rint(images * scale), dtype=np.uint8)
