"""The answers for a large pile: predictions/, a Parquet file for each shard, of which columns and single rows are read.

A column of ten million numbers fits into memory, ten million names do not; so names are read when they are asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.runs.answers import Answer, ImageRecord, MachineAnswers
from autonovel.runs.files import RunFiles, damaged

if TYPE_CHECKING:
    from autonovel.runs.state import Cluster, State

T = TypeVar("T")

FOLDER = "predictions"
AT_ONCE = 8192
"""Rows of a group in a file: to look at one row, so many are read."""
FIELDS = (*Answer._fields, "typical", "source")
KEPT = 24
"""Groups of rows that stay in memory."""


def parquet() -> Any:
    """pyarrow's Parquet, or the sentence that says how to get it."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("The run keeps its answers as Parquet: pip install 'autonovel[tables]'.") from None
    return parquet


def file_of(number: int) -> str:
    """The file for the shard with this number."""
    return f"{FOLDER}/part-{number:05d}.parquet"


class PartWriter:
    """The file for a shard, whole or absent, written some rows at a time."""

    def __init__(self, path: Any) -> None:
        import pyarrow as pa

        kinds = [pa.string(), pa.int32(), pa.dictionary(pa.int32(), pa.string()), pa.float32(), pa.bool_(), pa.bool_()]
        kinds += (pa.float32(), pa.dictionary(pa.int32(), pa.string()))
        self._pa, self._schema = pa, pa.schema(list(zip(FIELDS, kinds, strict=True)))
        self._writer = parquet().ParquetWriter(
            path,
            self._schema,
            compression={"image": "zstd"},
            use_dictionary=["name", "source"],
        )

    def add(self, columns: Sequence[Any], names: Sequence[str]) -> None:
        """Add rows: the columns of the file, of which ``name`` are places in ``names`` and -1 in ``cluster`` is none."""
        pa = self._pa
        image, cluster, name, probability, known, unlike, typical, source = columns
        arrays = [
            pa.array(image, pa.string()),
            pa.array(cluster, pa.int32(), mask=cluster < 0),
            pa.DictionaryArray.from_arrays(pa.array(name, pa.int32()), pa.array(names, pa.string())),
            *map(pa.array, (np.asarray(probability, np.float32), known, unlike, np.asarray(typical, np.float32))),
            pa.array(source, pa.string()).dictionary_encode(),
        ]
        self._writer.write_table(pa.table(arrays, schema=self._schema), row_group_size=AT_ONCE)

    def close(self) -> None:
        """The file is whole."""
        self._writer.close()


class Parts:
    """The files of predictions/, as one table."""

    def __init__(self, run: RunFiles) -> None:
        self._run, self._parquet = run, parquet()
        paths = sorted((run.path / FOLDER).glob("part-*.parquet"))
        self._names = [f"{FOLDER}/{path.name}" for path in paths]
        groups = [
            (name, group, file.metadata.row_group(group).num_rows)
            for name in self._names
            for file in [self._opened(name)]
            for group in range(file.metadata.num_row_groups)
        ]
        self._groups = groups
        self._starts = [0, *accumulate(rows for _, _, rows in groups)]
        self._kept = lru_cache(maxsize=KEPT)(self._read)

    def _opened(self, name: str, **options: Any) -> Any:
        from pyarrow import ArrowException

        try:
            file = self._parquet.ParquetFile(self._run.file(name), **options)
        except (ArrowException, OSError) as error:
            raise damaged(self._run, name, error) from error
        if missing := set(FIELDS) - set(file.schema_arrow.names):
            raise damaged(self._run, name, f"it has no column {sorted(missing)[0]!r}")
        return file

    def __len__(self) -> int:
        return int(self._starts[-1])

    def files(self) -> list[tuple[str, int]]:
        """Every file and how many rows it has."""
        return [(name, sum(rows for other, _, rows in self._groups if other == name)) for name in self._names]

    def batches(self, columns: Sequence[str], *, only: str = "", **options: Any) -> Iterator[Any]:
        """These columns of all rows, or of one file, some rows at a time."""
        from pyarrow import ArrowException

        for name in [only] if only else self._names:
            try:
                yield from self._opened(name, **options).iter_batches(
                    8 * AT_ONCE, columns=list(columns), use_threads=False
                )
            except (ArrowException, OSError) as error:
                raise damaged(self._run, name, error) from error

    def column(self, name: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """A column of numbers."""
        values, first = np.empty(len(self), kind), 0
        for batch in self.batches([name]):
            values[first : first + len(batch)] = batch.column(0).to_numpy(zero_copy_only=False)
            first += len(batch)
        return values

    def answers(self, known: tuple[str, ...], n_new: int) -> MachineAnswers:
        """What the machine answered, with the names of the known classes and the number of new ones."""
        place = {name: -1 - number for number, name in enumerate(known)}
        group, probability = np.empty(len(self), np.int32), np.empty(len(self), np.float32)
        first = 0
        for batch in self.batches(["cluster", "name", "probability", "known"], read_dictionary=["name"]):
            rows = slice(first, first := first + len(batch))
            cluster, name, sure, is_known = batch.columns
            number = cluster.fill_null(-1).to_numpy(zero_copy_only=False)
            names = np.array([place.get(one, 0) for one in name.dictionary.to_pylist()] or [0], np.int32)
            old = is_known.to_numpy(zero_copy_only=False)
            group[rows] = np.where(old, names[name.indices.to_numpy(zero_copy_only=False)], number)
            probability[rows] = sure.to_numpy()
            if ((group[rows] >= 0) == old).any() or group[rows].max(initial=-1) >= n_new:
                raise damaged(self._run, FOLDER, "a row has neither a cluster nor a known class")
        return MachineAnswers(known, n_new, Lazy(self, ("image",), lambda row: row[0]), group, probability)

    def row(self, row: int, columns: Sequence[str]) -> tuple[Any, ...]:
        """Some fields of a row."""
        at = bisect_right(self._starts, row) - 1
        table, inside = self._kept(at), row - self._starts[at]
        return tuple(table[name][inside].as_py() for name in columns)

    def _read(self, at: int) -> Any:
        name, group, _ = self._groups[at]
        return self._opened(name).read_row_group(group, columns=["image", "source", "unlike", "probability"])

    def places_of(self, images: Iterable[str]) -> dict[str, int]:
        """The rows of images by their id; those that are there."""
        import pyarrow as pa
        from pyarrow import compute

        wanted, first, places = pa.array(list(images), pa.string()), 0, dict[str, int]()
        for batch in self.batches(["image"]):
            column = batch.column(0)
            rows = np.flatnonzero(compute.is_in(column, wanted).to_numpy(zero_copy_only=False))
            places |= {column[int(row)].as_py(): first + int(row) for row in rows}
            first += len(batch)
        return places

    def holding(self, text: str, most: int) -> tuple[int, dict[int, str]]:
        """How many images have this text in their id, whatever its case, and the first of them: row and id."""
        from pyarrow import compute

        total, first, matching = 0, 0, dict[int, str]()
        for batch in self.batches(["image"]):
            held = compute.match_substring(batch.column(0), text, ignore_case=True).to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(held)
            total += len(rows)
            matching |= {first + row: batch.column(0)[row].as_py() for row in rows[: most - len(matching)].tolist()}
            first += len(batch)
        return total, matching

    def predictions(self, state: State) -> Sequence[Answer]:
        """The answer for every image, with a person's edits."""
        shown = {cluster.number: shown_as(cluster) for cluster in state.clusters}

        def answer(row: RowFields) -> Answer:
            image, probability, unlike = row.values
            cluster, name, known = shown[int(state.group[row.number])]
            return Answer(image, cluster, name, probability, known, unlike)

        return Lazy(self, ("image", "probability", "unlike"), answer)

    def records(self, labelled: Sequence[ImageRecord]) -> Sequence[ImageRecord]:
        """All images: the labelled ones, and then those of the pile."""
        pile: Lazy[ImageRecord] = Lazy(self, ("image", "source"), lambda row: record(*row.values))
        return Joined(labelled, pile) if labelled else pile


class RowFields(NamedTuple):
    """Some fields of a row, and its number."""

    number: int
    values: tuple[Any, ...]

    def __getitem__(self, position: Any) -> Any:
        return self.values[position]


def record(image: str, source: str) -> ImageRecord:
    """Where an image of a pile of shards comes from: a file of its own or a shard, below whose address it has its id."""
    return ImageRecord(image, source, image, None)


def shown_as(cluster: Cluster) -> tuple[int | None, str, bool]:
    """Cluster, name and known of the predictions of its members."""
    if cluster.kind == "known":
        return None, cluster.name, True
    return cluster.number, cluster.name if cluster.kind == "new" else cluster.kind, False


class Lazy(Sequence[T], Generic[T]):
    """Something made of every row, when it is asked for."""

    def __init__(self, parts: Parts, columns: Sequence[str], make: Any) -> None:
        self.parts, self._columns, self._make = parts, columns, make

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[T]:
        number = 0
        for batch in self.parts.batches(self._columns):
            columns = [batch.column(name).to_pylist() for name in self._columns]
            for values in zip(*columns, strict=True):
                yield self._make(RowFields(number, values))
                number += 1

    @overload
    def __getitem__(self, position: int) -> T: ...
    @overload
    def __getitem__(self, position: slice) -> list[T]: ...
    def __getitem__(self, position: int | slice) -> T | list[T]:
        if isinstance(position, slice):
            return [self[row] for row in range(len(self))[position]]
        row = range(len(self))[position]
        return self._make(RowFields(row, self.parts.row(row, self._columns)))  # type: ignore[no-any-return]


class Joined(Sequence[T], Generic[T]):
    """One sequence behind another."""

    def __init__(self, first: Sequence[T], second: Sequence[T]) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __iter__(self) -> Iterator[T]:
        return chain(self._first, self._second)

    @overload
    def __getitem__(self, position: int) -> T: ...
    @overload
    def __getitem__(self, position: slice) -> list[T]: ...
    def __getitem__(self, position: int | slice) -> T | list[T]:
        if isinstance(position, slice):
            return [self[row] for row in range(len(self))[position]]
        place = range(len(self))[position]
        n = len(self._first)
        return self._first[place] if place < n else self._second[place - n]
