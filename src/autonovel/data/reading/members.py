"""The content of one image of a shard, found again by its id: for a person who looks at a result."""

from __future__ import annotations

import tarfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from autonovel.data.reading.decode import MOST_BYTES
from autonovel.data.reading.problems import as_path, printable

SHARDS = (".tar", ".parquet", ".pq")
STORES_AGREED = threading.Event()
"""Set where a person agreed that pictures are fetched from the stores that a run names: a stranger's names whatever it likes."""


def in_shard(source: str) -> bool:
    """Whether the source of an image is a shard, not a file of its own."""
    return source.lower().endswith(SHARDS)


def content_in(source: str, image: str) -> bytes | None:
    """The bytes of an image of this shard; None where they cannot be had."""
    place = image.removeprefix(f"{source}/")
    try:
        if not source.lower().endswith(".tar"):
            return _cell(source, int(place))
        offset, size = _members(source)[place]
        with _opened(source) as file:
            file.seek(offset)
            content: bytes = file.read(min(size, MOST_BYTES))
        return content
    except Exception:  # a stranger's file, or a store: whatever is wrong, there is no picture
        return None


def _opened(source: str) -> Any:
    if "://" in source:
        if not STORES_AGREED.is_set():
            raise PermissionError
        import fsspec

        return fsspec.open(source).open()
    path = Path(as_path(source))
    if not path.is_file():  # a pipe would never end
        raise FileNotFoundError
    return path.open("rb")


@lru_cache(maxsize=64)
def _members(source: str) -> dict[str, tuple[int, int]]:
    """Where the content of each member of a tar is, and how long."""
    with _opened(source) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        return {printable(member.name): (member.offset_data, member.size) for member in tar if member.isfile()}


def _cell(source: str, row: int) -> bytes | None:
    from pyarrow import parquet

    from autonovel.data.reading.shards import image_column, rows_at_once

    with _opened(source) as file:
        table = parquet.ParquetFile(file)
        columns = [image_column(table.schema_arrow)[0]]
        rows_at_once(table.metadata, columns)  # refuses what would fill the memory
        for group in range(table.metadata.num_row_groups):
            n = table.metadata.row_group(group).num_rows
            if row < n:
                cells_read = table.read_row_group(group, columns=columns).slice(row, 1).to_pylist()[0].values()
                cells = (value.get("bytes") if isinstance(value, dict) else value for value in cells_read)
                return next((value for value in cells if isinstance(value, bytes)), None)
            row -= n
    return None
