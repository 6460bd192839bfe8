"""Further images to known classes and discovered clusters, under the names that a person gave them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.answers.edited import Edited
from autonovel.answers.judge import Judge
from autonovel.answers.network import Trained, images_at_once, restore
from autonovel.answers.table import AnswerTable, nowhere, writer_to
from autonovel.base.errors import InputError, option
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
from autonovel.machine.memory import check_memory
from autonovel.machine.prefetch import prefetch
from autonovel.machine.progress import Reporter
from autonovel.machine.transfer import Arriving
from autonovel.models.net import Scores
from autonovel.runs.answers import Answer
from autonovel.runs.classes import outputs_of
from autonovel.runs.folder import Run
from autonovel.runs.seen import KnownPixels
from autonovel.runs.summary import holds_known

PileKind: TypeAlias = Literal["new", "mixed"]
ANSWER_BYTES = 1500
"""Of an image and its answer, in memory."""
FEW_STRANGERS = 0.1
"""A smaller share of images that belong to no class is not worth a sentence, and may be chance."""


def predict(
    run: Run,
    images: Any,
    *,
    to: str | os.PathLike[str] | None = None,
    pile: PileKind | None = None,
    device: str = "auto",
    cache: str | os.PathLike[str] | None = None,
    reporter: Reporter | None = None,
) -> AnswerTable:
    """The classes of further images: known ones and discovered ones, with a person's names, merges and corrections.

    An image that took part in the run, known by the path of its file or by its pixels, gets the answer that the run has for
    it; the network is not asked again.

    Args:
        run: a finished run.
        images: a folder, a table, a list of files, PIL images, arrays, or an ImageSet. Each form of a picture has the same
            answer, but large JPEG files differ by a few of 255 levels.
        to: a file to write as well; its ending says how: .csv, .jsonl or .parquet.
        pile: whether the images are of new classes alone (``new``) or may be of known ones too (``mixed``); what the run
            decided of its own pile when left out.
        device: cpu, cuda or auto.
        cache: folder for features that a CPU computes; the user's cache folder when left out.
        reporter: sees the progress.
    """
    if isinstance(images, list | tuple) and not images:
        raise InputError("The list of images is empty; give at least one.")
    writer = None if to is None else writer_to(Path(to))
    mode, shown = Mode.of(device), reporter or Reporter()
    mixed = holds_known(run.summary) if pile is None else pile == "mixed"
    if pile is None and not mixed and run.summary["n_known"]:
        shown.message(
            f"Known classes are not among the answers, as in the run's own pile ({option('pile', 'mixed')} allows them)."
        )
    classes = Classes(run, Judge.read(run), mixed, mode.device)
    # a GPU computes most features as fast as a disk would give them
    kept = None if mode.device.type == "cuda" else (Path(cache) if cache is not None else user_cache()) / "features"
    trained = restore(run, mode, kept)
    given = _open(run, images, trained, shown)
    check_memory(
        len(given.ids) * ANSWER_BYTES, f"Answers for {len(given.ids):,} images take", "give the images in several parts"
    )
    again = _Again(run, given)
    recorded, every = again.recorded, range(len(given.ids))
    further = [row for row in every if row not in recorded] if recorded else every
    table = AnswerTable()
    written, tell = 0, shown.counter("sorting images")
    with not_captured(mode.device), writer or nullcontext(nowhere) as write:
        for rows, answers in _ask(trained, classes, given, further, again):
            # rows come in their order, so whatever lies before the last one is decided
            before = every[written : rows[-1] + 1]
            if recorded:
                recorded |= zip(rows, answers, strict=True)
                answers = AnswerTable.of([recorded[row] for row in before if row in recorded])
            write(answers)
            table.add(answers)
            written = before.stop
            tell(written, len(every))
        if last := [recorded[row] for row in every[written:] if row in recorded]:
            write(AnswerTable.of(last))
            table.add(AnswerTable.of(last))
        for note in given.finish(len(table)):
            shown.message(note)
    if strangers := classes.strangers():
        share, note = strangers
        shown.message(note)
        table.make_less_sure(1 - share, {answer.image for answer in again.recorded.values()})
        if to is not None:
            with writer_to(Path(to)) as write:
                write(table)
    return table


def _ask(
    trained: Trained, classes: Classes, pile: _Pile, rows: Sequence[int], again: _Again
) -> Iterator[tuple[list[int], AnswerTable]]:
    """The answers for these rows, some at a time and in their order; images that cannot be read are left out.

    On a GPU a thread has the network at work while the answers before are named and written here.
    """
    asked: deque[Sequence[int]] = deque()
    next_rows = chain.from_iterable(iter(asked.popleft, None))

    def pixels() -> Iterator[Pixels]:
        for some, images in map(again.without_seen, pile.parts(rows)):
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
    given = images if isinstance(images, Input) else open_input(None, images)
    if isinstance(given.parts[0].reader, FileReader) and given.parts[0].ids:
        return _FromFiles(given, Form(height, channels))
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


class _FromFiles:
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


class _Again:
    """Images that took part in the run: they have the answer that the run has for them now, with a person's corrections.

    Attributes:
        recorded: the answers by row: of files known by their path from the beginning, of others known by their pixels as they
            are read.
    """

    def __init__(self, run: Run, pile: _Pile) -> None:
        of_pile = dict(zip(run.unlabelled.tolist(), run.predictions, strict=True))
        self._answers = [
            of_pile[row] if record.label is None else Answer(record.image, None, record.label, 1.0, True)
            for row, record in enumerate(run.images)
        ]
        self._ids, self._seen = pile.ids, KnownPixels(run)
        places = {record.source: place for place, record in enumerate(run.images) if record.source}
        self.recorded = {
            row: self._answer(places[source.absolute], row)
            for row, source in enumerate(pile.sources)
            if source.absolute in places
        }

    def _answer(self, place: int, row: int) -> Answer:
        return self._answers[place]._replace(image=self._ids[row])

    def without_seen(self, part: tuple[Sequence[int], Pixels]) -> tuple[Sequence[int], Pixels]:
        """The images of a part that took no part in the run, and their rows; the answers of the others are recorded."""
        rows, images = part
        seen = self._seen.rows(images)
        if not seen:
            return part
        self.recorded |= {rows[i]: self._answer(place, rows[i]) for i, place in seen.items()}
        left = [i for i in range(len(rows)) if i not in seen]
        return [rows[i] for i in left], images[left]


# ------------------------------------------------------------------------------------------------ the answers


class _Pending:
    """Answers for some images, perhaps still on their way from the device.

    Args:
        part: int64 (m,), places among the parts of :class:`autonovel.runs.classes.Outputs`.
        probability: (m,).
        unlike: bool (m,).
        similar: (m,), to the nearest class.
    """

    def __init__(self, part: Tensor, probability: Tensor, unlike: Tensor, similar: Tensor) -> None:
        self._rows = Arriving(torch.stack([values.double() for values in (part, probability, unlike, similar)], 1))

    def __len__(self) -> int:
        return len(self._rows)

    def lists(self) -> tuple[list[int], list[float], list[bool]]:
        """Parts, probabilities, and which images are unlike anything seen."""
        part, probability, unlike, _ = self._rows.numpy().T
        return part.astype(np.int64).tolist(), probability.tolist(), unlike.astype(bool).tolist()

    def similar(self) -> npt.NDArray[np.float64]:
        """How similar the images are to the nearest class."""
        return self._rows.numpy()[:, 3]


class Classes:
    """The classes of a run as they are now, after a person's edits.

    Args:
        run: a finished run.
        judge: how its answers are judged.
        mixed: whether an answer may be a known class.
        device: where the network answers.
    """

    def __init__(self, run: Run, judge: Judge, mixed: bool, device: torch.device) -> None:
        outputs = outputs_of(run)
        self._judge, self._edited, self._mixed = judge.to(device), Edited.of(outputs).to(device), mixed
        named = [outputs.classes[part.place] for part in outputs.parts]
        self._names = [c.name for c in named]
        self._clusters = [part.cluster for part in outputs.parts]
        self._known = [c.kind == "known" for c in named]
        self._similar: list[npt.NDArray[np.float64]] = []

    def judged(self, scores: Iterable[Scores]) -> Iterator[_Pending]:
        """The answers to what a network says, on its device, part by part."""
        for some in scores:
            parts = self._edited.parts(self._judge.probabilities(some, mixed=self._mixed), some.features)
            probability, place = (parts @ self._edited.table).max(1)
            # of several outputs that are one class now, or of several clusters that are none, the likeliest is the answer
            part = parts.masked_fill(self._edited.place != place[:, None], -1.0).argmax(1)
            known = self._judge.strangers
            similar = torch.ones_like(probability) if known is None else known.similar(some.features)
            yield _Pending(part, probability, self._judge.unlike(some.features), similar)

    def named(self, ids: list[str], said: _Pending) -> AnswerTable:
        """The answers under their present names."""
        outcomes, probabilities, unlike = said.lists()
        self._similar.append(said.similar())
        # column by column and without a loop: Python code here holds up the thread that feeds the device
        cluster = map(self._clusters.__getitem__, outcomes)
        name, known = map(self._names.__getitem__, outcomes), map(self._known.__getitem__, outcomes)
        return AnswerTable(ids, cluster, name, probabilities, known, unlike)

    def strangers(self) -> tuple[float, str] | None:
        """The share of all images named that belongs to none of the classes, and a sentence; None where it is hardly any."""
        n = sum(map(len, self._similar))
        known = self._judge.strangers
        told = known.share(torch.from_numpy(np.concatenate(self._similar))) if known and n else None
        if told is None or told[0] - 2 * told[1] < FEW_STRANGERS:
            return None
        share, classes = told[0], len(self._judge.centres)
        return share, (
            f"About {100 * share:.0f} % of these {n:,} images look like none of the {classes} classes, and probabilities are "
            f"lower by as much; a next round ({option('from')}) looks for new classes among them."
        )
