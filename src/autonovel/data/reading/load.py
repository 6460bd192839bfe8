"""Anyone's images as an ImageSet: listed, checked, decoded once, and everything unusable accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autonovel.data.images import UNKNOWN, ImageSet, as_uint8
from autonovel.data.reading.decode import Pixels
from autonovel.data.reading.decoded import decode_sides
from autonovel.data.reading.inputs import open_sides
from autonovel.data.reading.pictures import Side
from autonovel.data.reading.problems import Problem, refuse_if_too_many, summary
from autonovel.data.reading.survey import nothing_usable, order_of_classes
from autonovel.data.reading.workers import Progress
from autonovel.errors import InputError


@dataclass(frozen=True)
class Loaded:
    """Images ready for the method.

    Attributes:
        images: the usable images with the labels that are known.
        problems: what is wrong with single files, those left out and those merely remarked on.
        notes: sentences that the user should see.
    """

    images: ImageSet
    problems: list[Problem]
    notes: list[str]


def load_images(
    labelled: Any,
    unlabelled: Any = None,
    *,
    size: int | None = None,
    channels: int | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Images from anywhere, checked and decoded.

    Each side may be a folder (labelled: one sub-folder per class), a CSV or Parquet table (columns path and label),
    a list of files, an array of images or (images, labels), an ImageSet, a Hugging Face dataset or a torch Dataset
    of (image, label). One pile with some labels is given as ``labelled`` alone; images without any labels as
    ``load_images(None, images)``.

    Args:
        labelled: images of the known classes.
        unlabelled: images whose classes are to be discovered.
        size: side of the square that images are brought to; from the data when left out.
        channels: 1 for grey, 3 for colour; from the data when left out (grey only when every image is grey).
        cache: folder for the decoded images, used again while the source files stay the same. Without it they lie
            in a temporary file that goes with the process.
        workers: decoding processes; one per core when left out.
        progress: called with (done, total) while decoding.

    Raises:
        InputError: nothing usable is left, too much is unusable, or the classes make no sense.
    """
    sides = open_sides(labelled, unlabelled)
    images = _as_given(sides, size, channels)
    notes = [note for side in sides for note in side.notes]
    problems = [problem for side in sides for problem in side.problems]
    ids = [name for side in sides for name in side.ids]
    labels = [label for side in sides for label in side.labels]
    if images is None:
        if not ids:
            raise nothing_usable(sides, problems)
        images, index, note = decode_sides(sides, size, channels, cache, workers, progress)
        problems += [Problem(ids[p], reason, left_out, counts) for p, reason, left_out, counts in index.remarks]
        notes += [note] if note else []
        ids = [ids[position] for position in np.flatnonzero(index.kept)]
        labels = [labels[position] for position in np.flatnonzero(index.kept)]
    if not ids:
        raise nothing_usable(sides, problems)
    refuse_if_too_many(problems, len(ids))
    unsupervised = labelled is None or (isinstance(labelled, ImageSet) and not labelled.n_known)
    notes += _check_classes(labels, sides, unsupervised=unsupervised)
    notes += _remarks(problems)
    names = sides[0].class_names or order_of_classes(label for label in labels if label is not None)
    number = {name: position for position, name in enumerate(names)}
    compact = np.array([UNKNOWN if label is None else number[label] for label in labels], dtype=np.int64)
    return Loaded(ImageSet(images, compact, tuple(_distinct(ids)), tuple(names)), problems, notes)


def _as_given(sides: Sequence[Side], size: int | None, channels: int | None) -> Pixels | None:
    """The images as one array without decoding anything, where all sides are arrays of one shape that may stay."""
    if any(not isinstance(side.array, np.ndarray) for side in sides):
        return None
    arrays = [as_uint8(side.array) for side in sides]
    shape = arrays[0].shape[1:]
    if any(array.shape[1:] != shape for array in arrays) or channels not in (None, shape[2]):
        return None
    if size is not None and shape[:2] != (size, size):
        return None
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _check_classes(labels: Sequence[str | None], sides: Sequence[Side], *, unsupervised: bool) -> list[str]:
    """Refuse sets from which nothing can be learnt or discovered; returns what else there is to say of the classes."""
    counts = Counter(label for label in labels if label is not None)
    n_labelled, n_unlabelled = sum(counts.values()), len(labels) - sum(counts.values())
    if not unsupervised:
        where = sides[0].origin
        if not counts:
            raise InputError(f"No image in {where} has a class; give labelled images of at least two known classes.")
        if len(counts) == 1:
            only = repr(next(iter(counts)))
            raise InputError(
                f"All labelled images in {where} are of one class, {only}; at least two classes are needed."
            )
        if n_labelled <= len(counts):
            raise InputError(
                f"Each of the {n_labelled} labelled images in {where} has a class of its own; check which column or "
                "folder level names the classes."
            )
    if n_unlabelled < 2:
        found = "no unlabelled image" if n_unlabelled == 0 else "only one unlabelled image"
        raise InputError(f"There is {found} in {sides[-1].origin}, so there is nothing to discover.")
    single = [name for name in order_of_classes(counts) if counts[name] == 1]
    if not single:
        return []
    shown = ", ".join(repr(name) for name in single[:5]) + (", ..." if len(single) > 5 else "")
    return [f"{len(single)} of the known classes {'has' if len(single) == 1 else 'have'} a single image: {shown}."]


def _remarks(problems: Sequence[Problem]) -> list[str]:
    """Sentences that count what was left out and what was merely noticed."""
    left_out = [problem for problem in problems if problem.left_out]
    noticed = [problem for problem in problems if not problem.left_out]
    notes = [f"{len(left_out):,} files left out: {summary(left_out)}."] if left_out else []
    return notes + ([f"{len(noticed):,} images used but remarkable: {summary(noticed)}."] if noticed else [])


def _distinct(ids: Sequence[str]) -> list[str]:
    """The ids, with a number added to those that occur again."""
    if len(set(ids)) == len(ids):
        return list(ids)
    taken = set(ids)
    seen: set[str] = set()
    result = []
    for name in ids:
        number, candidate = 2, name
        while candidate in seen or (candidate != name and candidate in taken):
            candidate, number = f"{name} ({number})", number + 1
        seen.add(candidate)
        result.append(candidate)
    return result
