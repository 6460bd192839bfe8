"""Further images to known classes and discovered clusters, under the names that a person gave them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.answers.judge import Judge
from autonovel.answers.network import Trained, images_at_once, restore
from autonovel.answers.predicted import Columns, Predicted, Predictions, nowhere, writer_to
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, Pixels, Source
from autonovel.data.reading.decode import Form
from autonovel.data.reading.inputs import Input, open_input
from autonovel.data.reading.load import distinct, remarks
from autonovel.data.reading.opening import name_of_item
from autonovel.data.reading.parts import FileReader
from autonovel.data.reading.problems import Problem, refuse_if_too_many
from autonovel.data.reading.store import gather
from autonovel.data.reading.survey import nothing_usable
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.capture import not_captured
from autonovel.machine.device import Mode
from autonovel.machine.prefetch import prefetch
from autonovel.machine.progress import Reporter
from autonovel.machine.transfer import Arriving
from autonovel.runs.folder import Run
from autonovel.runs.state import State

FEW_MOVED = 0.05
"""Images moved by hand out of a cluster say nothing of further images where they are a smaller share of it than this."""


def predict(
    run: Run,
    images: Any,
    *,
    to: str | os.PathLike[str] | None = None,
    device: str = "auto",
    cache: str | os.PathLike[str] | None = None,
    reporter: Reporter | None = None,
) -> Predictions:
    """The classes of further images: known ones and discovered ones, with a person's names, merges and corrections.

    A file that took part in the run, known by its path, gets the answer that the run has for it; the network is not asked
    again.

    Args:
        run: a finished run.
        images: a folder, a table, a list of files, arrays, or an ImageSet.
        to: a file to write as well; its ending says how: .csv, .jsonl or .parquet.
        device: cpu, cuda or auto.
        cache: folder for features that a CPU computes; the user's cache folder when left out.
        reporter: sees the progress.
    """
    if isinstance(images, list | tuple) and not images:
        raise InputError("The list of images is empty; give at least one.")
    writer = None if to is None else writer_to(Path(to))
    mode, shown = Mode.of(device), reporter or Reporter()
    _ = run.summary  # says so where the run is not finished
    classes = Classes(run, Judge.read(run), mode.device)
    # a GPU computes most features as fast as a disk would give them
    kept = None if mode.device.type == "cuda" else (Path(cache) if cache is not None else user_cache()) / "features"
    trained = restore(run, mode, kept)
    pile = _open(run, images, trained, shown)
    recorded, every = _recorded(run, pile), range(len(pile.ids))
    further = [row for row in every if row not in recorded] if recorded else every
    found = Predictions()
    written, tell = 0, shown.counter("sorting images")
    with not_captured(mode.device), writer or nullcontext(nowhere) as write:
        for rows, answers in _ask(trained, classes, pile, further):
            # rows come in their order, so whatever lies before the last one is decided
            before = every[written : rows[-1] + 1]
            if recorded:
                recorded |= zip(rows, answers.rows(), strict=True)
                answers = Columns.of([recorded[row] for row in before if row in recorded])
            write(answers)
            found.add(answers)
            written = before.stop
            tell(written, len(every))
        if last := [recorded[row] for row in every[written:] if row in recorded]:
            write(Columns.of(last))
            found.add(Columns.of(last))
        for note in pile.finish(len(found)):
            shown.message(note)
    return found


def _ask(trained: Trained, classes: Classes, pile: _Pile, rows: Sequence[int]) -> Iterator[tuple[list[int], Columns]]:
    """The answers for these rows, some at a time and in their order; images that cannot be read are left out.

    On a GPU a thread has the network at work while the answers before are named and written here.
    """
    asked: deque[Sequence[int]] = deque()
    next_rows = chain.from_iterable(iter(asked.popleft, None))

    def pixels() -> Iterator[Pixels]:
        for some, images in pile.parts(rows):
            asked.append(some)
            if len(images):
                yield images

    said = classes.judged(trained.scores(pixels()))
    for part in prefetch(said) if trained.mode.device.type == "cuda" else said:
        here = list(islice(next_rows, len(part)))
        yield here, classes.named(list(map(pile.ids.__getitem__, here)), part)


# ------------------------------------------------------------------------------------------------ the images


class _Pile(Protocol):
    """Images to be sorted."""

    @property
    def ids(self) -> Sequence[str]:
        """A name for each."""

    @property
    def sources(self) -> Sequence[Source]:
        """The file of each; empty where none comes from a file."""

    def parts(self, rows: Sequence[int]) -> Iterator[tuple[Sequence[int], Pixels]]:
        """The images of these rows in parts: those that could be read, and their pixels."""

    def finish(self, used: int) -> list[str]:
        """Sentences that the user should see; refuses a pile of which too little was ``used``."""


def _open(run: Run, images: Any, trained: Trained, reporter: Reporter) -> _Pile:
    shape = height, _, channels = tuple(run.config["run"]["data"]["shape"])
    at_once = max(1024, images_at_once(trained.mode.device, trained.size or height))
    if isinstance(images, np.ndarray) and len(images) and images.dtype == np.uint8 and images.shape[1:] == shape:
        return _Array(images, _Numbered(len(images)), at_once)
    if isinstance(images, ImageSet) and images.images.shape[1:] == shape:
        return _Array(images.images, images.ids, at_once, images.sources)
    given = open_input(None, images)
    if isinstance(given.parts[0].reader, FileReader) and given.parts[0].ids:
        return _Files(given, Form(height, channels))
    loaded = given.load(size=height, channels=channels, least=1, progress=reporter.counter("reading images"))
    return _Array(loaded.images.images, loaded.images.ids, at_once, loaded.images.sources, loaded.notes)


class _Numbered(Sequence[str]):
    """The names of images of an array, made when they are asked for: a GPU would wait for all of them."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, position: int) -> str:  # type: ignore[override]  # nobody asks for a slice
        return name_of_item("unlabelled", range(self._n)[position])


class _Array:
    """Images in memory."""

    def __init__(
        self,
        images: Pixels,
        ids: Sequence[str],
        at_once: int,
        sources: Sequence[Source] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self._images, self._at_once, self._notes = images, at_once, list(notes)
        self.ids, self.sources = ids, sources

    def parts(self, rows: Sequence[int]) -> Iterator[tuple[Sequence[int], Pixels]]:
        """Slices of the array."""
        for start in range(0, len(rows), self._at_once):
            some = rows[start : start + self._at_once]
            whole = some[-1] - some[0] + 1 == len(some)
            images = self._images
            yield some, images[some[0] : some[-1] + 1] if whole else gather(images, np.array(some, dtype=np.int64))

    def finish(self, used: int) -> list[str]:
        """What there was to say when the images were read."""
        return self._notes


class _Files:
    """Files that are read while the network is at work on those before."""

    def __init__(self, given: Input, form: Form) -> None:
        self._part, self._form = given.parts[0], form
        self._problems = list(self._part.problems)
        self.ids, self.sources = distinct(self._part.ids), self._part.sources

    def parts(self, rows: Sequence[int]) -> Iterator[tuple[Sequence[int], Pixels]]:
        """Decoded files."""
        assert isinstance(self._part.reader, FileReader)
        first = 0
        for decoded in self._part.reader.stream(rows, self._form):
            some = rows[first : first + len(decoded.reasons)]
            first += len(some)
            for row, reason in zip(some, decoded.reasons, strict=True):
                if reason:
                    self._problems.append(Problem(self.ids[row], reason))
            yield [row for row, reason in zip(some, decoded.reasons, strict=True) if not reason], decoded.pixels

    def finish(self, used: int) -> list[str]:
        """How many files were left out, and why."""
        if not used:
            raise nothing_usable([self._part], self._problems)
        refuse_if_too_many(self._problems, used)
        return remarks(self._problems, used)


def _recorded(run: Run, pile: _Pile) -> dict[int, Predicted]:
    """The answers, by row, for files that took part in the run: what it says of them now, with a person's corrections."""
    if not pile.sources:
        return {}
    answers = zip(run.predictions, run.unlike.tolist(), strict=True)
    by_source: dict[str, Predicted] = {}
    for record in run.images:
        if record.label is not None:
            answer = Predicted(record.image, record.label, None, 1.0, True, False)
        else:
            p, unlike = next(answers)
            answer = Predicted(p.image, p.name, p.cluster, p.probability, p.known, unlike)
        if record.source:
            by_source[record.source] = answer
    return {
        row: by_source[source.absolute]._replace(image=pile.ids[row])
        for row, source in enumerate(pile.sources)
        if source.absolute in by_source
    }


# ------------------------------------------------------------------------------------------------ the answers


class _Said:
    """What a network says of some images, perhaps still on its way from the device.

    Args:
        outcome: int64 (m,), places in the table of :class:`Classes`.
        probability: (m,).
        unlike: bool (m,).
    """

    def __init__(self, outcome: Tensor, probability: Tensor, unlike: Tensor) -> None:
        self._rows = Arriving(torch.stack([outcome.double(), probability.double(), unlike.double()], 1))

    def __len__(self) -> int:
        return len(self._rows)

    def lists(self) -> tuple[list[int], list[float], list[bool]]:
        """Outcomes, probabilities, and which images are unlike anything seen."""
        outcome, probability, unlike = self._rows.numpy().T
        return outcome.astype(np.int64).tolist(), probability.tolist(), unlike.astype(bool).tolist()


class Classes:
    """The classes of a run as they are now, after a person's edits.

    Args:
        run: a finished run.
        judge: how its answers are judged.
        device: where the network answers.
    """

    def __init__(self, run: Run, judge: Judge, device: torch.device) -> None:
        machine, state = run.machine, run.state
        self._judge, self._n_known = replace(judge, centres=judge.centres.to(device)), len(machine.known)
        table: list[tuple[str, int | None, bool]] = [(name, None, True) for name in machine.known]
        first: list[int] = list(range(self._n_known))
        self._divided: dict[int, Tensor] = {}
        clusters = {cluster.number: cluster for cluster in state.clusters}
        features = np.asarray(run.features, dtype=np.float32)
        for number in range(machine.n_new):
            parts = parts_of(number, machine.group, machine.n_new, state)
            first.append(len(table))
            for group in list(parts) or [number]:
                cluster = clusters.get(group)
                if cluster is None:
                    table.append((f"new {number}", None, False))
                    continue
                known = cluster.kind == "known"
                name = cluster.kind if cluster.kind == "not a class" else cluster.name
                table.append((name, None if known else cluster.number, known))
            if len(parts) > 1:
                middles = np.stack([features[members].mean(0) for members in parts.values()])
                self._divided[self._n_known + number] = torch.from_numpy(middles).to(device)
        self._start = torch.tensor(first, device=device)
        self._names, self._clusters, self._known = zip(*table, strict=True)

    def judged(self, scores: Iterable[tuple[Tensor, Tensor, Tensor | None]]) -> Iterator[_Said]:
        """The answers to what a network says (features and scores, on its device), part by part.

        Where a cluster was divided, the answer is the part whose middle is nearest.
        """
        for features, joint, _ in scores:
            probability, place = self._judge.calibrated(joint.softmax(1)).max(1)
            outcome = self._start[place]
            for divided, middles in self._divided.items():
                nearest = torch.cdist(features.float(), middles).argmin(1)
                outcome = torch.where(place == divided, outcome + nearest, outcome)
            yield _Said(outcome, probability, self._judge.unlike(features))

    def named(self, ids: list[str], said: _Said) -> Columns:
        """The answers under their present names."""
        outcomes, probabilities, unlike = said.lists()
        # column by column and without a loop: Python code here holds up the thread that feeds the device
        name, cluster, known = (
            list(map(of.__getitem__, outcomes)) for of in (self._names, self._clusters, self._known)
        )
        return Columns(ids, name, cluster, probabilities, known, unlike)


def parts_of(number: int, machine: npt.NDArray[np.int64], n_new: int, state: State) -> dict[int, npt.NDArray[np.int64]]:
    """Where the images of a machine's cluster are now: cluster -> their rows; the largest part first.

    What a person divided or made a cluster of counts, however little it is. Single images that she moved into a cluster that
    the machine had found, or into a known class, are corrections and say nothing of further images, unless they are many.

    Args:
        number: the machine's cluster.
        machine: (n,), the machine's cluster of every image.
        n_new: how many clusters the machine found.
        state: what the clusters are now.
    """
    members = np.flatnonzero(machine == number)
    found: dict[int, npt.NDArray[np.int64]] = {}
    for group in np.unique(state.group[members]).tolist():
        part = members[state.group[members] == group]
        corrections = group < n_new and bool(state.moved[part].all())
        if not corrections or len(part) >= FEW_MOVED * len(members):
            found[group] = part
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
