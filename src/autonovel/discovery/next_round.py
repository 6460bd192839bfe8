"""The next round: a run that a person has named and corrected becomes the input of another one. Imports no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.data.images import UNKNOWN, ImageSet, Source
from autonovel.data.reading.inputs import Input, open_input
from autonovel.data.reading.problems import as_path
from autonovel.runs.folder import Run
from autonovel.runs.state import standing
from autonovel.settings.resolve import Asked

MOST_LISTED = 8
"""The most classes that the sentence about what was taken lists; of more, it lists the first ones."""


@dataclass(frozen=True)
class NextRound:
    """What the next round starts from.

    Attributes:
        given: its images: read already, or opened and listed.
        sentence: what was taken from the run, for the person who edited it.
    """

    given: ImageSet | Input
    sentence: str


def next_round(run: Run, more: Any = None, *, images: Any = None) -> NextRound:
    """The images of a run with what a person said about them, and further ones to sort.

    Labelled images keep their class. Clusters that were named, merged or marked as a known class are known classes now, and
    images that were moved by hand into one of these, or into a known class, are labelled with it. Clusters marked "not a
    class" are left out, also where their files are among the further images. All other images are to be sorted again.

    Args:
        run: a finished run with edits.
        more: further images without labels, in any form that :func:`~autonovel.data.reading.inputs.open_input` takes.
        images: the images of the run again, as an ImageSet or array in the run's order, where they came from no files.

    Raises:
        InputError: there is nothing to continue from, or the images cannot be found again.
    """
    taken = _take(run)
    _check(run, taken, more)
    gone = {run.images[i].source for i in np.flatnonzero(~taken.keep).tolist()} - {""}
    if isinstance(more, ImageSet) and more.sources:
        there = gone | {record.source for record in run.images} - {""}
        more = more.subset(np.array([source.absolute not in there for source in more.sources], dtype=bool))
    if images is None:
        given: ImageSet | Input = _files(run, taken, more, gone)
    else:
        again = _again(run, taken, images)
        given = again if more is None else open_input(again, more, without=gone)
    further = 0 if more is None or isinstance(given, ImageSet) else len(given.parts[-1])
    return NextRound(given, taken.sentence(further))


def what_was_taken(run: Run) -> Taken:
    """What a person said of a run that keeps features in the place of images."""
    taken = _take(run)
    _check(run, taken, None)
    return taken


def asked_again(run: Run, preset: str | None = None) -> Asked:
    """What was asked for in a run, in another preset where one is given; the data decide the rest again."""
    asked = Asked(**run.config.get("asked", {}))  # a run of features was asked for nothing else
    asked = asked.with_values({"pile": run.config["run"]["recipe"]["pile"]} | dict(asked.values))
    return asked if preset is None else asked.in_preset(preset)


def refuse_to_fetch(asked: Asked) -> None:
    """Refuse what was asked for in a run if its network would have to be fetched: the run may be a stranger's."""
    model = asked.get().model
    if ":" in model.backbone:
        from autonovel.models.backbones import build_backbone

        build_backbone(model, channels=3, size=model.size or 224, fetch=False)


@dataclass(frozen=True)
class Taken:
    """What a person said about the images of a run.

    Attributes:
        labels: the class of every image of the run, in its order; None where it is to be sorted again.
        keep: which images stay.
        class_names: the classes known before, then those that a person made known, as far as there are images of them.
        promoted: for every cluster that is a known class now, the name and its number of images.
        moved: how many of the labels come from images that were moved by hand.
        dropped: how many clusters are not a class.
    """

    labels: list[str | None]
    keep: npt.NDArray[np.bool_]
    class_names: tuple[str, ...]
    promoted: tuple[tuple[str, int], ...]
    moved: int
    dropped: int

    @property
    def kept_labels(self) -> list[str | None]:
        """The labels of the images that stay."""
        return [label for label, keep in zip(self.labels, self.keep.tolist(), strict=True) if keep]

    def sentence(self, further: int) -> str:
        """What was taken, and how many further images there are."""
        parts = []
        if self.promoted:
            shown = ", ".join(f"{name} {count:,}" for name, count in self.promoted[:MOST_LISTED])
            shown += ", ..." if len(self.promoted) > MOST_LISTED else ""
            one = len(self.promoted) == 1
            are = "cluster is a known class" if one else "clusters are known classes"
            parts.append(f"{len(self.promoted)} {are} now ({shown})")
        if self.moved:
            parts.append(f"{_images(self.moved, 'was', 'were')} moved by hand")
        if self.dropped:
            clusters = "1 cluster that is" if self.dropped == 1 else f"{self.dropped} clusters that are"
            parts.append(f"{_images(int((~self.keep).sum()))} left out ({clusters} not a class)")
        parts.append(f"{_images(self.kept_labels.count(None))} to be sorted again")
        text = ", ".join(parts)
        return f"{text}, with {further:,} further {'one' if further == 1 else 'ones'}" if further else text


def _images(count: int, one: str = "is", several: str = "are") -> str:
    return f"1 image {one}" if count == 1 else f"{count:,} images {several}"


def _take(run: Run) -> Taken:
    state, rows = run.state, run.unlabelled
    labels = [record.label for record in run.images]
    keep = np.ones(len(labels), dtype=bool)
    merged, promoted, named, dropped = _merged(run), list[tuple[str, int]](), list[str](), 0
    for cluster in state.clusters:
        members, is_cluster = cluster.members, cluster.number >= 0
        if cluster.kind == "not a class":
            keep[rows[members]] = False
            dropped += 1
            continue
        if not is_cluster:  # the machine's own answer is no label; what a person put there is
            members = members[state.moved[members]]
        elif cluster.kind == "new" and cluster.number not in state.names and cluster.number not in merged:
            continue
        for row in rows[members].tolist():
            labels[row] = cluster.name
        if is_cluster and len(members):
            promoted.append((cluster.name, len(members)))
            named.append(cluster.name)
    there = {label for label, kept in zip(labels, keep.tolist(), strict=True) if kept}
    names = tuple(name for name in dict.fromkeys((*state.known, *named)) if name in there)
    moved = sum(labels[row] is not None and bool(keep[row]) for row in rows[state.moved].tolist())
    return Taken(labels, keep, names, _together(promoted), moved, dropped)


def _together(promoted: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Several clusters may be marked as one known class."""
    counts: Counter[str] = Counter()
    for name, count in promoted:
        counts[name] += count
    return tuple(counts.items())


def _merged(run: Run) -> set[int]:
    """The clusters that a person put together and left so."""
    edits, merged = run.edits, set[int]()
    for entry in (edits[number] for number in standing(edits)[0]):
        if entry["do"] == "merge":
            merged = (merged - set(entry["clusters"])) | {entry["into"]}
        elif entry["do"] in ("split", "dissolve"):
            merged.discard(entry["cluster"])
        elif entry["do"] == "regroup":  # which may give the numbers of others anew
            merged &= set(entry["kept"]) | (run.state.marks.keys() - set(entry["numbers"]))
    return merged


def _check(run: Run, taken: Taken, more: Any) -> None:
    if not (taken.promoted or taken.moved or taken.dropped):
        raise InputError(
            f"Nobody has named a cluster of {run.path} yet; name some first (autonovel browse, or autonovel name), so that "
            "the next round has more to go on."
        )
    if len(taken.class_names) < 2:
        known = f"only {taken.class_names[0]!r} is known" if taken.class_names else "no class is known"
        raise InputError(f"After the edits of {run.path} {known}; name clusters until there are at least two classes.")
    if more is None and None not in taken.kept_labels:
        raise InputError(f"Every image of {run.path} has a class now; give further images to discover classes in.")


def _files(run: Run, taken: Taken, more: Any, gone: set[str]) -> Input:
    """The images read again from their files."""
    kept = [record for record, keep in zip(run.images, taken.keep.tolist(), strict=True) if keep]
    if any(not record.source for record in kept):
        raise InputError(
            f"The images of {run.path} did not come from files, so they cannot be read again; give them once more, in the "
            "same order, as the first argument of autonovel.discover() in Python."
        )
    opened = open_input(([as_path(record.source) for record in kept], taken.kept_labels), more, without=gone)
    first, *others = opened.parts
    by_source = {record.source: record for record in kept}
    records = [by_source.get(source.absolute) for source in first.sources]
    ids = [own if record is None else record.image for own, record in zip(first.ids, records, strict=True)]
    sources = [
        own if record is None else own._replace(relative=record.path)
        for own, record in zip(first.sources, records, strict=True)
    ]
    names = tuple(name for name in dict.fromkeys(map(str.strip, taken.class_names)) if name in set(first.labels))
    origin = f"the run {run.path}"
    return Input(
        [replace(first, ids=ids, sources=tuple(sources), class_names=names, origin=origin), *others], supervised=True
    )


def _again(run: Run, taken: Taken, images: Any) -> ImageSet:
    """The images that the caller gave once more, with their labels."""
    from autonovel.discovery.resume import has_pixels_of

    if not isinstance(images, ImageSet) and not hasattr(images, "__array__"):
        raise InputError(
            f"The labelled images come from the run in {run.path}; give further images as the unlabelled ones, and as the "
            "first argument nothing, or the run's own images as an array or ImageSet."
        )
    again = images if isinstance(images, ImageSet) else ImageSet.from_arrays(np.asarray(images))
    if len(again) != len(run.images):
        raise InputError(
            f"The run in {run.path} had {len(run.images):,} images, but {len(again):,} are given; give the same ones, in "
            "the same order."
        )
    height, width, channels = run.config["run"]["data"]["shape"]
    if height == width and again.images.shape[1:] != (height, width, channels):  # the run had them resized
        again = open_input(None, again).load(size=height, channels=channels).images
    if not has_pixels_of(again, run):
        raise InputError(
            f"The images given are not those of the run in {run.path}; give the same ones, in the same order."
        )
    place = {name: number for number, name in enumerate(taken.class_names)}
    labels = np.array([UNKNOWN if label is None else place[label] for label in taken.labels], dtype=np.int64)
    sources = tuple(Source(record.source, record.path, record.digest) for record in run.images)
    whole = ImageSet(
        again.images,
        np.where(taken.keep, labels, UNKNOWN),
        tuple(record.image for record in run.images),
        taken.class_names,
        sources if any(source.absolute for source in sources) else (),
    )
    return whole if taken.keep.all() else whole.subset(taken.keep)
