"""The answers for further images, and the files that they are written to as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, overload

from autonovel.base.errors import InputError, TrainingError, option
from autonovel.machine.disk import whole, why_not_writable
from autonovel.runs.answers import Answer
from autonovel.runs.files import cannot_be_written, written

Columns = tuple[list[str], list[int | None], list[str], list[float], list[bool], list[bool]]
"""The fields of answers, each as a list."""

Write = Callable[["AnswerTable"], None]
"""Takes some answers, at least one."""


class AnswerTable(Sequence[Answer]):
    """Answers for images, in their order; reads like a list of :class:`autonovel.runs.answers.Answer`.

    Made, kept and written by column, without an object for each image, which would take longer than a GPU needs.
    """

    def __init__(
        self,
        image: Iterable[str] = (),
        cluster: Iterable[int | None] = (),
        name: Iterable[str] = (),
        probability: Iterable[float] = (),
        known: Iterable[bool] = (),
        unlike: Iterable[bool] = (),
    ) -> None:
        self.columns: Columns = (
            list(image), list(cluster), list(name), list(probability), list(known), list(unlike)
        )  # fmt: skip

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> AnswerTable:
        """These answers."""
        return cls(*(map(itemgetter(place), answers) for place in range(len(Answer._fields))))

    def add(self, answers: AnswerTable) -> None:
        """Put these at the end."""
        columns: tuple[list[Any], ...] = self.columns
        others: tuple[list[Any], ...] = answers.columns
        for column, more in zip(columns, others, strict=True):
            column.extend(more)

    def make_less_sure(self, factor: float, but: Collection[str]) -> None:
        """Multiply every probability by this, but those of the images of these names."""
        image, _, _, probability, _, _ = self.columns
        probability[:] = [p if name in but else p * factor for name, p in zip(image, probability, strict=True)]

    @property
    def n_known(self) -> int:
        """How many images are of a known class."""
        return sum(self.columns[4])

    @property
    def n_unlike(self) -> int:
        """How many images are unlike anything that the run has seen."""
        return sum(self.columns[5])

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, position: int) -> Answer: ...
    @overload
    def __getitem__(self, position: slice) -> list[Answer]: ...
    def __getitem__(self, position: int | slice) -> Answer | list[Answer]:
        if isinstance(position, slice):
            return [self[row] for row in range(len(self))[position]]
        return Answer._make(column[position] for column in self.columns)

    def __iter__(self) -> Iterator[Answer]:
        return map(Answer._make, zip(*self.columns, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | AnswerTable) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"AnswerTable({list(self)!r})"


def nowhere(answers: AnswerTable) -> None:
    """For answers that nobody wants written."""


def writer_to(path: Path) -> AbstractContextManager[Write]:
    """A file that takes the answers as they come, and is there when all of them are."""
    writers = {".csv": _csv, ".jsonl": _lines, ".parquet": _parquet}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} has no ending that says how to write it; choose one of {', '.join(writers)}.")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} cannot be written; give a file in a folder that exists as {option('to')}.")
    if why := why_not_writable(path.parent):
        raise InputError(f"{path} cannot be written ({why}); give another file as {option('to')}.")
    if write is _parquet:
        _pyarrow()
    return _whole(path, write)


@contextmanager
def _whole(path: Path, write: Callable[[Path], AbstractContextManager[Write]]) -> Iterator[Write]:
    """Written beside the file and put in its place at the end, so that half of it is never there."""
    elsewhere: BaseException | None = None
    try:
        with whole(path) as part, write(part) as add:

            def added(answers: AnswerTable) -> None:
                with written(path):
                    add(answers)

            try:
                yield added
            except BaseException as error:
                elsewhere = error
                raise
    except OSError as error:
        if isinstance(elsewhere, OSError):
            raise elsewhere from None
        raise (elsewhere or TrainingError(cannot_be_written(path, error))) from error


@contextmanager
def _csv(path: Path) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Answer._fields)

        def add(answers: AnswerTable) -> None:
            image, cluster, name, probability, known, unlike = answers.columns
            rounded = [f"{p:.4f}" for p in probability]
            writer.writerows(zip(image, cluster, name, rounded, map(int, known), map(int, unlike), strict=True))

        yield add


@contextmanager
def _lines(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        line = "{" + ", ".join(f'"{field}": %s' for field in Answer._fields) + "}\n"
        quoted = json.JSONEncoder(ensure_ascii=False).encode

        def plain(values: Any) -> list[str]:
            return json.dumps(values)[1:-1].split(", ")

        def add(answers: AnswerTable) -> None:
            image, cluster, name, probability, known, unlike = answers.columns
            rounded = [round(p, 4) for p in probability]
            texts = map(quoted, image), plain(cluster), map(quoted, name), *map(plain, (rounded, known, unlike))
            file.writelines(map(line.__mod__, zip(*texts, strict=True)))

        yield add


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    pyarrow, parquet = _pyarrow()
    kinds = (pyarrow.string(), pyarrow.int64(), pyarrow.string(), pyarrow.float64(), pyarrow.bool_(), pyarrow.bool_())
    schema = pyarrow.schema(list(zip(Answer._fields, kinds, strict=True)))
    with parquet.ParquetWriter(path, schema) as writer:

        def add(answers: AnswerTable) -> None:
            columns = [pyarrow.array(c, t) for c, t in zip(answers.columns, kinds, strict=True)]
            writer.write_table(pyarrow.table(columns, schema=schema))

        yield add


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("Writing Parquet needs pyarrow: pip install 'autonovel[tables]'.") from None
    return pyarrow, parquet
