"""The answers for further images, and the files that they are written to as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, overload

from autonovel.base.errors import InputError, TrainingError, option
from autonovel.machine.disk import whole, why_not_writable
from autonovel.runs.files import cannot_be_written, written

Write = Callable[["Columns"], None]
"""Takes some answers, at least one."""


class Predicted(NamedTuple):
    """The answer for one image.

    Attributes:
        image: its name.
        name: its class, as it is called now.
        cluster: the number of its cluster; None where the answer is a known class.
        probability: that the answer is right, calibrated as the run's own.
        known: whether the answer is a known class.
        unlike: whether the image is unlike anything that the run has seen.
    """

    image: str
    name: str
    cluster: int | None
    probability: float
    known: bool
    unlike: bool


class Columns(NamedTuple):
    """Some answers by field: made, kept and written without an object for each, which would take longer than a GPU needs."""

    image: list[str]
    name: list[str]
    cluster: list[int | None]
    probability: list[float]
    known: list[bool]
    unlike: list[bool]

    @classmethod
    def of(cls, answers: Sequence[Predicted]) -> Columns:
        """These answers."""
        return cls(*(list(map(itemgetter(place), answers)) for place in range(len(cls._fields))))

    def rows(self) -> Iterator[Predicted]:
        """One answer after the other."""
        return map(Predicted._make, zip(*self, strict=True))


class Predictions(Sequence[Predicted]):
    """The answers for further images, in their order; reads like a list of :class:`Predicted`."""

    def __init__(self) -> None:
        self._columns = Columns([], [], [], [], [], [])

    def add(self, answers: Columns) -> None:
        """Put these at the end."""
        columns: tuple[list[Any], ...] = self._columns
        more_columns: tuple[list[Any], ...] = answers
        for column, more in zip(columns, more_columns, strict=True):
            column.extend(more)

    @property
    def n_known(self) -> int:
        """How many images are of a known class."""
        return sum(self._columns.known)

    @property
    def n_unlike(self) -> int:
        """How many images are unlike anything that the run has seen."""
        return sum(self._columns.unlike)

    def __len__(self) -> int:
        return len(self._columns.image)

    @overload
    def __getitem__(self, position: int) -> Predicted: ...
    @overload
    def __getitem__(self, position: slice) -> list[Predicted]: ...
    def __getitem__(self, position: int | slice) -> Predicted | list[Predicted]:
        if isinstance(position, slice):
            return [self[row] for row in range(len(self))[position]]
        return Predicted._make(column[position] for column in self._columns)

    def __iter__(self) -> Iterator[Predicted]:
        return self._columns.rows()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | Predictions) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"Predictions({list(self)!r})"


def nowhere(answers: Columns) -> None:
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

            def added(answers: Columns) -> None:
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
        writer.writerow(Predicted._fields)

        def add(answers: Columns) -> None:
            image, name, cluster, probability, known, unlike = answers
            rounded = [f"{p:.4f}" for p in probability]
            writer.writerows(zip(image, name, cluster, rounded, map(int, known), map(int, unlike), strict=True))

        yield add


@contextmanager
def _lines(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        line = "{" + ", ".join(f'"{field}": %s' for field in Predicted._fields) + "}\n"
        quoted = json.JSONEncoder(ensure_ascii=False).encode

        def plain(values: Any) -> list[str]:
            return json.dumps(values)[1:-1].split(", ")

        def add(answers: Columns) -> None:
            image, name, cluster, probability, known, unlike = answers
            rounded = [round(p, 4) for p in probability]
            texts = map(quoted, image), map(quoted, name), *map(plain, (cluster, rounded, known, unlike))
            file.writelines(map(line.__mod__, zip(*texts, strict=True)))

        yield add


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    pyarrow, parquet = _pyarrow()
    kinds = (pyarrow.string(), pyarrow.string(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_(), pyarrow.bool_())
    schema = pyarrow.schema(list(zip(Predicted._fields, kinds, strict=True)))
    with parquet.ParquetWriter(path, schema) as writer:

        def add(answers: Columns) -> None:
            columns = [pyarrow.array(c, t) for c, t in zip(answers, kinds, strict=True)]
            writer.write_table(pyarrow.table(columns, schema=schema))

        yield add


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("Writing Parquet needs pyarrow: pip install 'autonovel[tables]'.") from None
    return pyarrow, parquet
