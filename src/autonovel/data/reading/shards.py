"""Shards of large collections, read from their beginning to their end: tar in the layout of WebDataset, Parquet with the content
of images, and lists of files; on this machine or, through fsspec, in a store.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import hashlib
import itertools
import json
import os
import posixpath
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from autonovel.base.errors import InputError, TrainingError
from autonovel.data.reading.decode import MOST_BYTES, UnusableImageError
from autonovel.data.reading.described import parquet_of
from autonovel.data.reading.folder import IMAGE_SUFFIXES, Files, changed
from autonovel.data.reading.parts import FileReader
from autonovel.data.reading.problems import Problem, printable
from autonovel.data.reading.tables import LABEL_COLUMNS, PATH_COLUMNS, as_label, read_csv
from autonovel.data.reading.workers import read_content, slice_of
from autonovel.machine.disk import check_room, temporary_folder

T = TypeVar("T")

FILES_AT_ONCE = 1024
"""Of a shard that is made of single files."""
WAITS = (0.5, 1, 2, 4, 8, 16)
"""Seconds before a store that does not answer is asked again."""

_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
}
_SHARD_SUFFIXES = (".tar", ".parquet", ".pq")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ROWS = 256
_HELD = 64 * 2**20
"""Bytes of the images of a Parquet file that are in memory at a time, unless one is larger."""
_MOST_PACKED = 100
"""No images can be packed so many times smaller, since they are packed already."""
_LABEL_BYTES = 2**20
"""Of a member of a tar that says the class."""
_TMPDIR = "make room there, or name another folder in TMPDIR"


@dataclass(frozen=True)
class ShardToRead:
    """What one worker reads from its beginning to its end.

    Attributes:
        kind: 'tar', 'parquet' or 'files'.
        address: where it is; of files, what the user gave.
        stamp: changes when its content does.
        paths: of files.
        labels: of files.
    """

    kind: str
    address: str
    stamp: str
    paths: tuple[str, ...] = ()
    labels: tuple[str | None, ...] = ()


class Entry(NamedTuple):
    """One image of a shard.

    Attributes:
        image: its name, unique over all shards.
        source: the address of the shard, or of the file.
        place: what finds it again in there.
        label: the name of its class; None where it has none.
        content: of the image file.
        offset: where the content begins in a tar.
    """

    image: str
    source: str
    place: str
    label: str | None
    content: bytes
    offset: int = 0


def is_remote(address: str | os.PathLike[str]) -> bool:
    """Whether this is the address of something in a store."""
    return "://" in os.fspath(address)


def holds_shards(given: str | os.PathLike[str]) -> bool:
    """Whether what the user gave is in a store, or names tar or Parquet shards; a folder of shards is asked for apart."""
    text = os.fspath(given)
    if is_remote(text) or text.lower().endswith(".tar"):
        return not os.path.isdir(text)
    return text.lower().endswith(_SHARD_SUFFIXES) and (not os.path.exists(text) or _holds_images(text))


def is_folder_of_shards(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds shards, and beside them only what describes them."""
    try:
        names = [name.lower() for name in os.listdir(path) if not name.startswith(".")]
    except OSError:
        return False
    shards = [name for name in names if name.endswith(_SHARD_SUFFIXES)]
    return bool(shards) and all(name.endswith((*_SHARD_SUFFIXES, ".md", ".json", ".txt")) for name in names)


def _holds_images(path: str) -> bool:
    """Whether a Parquet file holds images themselves, not paths of them."""
    try:
        return image_column(parquet_of().read_schema(path))[1] != "path"
    except Exception:  # reading it as a table says what is wrong
        return False


def list_shards(given: str | os.PathLike[str], *, labelled: bool = False) -> list[ShardToRead]:
    """The shards that an address names, in the order of their names.

    Args:
        given: a file or a folder of shards, with ``{000..999}``, ``{a,b}`` and ``*`` for several; in a store also a folder of
            image files, or a CSV table of them.
        labelled: a folder of image files has one sub-folder for each class.
    """
    text = os.fspath(given)
    paths = list(dict.fromkeys(path for pattern in _without_braces(text) for path in _matching(pattern)))
    shards = [path for path in paths if path.lower().endswith(_SHARD_SUFFIXES)]
    if shards:
        return [
            ShardToRead("tar" if path.lower().endswith(".tar") else "parquet", path, _stamp(path)) for path in shards
        ]
    if is_remote(text) and text.lower().endswith((".csv", ".tsv")):
        return _remote_table(text)
    if is_remote(text):
        return _remote_files(text, paths, labelled=labelled)
    raise InputError(f"There are no shards {printable(text)}; give .tar or .parquet files, or a folder of them.")


def shards_of_files(files: Files, origin: str) -> list[ShardToRead]:
    """Files on this machine, some hundred in a shard."""
    shards = []
    for start in range(0, len(files.paths), FILES_AT_ONCE):
        some = slice(start, start + FILES_AT_ONCE)
        paths, labels = tuple(files.paths[some]), tuple(files.labels[some])
        stamp = _hashed(paths, labels, files.stamps[some, :2].tolist())
        shards.append(ShardToRead("files", origin, stamp, paths, labels))
    return shards


def shards_of(given: Any, *, labelled: bool = False) -> tuple[list[ShardToRead], list[Problem]]:
    """The shards of a folder, a table, tar or Parquet files or an address, and what was found that is no image.

    Args:
        given: as a user gives it.
        labelled: a folder of images has one sub-folder for each class.
    """
    if isinstance(given, str | os.PathLike) and (holds_shards(given) or is_folder_of_shards(given)):
        return list_shards(given, labelled=labelled), []
    from autonovel.data.reading.opening import open_parts  # which opens shards too

    [part] = open_parts(given if labelled else None, None if labelled else given, alone=False)
    if not isinstance(part.reader, FileReader):
        raise InputError("Only images in files can be described; give a folder, a table, shards or an address.")
    return shards_of_files(part.reader.files, part.origin), part.problems


def read_shard(shard: ShardToRead) -> Iterator[Entry | Problem]:
    """The images of a shard and what cannot be read of it, one after the other.

    Raises:
        TrainingError: the store does not answer, which is no fault of the data.
    """
    if shard.kind == "files":
        yield from _read_files(shard)
        return
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(fetched(shard.address))
        except FileNotFoundError:
            yield Problem(printable(shard.address), "no such shard")
            return
        seen: set[str] = set()
        for entry in (_read_tar if shard.kind == "tar" else _read_parquet)(shard, path):
            if isinstance(entry, Entry):
                if entry.image in seen:
                    yield Problem(entry.image, "a second member of this name")
                    continue
                seen.add(entry.image)
            yield entry


# ------------------------------------------------------------------------------------------------ stores


def file_system(address: str) -> tuple[Any, str]:
    """The store of an address and the path in it; says which package is missing."""
    scheme = address.partition("://")[0].lower()
    try:
        import fsspec
        from fsspec.core import url_to_fs

        store, path = url_to_fs(address)
    except ImportError:
        packages = " ".join(("fsspec", *filter(None, [_PACKAGES.get(scheme)])))
        raise InputError(f"Reading {scheme}:// needs other packages: pip install {packages}.") from None
    except ValueError as error:
        known = ", ".join(f"{name}://" for name in ("s3", "gs", "hf") if name in fsspec.available_protocols())
        raise InputError(f"{address} cannot be opened ({error}); stores are {known}.") from None
    return store, str(path)


@contextlib.contextmanager
def fetched(address: str) -> Iterator[str]:
    """A path on this machine with the content of a shard: itself, or a copy for as long as it is in use."""
    if not is_remote(address):
        if not os.path.exists(address):
            raise FileNotFoundError
        yield address
        return
    store, path = file_system(address)
    folder = temporary_folder()
    try:
        copy = os.path.join(folder, "shard")

        def get() -> None:
            size = store.info(path)["size"]
            check_room(folder.parent, size or 0, f"{printable(address)} takes", _TMPDIR)
            store.get_file(path, copy)
            if size is not None and os.path.getsize(copy) != size:
                raise ConnectionError("the connection ended early")

        asked_again(address, store, get)
        yield copy
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def asked_again(address: str, store: Any, work: Callable[[], T]) -> T:
    """What the work gives, which asks a store; where that does not answer, it is asked again after a while."""
    for wait in (*WAITS, None):
        try:
            return work()
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise InputError(f"{address} may not be read ({_short(error)}); check the credentials.") from None
        except OSError as error:
            if getattr(error, "errno", None) == 28:  # the disk of this machine is full
                raise
            if wait is None:
                raise TrainingError(
                    f"{address} does not answer ({_short(error)}); the same command goes on from here."
                ) from None
        except Exception as error:  # each store has errors of its own
            if wait is None:
                raise TrainingError(
                    f"{address} cannot be read ({_short(error)}); the same command goes on from here."
                ) from None
        time.sleep(wait)
        with contextlib.suppress(Exception):
            store.invalidate_cache()
    raise AssertionError


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _without_braces(pattern: str) -> list[str]:
    """What a pattern with braces names, as a shell reads it: ``{08..11}`` and ``{a,b}``.

    >>> _without_braces("s-{08..10}.tar")
    ['s-08.tar', 's-09.tar', 's-10.tar']
    """
    choices = []
    parts = _BRACES.split(pattern)
    for number, part in enumerate(parts):
        first, dots, last = part.partition("..")
        if number % 2 == 0:
            choices.append([part])
        elif dots and first.isdecimal() and last.isdecimal():
            width = max(len(first), len(last)) if "0" in (first[0], last[0]) else 0
            choices.append([f"{i:0{width}d}" for i in range(int(first), int(last) + 1)])
        else:
            choices.append(part.split(",") if "," in part else ["{" + part + "}"])
    return ["".join(words) for words in itertools.product(*choices)]


def _matching(pattern: str) -> list[str]:
    """The files that one pattern without braces names; in a folder, all of them."""
    if not is_remote(pattern):
        if os.path.isdir(pattern):
            return sorted(glob.glob(os.path.join(glob.escape(pattern), "*")))
        if os.path.exists(pattern) or not glob.has_magic(pattern):
            return [pattern]  # of a range, one that is not there is a shard that is reported
        return sorted(glob.glob(pattern))
    store, path = file_system(pattern)

    def listed() -> list[str]:
        if glob.has_magic(path):
            return [str(name) for name in store.glob(path)]
        if path.lower().endswith((*_SHARD_SUFFIXES, ".csv", ".tsv")):
            return [path]
        return [str(name) for name in store.find(path)]

    try:
        names = asked_again(pattern, store, listed)
    except FileNotFoundError:
        names = []
    return sorted(str(store.unstrip_protocol(name)) for name in names)


def _stamp(address: str) -> str:
    """What changes when the content of a file does; empty for one that is not there."""
    if not is_remote(address):
        with contextlib.suppress(OSError):
            status = os.stat(address)
            return _hashed(status.st_size, changed(status))
        return ""
    store, path = file_system(address)
    try:
        about = asked_again(address, store, lambda: store.info(path))
    except FileNotFoundError:
        return ""
    return _hashed(
        *(str(about.get(key)) for key in ("size", "ETag", "etag", "LastModified", "mtime", "updated", "blob_id"))
    )


def _hashed(*values: object) -> str:
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def _remote_files(given: str, matching: Sequence[str], *, labelled: bool) -> list[ShardToRead]:
    paths = [path for path in matching if posixpath.splitext(path)[1].lower() in IMAGE_SUFFIXES]
    if not paths:
        raise InputError(f"There are no images and no shards in {given}; give an address that holds some.")
    labels: list[str | None] = [None] * len(paths)
    if labelled:
        root = given.partition("://")[2].rstrip("/") + "/"
        below = [path.partition("://")[2].removeprefix(root).split("/") for path in paths]
        labels = [parts[0] if len(parts) > 1 else None for parts in below]
    return _in_shards(given, paths, labels)


def _remote_table(given: str) -> list[ShardToRead]:
    with fetched(given) as copy:
        paths, labels, _ = read_csv(Path(copy))
    folder = posixpath.dirname(given)
    return _in_shards(given, [path if "://" in path else f"{folder}/{path}" for path in paths], labels)


def _in_shards(given: str, paths: Sequence[str], labels: Sequence[str | None]) -> list[ShardToRead]:
    starts = range(0, len(paths), FILES_AT_ONCE)
    parts = [(tuple(paths[i : i + FILES_AT_ONCE]), tuple(labels[i : i + FILES_AT_ONCE])) for i in starts]
    return [ShardToRead("files", given, _hashed(*part), *part) for part in parts]


# ------------------------------------------------------------------------------------------------ the content


def _read_files(shard: ShardToRead) -> Iterator[Entry | Problem]:
    for path, label in zip(shard.paths, shard.labels, strict=True):
        name = printable(path)
        try:
            yield Entry(name, name, "", label, content_of(path))
        except UnusableImageError as unusable:
            yield Problem(name, str(unusable))


def content_of(path: str) -> bytes:
    """The bytes of an image file here or in a store; raises UnusableImageError with the reason."""
    if not is_remote(path):
        return read_content(path)
    store, inside = file_system(path)
    try:
        return bytes(asked_again(path, store, lambda: store.cat_file(inside)))
    except FileNotFoundError:
        raise UnusableImageError("no such file") from None


def _read_tar(shard: ShardToRead, path: str) -> Iterator[Entry | Problem]:
    """The images of a tar in the layout of WebDataset: the members with one key, one after the other, are a sample."""
    called = printable(shard.address)
    key: tuple[str, str] | None = None
    label: str | None = None
    images: list[tuple[str, int, bytes]] = []

    def sample() -> Iterator[Entry]:
        for name, offset, content in images:
            yield Entry(f"{called}/{printable(name)}", called, name, label, content, offset)

    n, held, end = 0, 0, ""
    try:
        with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if not member.isfile():
                    continue
                folder, _, base = member.name.rpartition("/")
                stem, _, kind = base.partition(".")
                kind = kind.rpartition(".")[2].lower()
                if (folder, stem) != key:
                    yield from sample()
                    key, label, images, held = (folder, stem), None, [], 0
                is_image = f".{kind}" in IMAGE_SUFFIXES
                if not is_image and kind not in ("cls", "json"):
                    continue
                most = MOST_BYTES if is_image else _LABEL_BYTES
                if member.size > most - held * is_image:  # a few bytes of a tar can stand for gigabytes
                    yield Problem(f"{called}/{printable(member.name)}", f"larger than {most // 2**20} MiB")
                    continue
                reader = tar.extractfile(member)
                content = b"" if reader is None else reader.read()
                if is_image:
                    images.append((member.name, member.offset_data, content))
                    n, held = n + 1, held + len(content)
                else:
                    label = _label_in(kind, content) if label is None else label
            file.seek(tar.offset)
            end = "" if file.read(512) == bytes(512) else "its end is missing"
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        end = _short(error)
    yield from sample()
    if end:
        yield Problem(called, f"a shard that is cut off or damaged after {n:,} images ({end})")


def _label_in(kind: str, content: bytes) -> str | None:
    """The class that a member ``.cls`` or ``.json`` names."""
    try:
        text = content.decode("utf-8").strip()
        if kind == "cls":
            return as_label(text)
        about = json.loads(text)
        names = ("cls", *LABEL_COLUMNS)
        value = next((about[name] for name in names if name in about), None) if isinstance(about, dict) else about
        return as_label(value) if isinstance(value, str | int | float) else None
    except (ValueError, RecursionError):
        return None


def _read_parquet(shard: ShardToRead, path: str) -> Iterator[Entry | Problem]:
    called, n = printable(shard.address), 0
    try:
        with parquet_of().ParquetFile(path) as file:
            schema = file.schema_arrow
            column, form = image_column(schema)
            label_column = next(
                (name for name in schema.names if name.lower() in LABEL_COLUMNS and name != column), None
            )
            names = _class_names(schema, label_column)
            wanted = [name for name in (column, label_column) if name is not None]
            at_once = rows_at_once(file.metadata, wanted)
            for batch in file.iter_batches(at_once, columns=wanted):
                labels = [None] * len(batch) if label_column is None else batch.column(label_column).to_pylist()
                for cell, value in zip(batch.column(column).to_pylist(), labels, strict=True):
                    image, row = f"{called}/{n}", str(n)
                    n += 1
                    label = (
                        names[value]
                        if names and isinstance(value, int) and 0 <= value < len(names)
                        else as_label(value)
                    )
                    try:
                        yield Entry(image, called, row, label, _cell(cell, form, shard.address))
                    except UnusableImageError as unusable:
                        yield Problem(image, str(unusable))
    except (InputError, TrainingError):
        raise
    except Exception as error:  # a damaged file raises almost anything
        yield Problem(called, f"a shard that is cut off or damaged after {n:,} images ({_short(error)})")


def rows_at_once(metadata: Any, columns: Sequence[str]) -> int:
    """How many rows of these columns may be in memory together: a value can be as large as all that was packed with it.

    Raises:
        ValueError: a few kilobytes that would be gigabytes.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    parts = [group.column(number) for group in groups for number in range(group.num_columns)]
    largest = 1
    for part in parts:
        if part.path_in_schema.partition(".")[0] in columns:
            packed, size = part.total_compressed_size, part.total_uncompressed_size
            if size > _HELD and size > _MOST_PACKED * packed:
                raise ValueError(f"{packed / 2**20:,.1f} MiB hold {size / 2**20:,.0f} MiB, as no images do")
            largest = max(largest, size)
    return max(1, min(_ROWS, _HELD // largest))


def _cell(cell: Any, form: str, address: str) -> bytes:
    """The content of an image file in a cell: itself, a struct of it and a path, or a path beside the shard."""
    content = cell.get("bytes") if form == "struct" and cell is not None else cell if form == "bytes" else None
    if content or (form == "bytes" and content is not None):
        if len(content) > MOST_BYTES:
            raise UnusableImageError(f"larger than {MOST_BYTES // 2**20} MiB")
        return bytes(content)
    if form != "path":
        cell = None if cell is None or form == "bytes" else cell.get("path")
    if not cell:
        raise UnusableImageError("no image")
    if "://" in cell or os.path.isabs(cell):
        return content_of(cell)
    return content_of(
        f"{posixpath.dirname(address)}/{cell}" if is_remote(address) else os.path.join(os.path.dirname(address), cell)
    )


def image_column(schema: Any) -> tuple[str, str]:
    """The column that holds images, and how: 'struct', 'bytes' or 'path'."""
    import pyarrow as pa

    def form(kind: Any) -> str:
        if pa.types.is_struct(kind):
            return "struct" if kind.get_field_index("bytes") >= 0 else ""
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return "bytes"
        return ""

    forms = {name: form(schema.field(name).type) for name in schema.names}
    order = sorted((name for name in forms if forms[name]), key=lambda name: name.lower() not in PATH_COLUMNS)
    if order:
        return order[0], forms[order[0]]
    paths = next((name for name in schema.names if name.lower() in PATH_COLUMNS), None)
    if paths is None:
        raise InputError(
            f"A Parquet file has no column of images or paths, but {', '.join(schema.names[:8])[:200]!r}; "
            "give one with a column 'image'."
        )
    return paths, "path"


def _class_names(schema: Any, column: str | None) -> list[str]:
    """The names of classes that are numbers in the column, where the file says them as Hugging Face writes it."""
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])
        return [str(name) for name in about["info"]["features"][column]["names"]]
    except (KeyError, TypeError, ValueError):
        return []


# ------------------------------------------------------------------------------------------------ for those who read at random


class Spool:
    """The content of the images of all shards where a reader finds each by itself.

    Of tar files on this machine, it stays where it is; everything else is written one after the other into a file of its own,
    which goes with the process.
    """

    def __init__(self, shards: Sequence[ShardToRead]) -> None:
        self.entries: list[Entry] = []
        self.problems: list[Problem] = []
        self.slices: list[str] = []
        self.stamps: list[tuple[int, int]] = []
        folder = temporary_folder()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        spool = os.path.join(folder, "images")
        with open(spool, "wb") as file:
            for shard in shards:
                mark = int(shard.stamp[:15] or "0", 16)
                in_place = shard.kind == "tar" and not is_remote(shard.address)
                for entry in read_shard(shard):
                    if isinstance(entry, Problem):
                        self.problems.append(entry)
                        continue
                    size, offset = len(entry.content), entry.offset if in_place else file.tell()
                    if not in_place:
                        if offset // _HELD != (offset + size) // _HELD:
                            check_room(
                                folder.parent, 4 * _HELD, f"The images of {printable(shard.address)} take", _TMPDIR
                            )
                        file.write(entry.content)
                    self.entries.append(entry._replace(content=b""))
                    self.slices.append(slice_of(shard.address if in_place else spool, offset, size))
                    self.stamps.append((size, mark))
