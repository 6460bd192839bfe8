"""The parts of an input as an ImageSet: checked, decoded once, and everything unusable accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from autonovel.base.errors import InputError
from autonovel.data.images import NO_SOURCE, UNKNOWN, ImageSet, Pixels, as_uint8
from autonovel.data.reading.decode import Form
from autonovel.data.reading.fill import Request, as_problems, read_pixels
from autonovel.data.reading.parts import Part
from autonovel.data.reading.problems import Problem, refuse_if_too_many, summary
from autonovel.data.reading.survey import Survey, choose_form, nothing_usable, order_of_classes


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


def load_parts(
    parts: Sequence[Part], request: Request, survey: Callable[[], Survey], *, supervised: bool, least: int
) -> Loaded:
    """The usable images of all parts.

    Args:
        parts: the labelled one first.
        request: how the images are wanted.
        survey: gives a look at the parts; called only where the request leaves something to the images.
        supervised: whether there must be known classes.
        least: how many unlabelled images there must be.

    Raises:
        InputError: nothing usable is left, too much is unusable, or the classes make no sense.
    """
    notes = [note for part in parts for note in part.notes]
    problems = [problem for part in parts for problem in part.problems]
    ids = [name for part in parts for name in part.ids]
    labels = [label for part in parts for label in part.labels]
    sources = [source for part in parts for source in part.sources or (NO_SOURCE,) * len(part)]
    some_labelled = labels.count(None) < len(labels)
    images = _as_given(parts, request)
    if images is None:
        if not ids:
            raise nothing_usable(parts, problems)
        images, index, note = read_pixels(parts, request, lambda: _form(request, survey))
        problems += as_problems(index, ids)
        notes += [note] if note else []
        kept = index.kept.tolist()
        marks = index.fingerprints.tolist()
        sources = [
            s._replace(digest=f"{mark:014x}") if s.absolute else s for s, mark in zip(sources, marks, strict=True)
        ]
        ids, labels, sources = list(compress(ids, kept)), list(compress(labels, kept)), list(compress(sources, kept))
    if not ids:
        raise nothing_usable(parts, problems)
    refuse_if_too_many(problems, len(ids))
    if supervised:
        none_there = not len(parts[0]) and parts[0].problems
        if labels.count(None) == len(labels) and (some_labelled or none_there):  # every one was left out
            raise nothing_usable(parts[:1], parts[0].problems)
        notes += _check_classes(labels, parts[0].origin)
    _check_unlabelled(labels.count(None), least, problems, parts[-1].origin)
    notes += remarks(problems, labels.count(None))
    names = parts[0].class_names or order_of_classes(label for label in labels if label is not None)
    number = {name: position for position, name in enumerate(names)}
    compact = np.array([UNKNOWN if label is None else number[label] for label in labels], dtype=np.int64)
    from_files = any(part.sources for part in parts)
    whole = ImageSet(images, compact, tuple(distinct(ids)), tuple(names), tuple(sources) if from_files else ())
    return Loaded(whole, problems, notes)


def _form(request: Request, survey: Callable[[], Survey]) -> tuple[Form, str]:
    if request.size is not None and request.channels is not None:
        return Form(request.size, request.channels), ""
    return choose_form(survey(), request.size, request.channels)


def _as_given(parts: Sequence[Part], request: Request) -> Pixels | None:
    """The images as one array without decoding anything, where all parts are arrays that have the wanted form."""
    if any(not isinstance(part.array, np.ndarray) for part in parts):
        return None
    arrays = [as_uint8(part.array) for part in parts]
    shape = arrays[0].shape[1:]
    if any(array.shape[1:] != shape for array in arrays) or request.channels not in (None, shape[2]):
        return None
    if request.size is not None and shape[:2] != (request.size, request.size):
        return None
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _check_classes(labels: Sequence[str | None], where: str) -> list[str]:
    """Refuse known classes from which nothing can be learnt; returns what else there is to say of them."""
    counts = Counter(label for label in labels if label is not None)
    n_labelled = sum(counts.values())
    if not counts:
        raise InputError(f"No image in {where} has a class; give labelled images of at least two known classes.")
    if len(counts) == 1:
        only = repr(next(iter(counts)))
        raise InputError(f"All labelled images in {where} are of one class, {only}; at least two classes are needed.")
    if n_labelled <= len(counts):
        raise InputError(
            f"Each of the {n_labelled} labelled images in {where} has a class of its own; check which column or "
            "folder level names the classes."
        )
    single = [name for name in order_of_classes(counts) if counts[name] == 1]
    if not single:
        return []
    shown = ", ".join(repr(name) for name in single[:5]) + (", ..." if len(single) > 5 else "")
    return [f"{len(single)} of the known classes {'has' if len(single) == 1 else 'have'} a single image: {shown}."]


def _check_unlabelled(count: int, least: int, problems: Sequence[Problem], where: str) -> None:
    """Refuse a set with too few unlabelled images, and say if copies of labelled ones are all there is."""
    if count >= least:
        return
    copies = sum(problem.copy for problem in problems)
    too_few = "no unlabelled image" if count == 0 else "only one unlabelled image"
    besides = f" besides {copies:,} cop{'y' if copies == 1 else 'ies'} of labelled ones" if copies else ""
    raise InputError(
        f"There is {too_few} in {where}{besides}, so there is nothing to discover; give the images to be sorted as the "
        "unlabelled images."
    )


def remarks(problems: Sequence[Problem], n_unlabelled: int) -> list[str]:
    """Sentences that count what was left out and what was merely noticed."""
    copies = sum(problem.copy for problem in problems)
    left_out = [problem for problem in problems if problem.left_out and not problem.copy]
    noticed = [problem for problem in problems if not problem.left_out]
    notes = []
    if copies:
        notes.append(
            f"{copies:,} of {n_unlabelled + copies:,} unlabelled images left out as copies of labelled ones, whose "
            "classes are known."
        )
    if left_out:
        notes.append(f"{len(left_out):,} file{'s'[: len(left_out) > 1]} left out: {summary(left_out)}.")
    if noticed:
        same = "image is a copy of another one" if len(noticed) == 1 else "images are copies of other ones"
        notes.append(f"{len(noticed):,} {same}; copies are used too, so they weigh more.")
    return notes


def distinct(ids: Sequence[str]) -> list[str]:
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
