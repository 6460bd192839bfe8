"""The classes of all images as a table: CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autonovel.base.errors import needed
from autonovel.export.formats import Options, check_file
from autonovel.export.items import Item, items_of
from autonovel.runs.answers import Answer
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

COLUMNS = (*Answer._fields, "source", "path", "machine")


def write_csv(run: Run, to: Path, options: Options) -> Path:
    """Write ``labels.csv``; yes and no are 1 and 0, and what there is not is empty."""
    file = check_file(to, "csv", "labels.csv", options)
    RunFiles(file.parent).write_rows(file.name, COLUMNS, map(_cells, _rows(run, options)))
    return file


def write_spreadsheet(run: Run, to: Path, options: Options) -> Path:
    """Write ``labels.csv`` for programs that compute: a text that they would take for a formula has an apostrophe before it."""
    file = check_file(to, "spreadsheet", "labels.csv", options)
    rows = ([_plain(cell) for cell in _cells(row)] for row in _rows(run, options))
    RunFiles(file.parent).write_rows(file.name, COLUMNS, rows)
    return file


def write_parquet(run: Run, to: Path, options: Options) -> Path:
    """Write ``labels.parquet``."""
    needed("Writing Parquet", "tables", "pyarrow")
    import pyarrow
    from pyarrow import parquet

    file = check_file(to, "parquet", "labels.parquet", options)
    text, yes_or_no = pyarrow.string(), pyarrow.bool_()
    kinds = (text, pyarrow.int64(), text, pyarrow.float64(), yes_or_no, yes_or_no, text, text, text)
    columns = list(zip(*_rows(run, options), strict=True)) or [()] * len(COLUMNS)
    arrays = [pyarrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    with RunFiles(file.parent).whole(file.name) as path:
        parquet.write_table(pyarrow.table(arrays, names=list(COLUMNS)), path)
    return file


def _rows(run: Run, options: Options) -> Iterator[tuple[Any, ...]]:
    return map(_row, items_of(run, all=options.all))


def _cells(row: tuple[Any, ...]) -> list[Any]:
    return ["" if value is None else int(value) if isinstance(value, bool) else value for value in row]


def _plain(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _row(i: Item) -> tuple[Any, ...]:
    return i.image, i.cluster, i.name, i.probability, i.kind == "known", i.unlike, i.source, i.path, i.machine or None
