"""Discovery on a pile that does not fit into memory: its features are read part by part, three times.

The first time for the sums that give the principal axes and for two samples; the second to put every row into those axes; the
third, of the axes alone, for classes that the samples miss and for the answers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.answers.census import Census, PileKind
from autonovel.answers.judge import write_judged
from autonovel.answers.sampled import (
    LABELLED,
    LOOKED_AT,
    SAMPLE,
    Learned,
    agreement,
    even_share,
    facts_of,
    learn,
    look,
    number_of,
    with_rare,
)
from autonovel.base.errors import InputError
from autonovel.data.reading.described import Described, Rows, Shard, is_described
from autonovel.data.reading.embedded import Embedded, read_embedded
from autonovel.discovery.finish import number_found, plain, write_estimate
from autonovel.discovery.next_round import what_was_taken
from autonovel.machine.progress import Reporter
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import Space, Sums, unit
from autonovel.runs import parts as run_parts
from autonovel.runs.answers import Answer, ImageRecord
from autonovel.runs.files import damaged
from autonovel.runs.folder import Run
from autonovel.runs.headline import how_sampled

LARGE = 100_000
"""Rows of a pile beyond which it is not looked at as a whole."""
MOST_LISTED = 1_000_000
"""Rows of a pile up to which there is a predictions.csv too."""
AXES = "axes.npz"
STAGE = "features"
"""What the answers are kept under."""

Floats = npt.NDArray[np.floating]


class Large(NamedTuple):
    """Features that stay where they are.

    Attributes:
        known: the labelled images.
        pile: the others.
        before: the axes that the features are in already, of the rounds before.
        taken: for rows of the pile that are not to be sorted, -2, or a class of ``known`` that a person has said; None where
            all are to be sorted.
    """

    known: Known
    pile: Described | Kept
    taken: npt.NDArray[np.int32] | None = None
    before: tuple[Space, ...] = ()

    @classmethod
    def next(cls, run: Run) -> tuple[Large, str]:
        """What a person left of a large run, in the axes that it keeps, and a sentence about what was taken from it."""
        said, pile = what_was_taken(run), Kept(run)
        features, n = run.labelled_features, len(run.labelled)
        assert features is not None
        place = {name: number for number, name in enumerate(said.class_names)}
        labels = np.array([-1 if label is None else place[label] for label in said.labels[n:]], dtype=np.int32)
        promoted, of = np.flatnonzero((labels >= 0) & said.keep[n:]), run.images
        records = [
            *(record._replace(label=said.labels[row]) for row, record in enumerate(run.labelled)),
            *(of[n + row]._replace(label=said.labels[n + row]) for row in promoted.tolist()),
        ]
        known = Known(
            np.concatenate([features, pile.features_of(promoted)]),
            np.array([place[str(record.label)] for record in records], dtype=np.int64),
            said.class_names,
            records,
        )
        taken = np.where((labels < 0) & said.keep[n:], -1, -2).astype(np.int32)
        return cls(known, pile, taken, axes_of(run)), said.sentence(0)

    @classmethod
    def of(cls, labelled: Any, pile: Described, *, together: bool = False) -> Large:
        """Labelled features in any form and a pile; ``together`` says that the labelled rows are some of the pile."""
        if together:
            known = known_of(pile, pile.width)
            taken = np.concatenate([[-1 if label is None else -2 for label in part.labels] for part in pile.parts()])
            return cls(known, pile, taken.astype(np.int32))
        if is_described(labelled):
            labelled = Described(labelled)
        elif labelled is not None and not isinstance(labelled, Embedded):
            labelled = read_embedded(labelled)
        known = known_of(labelled, pile.width)
        if known.features.shape[1] != pile.width:
            raise InputError(
                f"Labelled rows have {known.features.shape[1]} features and unlabelled ones {pile.width}; give the same."
            )
        return cls(known, pile)

    @property
    def about(self) -> dict[str, Any]:
        """What tells these features from others."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.known.features).tobytes(), digest_size=16)
        taken = None if self.taken is None else self.taken.tobytes()
        digest.update(repr([self.known.labels.tolist(), taken, [shard.digest for shard in self.pile.shards]]).encode())
        names, n = list(self.known.names), len(self.known.labels) + self.pile.n_rows
        about = {"images": n, "shape": [self.pile.width], "class_names": names, "features": True}
        if isinstance(self.pile, Described):
            about["made"] = asdict(self.pile.made)
        return about | {"fingerprint": digest.hexdigest()}


class Kept:
    """The images of a large run with the features that it keeps, in the place of a folder of described ones."""

    def __init__(self, run: Run) -> None:
        assert run.parts is not None
        self.folder, self._run, self.n_rows = run.path, run, len(run.parts)
        self._features = np.load(run.file("features.npy"), mmap_mode="r")
        self.width = self._features.shape[1]
        digests = run.checksums
        self.shards = [
            Shard(name, name, rows, min(digests.get(name, frozenset()), default="")) for name, rows in run.parts.files()
        ]

    def features_of(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Those of some rows."""
        return np.asarray(self._features[rows])

    def parts(self, shards: Sequence[Shard] | None = None) -> Iterator[Rows]:
        """The rows of these shards, or of all."""
        assert self._run.parts is not None
        first = 0
        for shard in self.shards:
            start, first = first, first + shard.rows
            if shards is not None and shard not in shards:
                continue
            for batch in self._run.parts.batches(("image", "source"), only=shard.file):
                images, sources = (np.array(column.to_pylist(), object) for column in batch.columns)
                nothing = np.full(len(images), None)
                yield Rows(images, sources, nothing, nothing, nothing, self._features[start : start + len(images)])
                start += len(images)


class Known(NamedTuple):
    """The labelled images: features (n, d), the class of each, the names of the classes, and where the images come from."""

    features: Floats
    labels: npt.NDArray[np.int64]
    names: tuple[str, ...]
    records: Sequence[ImageRecord]


def known_of(given: Described | Embedded | None, width: int) -> Known:
    """The rows that have a label."""
    if given is None:
        return Known(np.zeros((0, width), np.float16), np.zeros(0, np.int64), (), ())
    if isinstance(given, Embedded):
        names, rows = given.names, given.names.is_labelled
        records = [
            ImageRecord(image, "", image, names.class_names[label])
            for image, label in zip(names.ids, names.labels.tolist(), strict=True)
            if label >= 0
        ]
        return Known(given.features[rows], names.labels[rows], names.class_names, records)
    features, listed = [np.zeros((0, given.width), np.float16)], list[ImageRecord]()
    for part in given.parts():
        is_labelled = np.array([label is not None for label in part.labels], dtype=bool)
        features.append(part.features[is_labelled])
        columns = (part.images, part.sources, part.labels)
        for image, source, label in zip(*(column[is_labelled] for column in columns), strict=True):
            listed.append(run_parts.record(image, source)._replace(label=str(label)))
    classes, labels = np.unique(np.array([record.label for record in listed], dtype=str), return_inverse=True)
    return Known(np.concatenate(features), labels.astype(np.int64), tuple(classes.tolist()), listed)


class _Looked(NamedTuple):
    """What two samples of a pile show: the rows to sort, the axes of all of them, both samples in these, and the number."""

    rows: npt.NDArray[np.int64]
    axes: Space
    samples: Tensor
    first: Census
    second: Census
    estimate: ClassEstimate | None


def _looked(given: Large, n_new: int | None, kind: PileKind, seed: int, reporter: Reporter) -> _Looked:
    known, pile, taken, _ = given
    rows = np.arange(pile.n_rows) if taken is None else np.flatnonzero(taken == -1)
    if len(rows) < 2:
        raise InputError(f"There are {len(rows)} images to sort; give more.")
    drawn = np.random.default_rng(seed).choice(rows, min(len(rows), 2 * SAMPLE), replace=False)
    half = len(drawn) // 2
    reporter.message(f"reading the features of {pile.n_rows:,} images for their axes")
    sums, features = _summed(known, pile, drawn, reporter)
    axes = sums.axes()
    free = _placed(axes, features)
    taught = even_share(torch.from_numpy(known.labels), LABELLED, seed)
    old, labels = _placed(axes, known.features[taught.numpy()]), torch.from_numpy(known.labels)[taught]
    reporter.message(f"learning from two samples of {half:,} images")
    first = look(old, labels, free[:half], n_new, kind=kind, seed=seed)
    second = look(old, labels, free[half:], n_new, kind=kind, seed=seed + 1)
    return _Looked(rows, axes, free, first, second, number_of(first, second))


def estimate_large(run: Run, given: Large, kind: PileKind, seed: int, reporter: Reporter) -> None:
    """Count the new classes in two samples of a pile."""
    started = time.perf_counter()
    estimate = _looked(given, None, kind, seed, reporter).estimate
    assert estimate is not None
    write_estimate(run, estimate, time.perf_counter() - started)


def discover_large(run: Run, given: Large, n_new: int | None, kind: PileKind, seed: int, reporter: Reporter) -> None:
    """Look at a pile in samples, answer for all of it, and write what a run leaves."""
    started, (known, pile, _, before) = time.perf_counter(), given
    rows, axes, free, *both, estimate = _looked(given, n_new, kind, seed, reporter)
    number = n_new if estimate is None else estimate.n_new
    assert number is not None
    first, second = (learn(census, number, seed=seed + place) for place, census in enumerate(both))
    agree = agreement(first, second, free)
    with run.whole("features.npy") as path:
        _place_all(path, pile, axes, rows, reporter)
    run.write_array("features-labelled.npy", _placed(axes, known.features).numpy().astype(np.float16))
    some = np.random.default_rng(seed).choice(len(rows), min(len(rows), LOOKED_AT), replace=False)
    places = np.load(run.file("features.npy"), mmap_mode="r")[np.sort(some)]
    learned, rare = with_rare(first, torch.from_numpy(places.astype(np.float32)))
    facts = facts_of(first, second, agree, len(free) // 2, rare if n_new is None else 0)
    if n_new is None:
        first = learned
    elif rare:
        several = f"{rare} groups lie" if rare > 1 else "1 group lies"
        reporter.message(
            f"{several} apart from the {n_new} classes; leave the number out to have {'them' if rare > 1 else 'it'} as "
            f"{'classes' if rare > 1 else 'a class'} too."
        )
    notes = how_sampled(len(known.names), facts, len(rows))
    for note in (*first.judged.notes, *notes):
        reporter.message(note)
    with run.whole(AXES) as path, path.open("wb") as file:
        kept = [tensor.numpy() for space in (*before, axes) for tensor in (space.mean, space.matrix)]
        np.savez(file, *kept)
    judged = first.judged._replace(notes=(*first.judged.notes, *notes))
    write_judged(run, STAGE, judged)
    judged.judge.write(run)
    sizes, unlike = _write_answers(run, pile, known, first, rows, reporter)
    if estimate is not None:  # of what a sample can show, beside which the rare classes are
        assert estimate.interval is not None
        low, high = estimate.interval
        estimate = replace(estimate, n_new=estimate.n_new + rare, interval=(low, high + rare))
        write_estimate(run, estimate, 0.0)
    run.write_images(known.records)
    if not run.has("names.json"):
        run.write_json("names.json", {})
    n_known = len(known.names)
    spent = time.perf_counter() - started
    summary = summary_of(n_known, (len(known.labels), len(rows)), sizes, unlike, seed, judged.facts)
    summary |= {"sampled": facts, "seconds": {STAGE: spent, "total": spent}}
    summary |= number_found(len(judged.judge.centres) - n_known, estimate)
    run.write_last("summary.json", plain(summary))


def summary_of(
    n_known: int, images: tuple[int, int], sizes: npt.NDArray[np.int64], unlike: int, seed: int, facts: dict[str, Any]
) -> dict[str, Any]:
    """What the summary of a run on features says, of so many labelled and unlabelled images in classes of these sizes."""
    return {
        "n_known": n_known,
        "images": dict(zip(("labelled", "unlabelled"), images, strict=True)),
        "cluster_sizes": sizes[n_known:].tolist(),
        "known_sizes": sizes[:n_known].tolist(),
        "unlike": unlike,
        "device": "cpu",
        "seed": seed,
        "method": "features",
        "recipe": "features",
        "preset": "paper",
        "answering_stage": STAGE,
        "how_sure": facts,
    }


def _placed(axes: Space, features: Floats) -> Tensor:
    """Rows of features in the axes, (n, r)."""
    return (unit(torch.from_numpy(np.array(features, np.float32))) - axes.mean) @ axes.matrix


def _summed(
    known: Known, pile: Described | Kept, drawn: npt.NDArray[np.int64], reporter: Reporter
) -> tuple[Sums, Floats]:
    """The sums over all rows, and the features of those that were drawn."""
    tell, sums = reporter.counter("summing up features"), Sums(pile.width)
    for start in range(0, len(known.features), run_parts.AT_ONCE):
        sums.add(torch.from_numpy(np.array(known.features[start : start + run_parts.AT_ONCE], np.float32)))
    order = np.argsort(drawn)
    wanted, sample, done = drawn[order], np.empty((len(drawn), pile.width), np.float16), 0
    for part in pile.parts():
        sums.add(torch.from_numpy(np.array(part.features, np.float32)))
        begin, end = np.searchsorted(wanted, (done, done + len(part)))
        sample[order[begin:end]] = part.features[wanted[begin:end] - done]
        done += len(part)
        tell(done, pile.n_rows)
    return sums, sample


def _place_all(
    path: Path, pile: Described | Kept, axes: Space, rows: npt.NDArray[np.int64], reporter: Reporter
) -> None:
    """Write every row in the axes to a file."""
    tell, written = reporter.counter("placing images in the axes"), 0
    places = np.lib.format.open_memmap(path, "w+", np.float16, (len(rows), axes.matrix.shape[1]))
    for part, features in _kept_rows(pile, rows):
        places[written : written + len(part)] = _placed(axes, features).numpy()
        written += len(part)
        tell(written, len(rows))
    places.flush()


def _kept_rows(
    pile: Described | Kept, rows: npt.NDArray[np.int64], shards: Any = None, first: int = 0
) -> Iterator[tuple[Rows, Floats]]:
    """The parts of the pile, of which only these rows are kept."""
    for part in pile.parts(shards):
        begin, end = np.searchsorted(rows, (first, first + len(part)))
        if end - begin < len(part):
            inside = rows[begin:end] - first
            first += len(part)
            part = Rows(*(getattr(part, field.name)[inside] for field in fields(Rows)))
        else:
            first += len(part)
        if len(part):
            yield part, part.features


def _write_answers(
    run: Run, pile: Described | Kept, known: Known, learned: Learned, rows: npt.NDArray[np.int64], reporter: Reporter
) -> tuple[npt.NDArray[np.int64], int]:
    """A part for each shard, and the table where it is not too long; gives the sizes of the classes and how many are unlike."""
    judge, n_known = learned.judged.judge, len(known.names)
    names = [*known.names, *(f"new {c}" for c in range(len(judge.centres) - n_known))]
    sizes, unlike, done, first = np.zeros(len(names), np.int64), 0, 0, 0
    points, tell = np.load(run.file("features.npy"), mmap_mode="r"), reporter.counter("answering")
    for number, shard in enumerate(pile.shards):
        with run.whole(run_parts.file_of(number)) as path:
            writer = run_parts.PartWriter(path)
            for part, _ in _kept_rows(pile, rows, [shard], first):
                here = torch.from_numpy(np.array(points[done : done + len(part)], np.float32))
                said, similar = learned.answers(here), learned.similar(here)
                is_known = said.place < n_known
                cluster = np.where(is_known, -1, said.place - n_known)
                columns = (part.images, cluster, said.place, said.probability, is_known, said.unlike, similar.numpy())
                writer.add((*columns, part.sources), names)
                sizes += np.bincount(said.place, minlength=len(names))
                unlike += int(said.unlike.sum())
                done += len(part)
                tell(done, len(rows))
            writer.close()
        first += shard.rows
    if done <= MOST_LISTED:
        written = run_parts.Parts(run)
        batches = written.batches(("image", "cluster", "name", "probability", "known"))
        run.write_predictions(
            Answer(*row) for batch in batches for row in zip(*map(_listed, batch.columns), strict=True)
        )
    return sizes, unlike


def _listed(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def axes_of(run: Run) -> tuple[Space, ...]:
    """The axes in which a run of a large pile keeps its features, one after the other; none where it keeps them as they were."""
    if not run.has(AXES):
        return ()
    try:
        with np.load(run.file(AXES)) as kept:
            tensors = [torch.from_numpy(kept[f"arr_{place}"]) for place in range(len(kept.files))]
            return tuple(Space(mean, matrix) for mean, matrix in zip(tensors[::2], tensors[1::2], strict=True))
    except InputError:
        raise
    except Exception as error:  # numpy reads the head of a file as Python, in which anything can be wrong
        raise damaged(run, AXES, error) from error


def placed_in(axes: Sequence[Space], features: Tensor) -> Tensor:
    """Further features as a run keeps its own: in these axes, one after the other."""
    for space in axes:
        features = _placed(space, features.numpy())
    return features
