"""Tables in CSV or Parquet that name image files and, where known, their classes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError
from autonovel.data.reading.folder import IMAGE_SUFFIXES, Files, list_files
from autonovel.data.reading.problems import Problem, printable

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".parquet", ".pq"})

PATH_COLUMNS = (
    "path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "img", "img_path",
)  # fmt: skip
LABEL_COLUMNS = ("label", "class", "class_name", "classname", "category", "target", "y", "labels", "species")
_NO_LABEL = ("", "-1")
_LONGEST = 8192
"""Bytes of a path or a class, on average."""
_BYTES_A_ROW = 500
"""What a file that is named takes in memory, all in all."""
_GIVE = "give a CSV or Parquet table with the columns path,label"


def list_table(table: Path) -> Files:
    """The files that a table names; paths are relative to its folder, an empty class or -1 means unlabelled."""
    parquet = table.suffix.lower() in (".parquet", ".pq")
    paths, labels, problems = _read_parquet(table) if parquet else read_csv(table)
    if not paths and not problems:
        raise InputError(f"{printable(table)} names no images; {_GIVE}.")
    folder = os.path.dirname(table)
    full = [path if not path or "://" in path else os.path.join(folder, path) for path in paths]
    files = list_files(full, labels, [path or f"{printable(table)}: a row without a path" for path in paths])
    files.root = folder
    files.problems[:0] = problems
    return files


def read_csv(table: Path) -> tuple[list[str], list[str | None], list[Problem]]:
    """Paths, labels and unusable rows of a table in text."""
    text = _text(table)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)))
    except csv.Error as error:
        raise InputError(f"{printable(table)} cannot be read as a table ({error}); {_GIVE}.") from None
    numbered = [(number, row) for number, row in enumerate(rows, 1) if any(cell.strip() for cell in row)]
    if not numbered:
        raise InputError(f"{printable(table)} is empty; it needs the columns path,label.")
    header = [cell.strip().lower() for cell in numbered[0][1]]
    path_column = _column(header, PATH_COLUMNS)
    if path_column is None and os.path.splitext(header[0])[1] in IMAGE_SUFFIXES and len(header) <= 2:
        path_column, label_column = 0, 1 if len(header) == 2 else None
    elif path_column is None:
        raise InputError(
            f"{printable(table)} has no column 'path', its first line is {', '.join(header[:8])[:200]!r}; {_GIVE}."
        )
    else:
        label_column = _column(header, LABEL_COLUMNS)
        numbered = numbered[1:]
    paths, labels, problems = [], [], []
    for number, row in numbered:
        if len(row) > len(header):
            cells = f"{len(row)} cells where the table has {len(header)} columns"
            problems.append(Problem(f"{printable(table)}: row {number}", cells))
            continue
        paths.append(row[path_column].strip() if path_column < len(row) else "")
        labels.append(as_label(row[label_column]) if label_column is not None and label_column < len(row) else None)
    return paths, labels, problems


def _read_parquet(table: Path) -> tuple[list[str], list[str | None], list[Problem]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("Reading Parquet needs pyarrow: pip install 'autonovel[tables]'.") from None
    try:
        with parquet.ParquetFile(table) as file:
            schema, metadata = file.schema_arrow, file.metadata
        header = [name.strip().lower() for name in schema.names]
        columns = [_column(header, PATH_COLUMNS), _column(header, LABEL_COLUMNS)]
        wanted = [schema.names[column] for column in columns if column is not None]
        refuse_too_large(table, metadata, wanted, longest=_LONGEST)
        content = parquet.read_table(table, columns=wanted)
        values = [None if c is None else content.column(schema.names[c]).to_pylist() for c in columns]
    except InputError:
        raise
    except Exception as error:  # a damaged file raises almost anything
        raise InputError(
            f"{printable(table)} cannot be read as Parquet ({' '.join(str(error).split())[:120]}); {_GIVE}."
        ) from None
    if values[0] is None:
        raise InputError(
            f"{printable(table)} has no column 'path', but {', '.join(schema.names[:8])[:200]!r}; {_GIVE}."
        )
    if any(not isinstance(path, str | None) for path in values[0]):
        raise InputError(
            f"The column {schema.names[columns[0] or 0]!r} of {printable(table)} does not hold paths; {_GIVE}."
        )
    paths = [path or "" for path in values[0]]
    return paths, [None] * len(paths) if values[1] is None else [as_label(value) for value in values[1]], []


def refuse_too_large(table: Path, metadata: Any, columns: Sequence[str], *, longest: int | None = None) -> None:
    """Refuse a Parquet table that would not fit into memory: a few kilobytes can hold gigabytes.

    Args:
        table: where it is.
        metadata: what its end says of it.
        columns: those that will be read.
        longest: bytes of a text at most, where texts are read.
    """
    import torch

    from autonovel.machine.memory import free_memory

    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    read = [part for part in parts if part.path_in_schema.partition(".")[0] in columns]
    held = sum(part.total_uncompressed_size for part in read)
    if longest is not None and held > 2**20 + metadata.num_rows * longest:
        raise InputError(f"{printable(table)} holds texts that are too long for paths and classes; {_GIVE}.")
    values = sum(part.num_values for part in read)
    needed, free = metadata.num_rows * _BYTES_A_ROW + 8 * values + held, free_memory(torch.device("cpu"))
    if needed > free / 2:
        raise InputError(
            f"{printable(table)} holds {metadata.num_rows:,} rows, which take about {needed / 2**30:.1f} GiB of memory, and "
            f"{free / 2**30:.1f} GiB are free; divide it into several tables."
        )


def as_label(value: Any) -> str | None:
    """A value of a column of classes as the name of a class; None where it says that there is none."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, float) and value.is_integer():  # integers become floats in a column with gaps
        value = int(value)
    text = str(value).strip()
    return None if text in _NO_LABEL else text


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _text(table: Path) -> str:
    try:
        content = table.read_bytes()
    except OSError as error:
        raise InputError(f"{printable(table)} cannot be read ({error.strerror or error}); {_GIVE}.") from None
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise InputError(f"{printable(table)} is not a text table in UTF-8; save it as CSV in UTF-8.") from None


def _delimiter(text: str) -> str:
    first = text.lstrip("\r\n").partition("\n")[0]
    return max(",;\t", key=first.count)
