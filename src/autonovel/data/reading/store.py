"""Decoded images on disk: one file of pixels with its own index, memory-mapped, never half-written.

A cache file holds a fixed head, the pixels of all usable images as one uint8 array, an index (which source files,
their sizes and times, what came of each) and a tail with the length and checksum of the index. It is built under
another name and renamed when complete, so that nobody ever sees half a file, even with several builders at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, option
from autonovel.data.images import Pixels
from autonovel.data.reading.decode import Form
from autonovel.data.reading.workers import PixelFile
from autonovel.machine.cache_folder import remove_oldest
from autonovel.machine.disk import check_room

HEAD = 4096
"""Pixels start here, on a page of their own."""

_MAGIC = b"autonovel images 2\n"
_TAIL = struct.Struct("<19sQ16s")
_LOOKED_AT = 64 * 2**20
"""Bytes of pixels that are compared with their checksums when a file is opened; of a larger one, rows evenly taken."""

_UNUSED_DAYS = 30
_MOST_BYTES = 20 * 2**30
"""Of cache files that are kept beside the one that is being made."""

_HELD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Index:
    """What a cache file knows about its sources.

    Attributes:
        form: size and channels of the images.
        key: whatever else decided the content (labels, requested settings), as text to compare.
        names: a unique name for each entry, that is, for each image that was to be decoded.
        stamps: int64 (n, 2): size and time of change of each.
        kept: which entries have a row of pixels; the rows are in their order.
        fingerprints: int64 (n,): equal for entries of equal content.
        remarks: what was found about an entry: its position, the reason, whether it was left out, whether that counts.
    """

    form: Form
    key: str
    names: list[str]
    stamps: npt.NDArray[np.int64]
    kept: npt.NDArray[np.bool_]
    fingerprints: npt.NDArray[np.int64]
    remarks: list[tuple[int, str, bool, bool]]

    def same_sources(self, names: list[str], stamps: npt.NDArray[np.int64]) -> bool:
        """Whether the sources are still what they were."""
        return self.names == names and np.array_equal(self.stamps, stamps)


class Builder:
    """A cache file in the making: rows are written in any order, then it is sealed under its final name."""

    def __init__(self, path: Path, form: Form, n_rows: int) -> None:
        self.path, self.form = Path(path), form
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
        self.target = PixelFile(unfinished, form, HEAD)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self.path)
            _remove_unused(self.path)
            self._reserve(HEAD + n_rows * form.n_bytes)
        except OSError as error:
            self.discard()
            raise InputError(
                f"The cache folder {self.path.parent} cannot be used ({error.strerror or error}); "
                f"give another as {option('cache')}."
            ) from None

    def _reserve(self, n_bytes: int) -> None:
        check_room(
            self.path.parent, n_bytes, "Decoded images take", "make room, choose smaller images or another cache folder"
        )
        with self.target.path.open("xb") as file:
            file.write(_MAGIC)
            file.truncate(n_bytes)

    def rows(self, n_rows: int) -> Pixels:
        """The pixels as a writable array."""
        shape = (n_rows, *self.form.shape)
        return np.memmap(self.target.path, np.uint8, "r+", HEAD, shape) if n_rows else np.empty(shape, np.uint8)

    def seal(self, index: Index) -> Pixels:
        """Close the gaps of entries without pixels, write the index and put the file in its place."""
        kept, unfinished, row_bytes = np.flatnonzero(index.kept), self.target.path, self.form.n_bytes
        with unfinished.open("r+b") as file:
            if len(kept) != len(index.kept):
                _close_gaps(file, kept, row_bytes)
            file.truncate(HEAD + len(kept) * row_bytes)
            file.seek(HEAD)
            checksums = np.array([zlib.crc32(file.read(row_bytes)) for _ in kept], np.uint32)
            content = _pack(index, checksums)
            file.seek(0, os.SEEK_END)
            file.write(content)
            file.write(_TAIL.pack(_MAGIC, len(content), _checksum(content)))
            file.flush()
            os.fsync(file.fileno())
        pixels = _map(unfinished, index.form, len(kept))  # stays this very file, even if another builder replaces it
        os.replace(unfinished, self.path)
        return pixels

    def discard(self) -> None:
        """Remove what was written so far."""
        with contextlib.suppress(OSError):
            self.target.path.unlink()


def open_cache(path: Path) -> tuple[Pixels, Index] | None:
    """The pixels and index of a cache file; None when there is none or it is damaged in any way."""
    try:
        if not Path(path).is_file():  # a pipe would never end
            return None
        with Path(path).open("rb") as file:
            total = file.seek(0, os.SEEK_END)
            file.seek(max(0, total - _TAIL.size))
            magic, length, checksum = _TAIL.unpack(file.read(_TAIL.size))
            end_of_pixels = total - _TAIL.size - length
            if magic != _MAGIC or end_of_pixels < HEAD:
                return None
            file.seek(end_of_pixels)
            content = file.read(length)
            if _checksum(content) != checksum:
                return None
            index, checksums = _unpack(content)
            row_bytes = index.form.n_bytes
            n_rows = int(index.kept.sum())
            if end_of_pixels != HEAD + n_rows * row_bytes:
                return None
            if len(checksums) != n_rows:
                return None
            for row in _looked_at(n_rows, row_bytes):
                file.seek(HEAD + row * row_bytes)
                if zlib.crc32(file.read(row_bytes)) != checksums[row]:
                    return None
        with contextlib.suppress(OSError):  # not allowed for another user's file, which may be read all the same
            os.utime(path)  # marks it as used today
        return _map(path, index.form, n_rows), index
    except (OSError, struct.error, ValueError, KeyError, TypeError):
        return None


def gather(images: Pixels, positions: npt.NDArray[np.int64]) -> Pixels:
    """The images at these positions as an ordinary array.

    The pages just read from a large memory map are given back, so that resident memory does not grow during a pass
    over the data; they stay in the system's file cache, where the next pass finds them.
    """
    rows = np.asarray(images[positions])
    if images.nbytes > _HELD_BYTES:
        release(images)
    return rows


def release(images: Pixels) -> None:
    """Give the resident pages of a memory map back to the system; does nothing to other arrays."""
    mapped = getattr(images, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _map(path: Path, form: Form, n_rows: int) -> Pixels:
    # Copy-on-write: torch accepts the array as writable, and no write ever reaches the file.
    shape = (n_rows, *form.shape)
    return np.memmap(path, np.uint8, "c", HEAD, shape) if n_rows else np.empty(shape, np.uint8)


def _close_gaps(file: BinaryIO, kept: npt.NDArray[np.int64], row_bytes: int) -> None:
    """Move the kept rows to the front, in order; each moves towards the beginning, so none is overwritten unread."""
    for target, row in enumerate(kept.tolist()):
        if target != row:
            file.seek(HEAD + row * row_bytes)
            content = file.read(row_bytes)
            file.seek(HEAD + target * row_bytes)
            file.write(content)


def _looked_at(n_rows: int, row_bytes: int) -> Sequence[int]:
    """The rows that are compared with their checksums."""
    most = max(1, _LOOKED_AT // row_bytes)
    return range(n_rows) if n_rows <= most else np.linspace(0, n_rows - 1, most).astype(np.int64).tolist()


def _pack(index: Index, checksums: npt.NDArray[np.uint32]) -> bytes:
    names = "\0".join(index.names).encode("utf-8", "surrogateescape")
    head = {
        "size": index.form.size,
        "channels": index.form.channels,
        "key": index.key,
        "n": len(index.names),
        "names_bytes": len(names),
        "remarks": index.remarks,
    }
    arrays = [
        index.stamps.astype("<i8"),
        index.kept.astype("u1"),
        index.fingerprints.astype("<i8"),
        checksums.astype("<u4"),
    ]
    return b"".join([json.dumps(head).encode(), b"\n", names, *(array.tobytes() for array in arrays)])


def _unpack(content: bytes) -> tuple[Index, npt.NDArray[np.uint32]]:
    first, _, rest = content.partition(b"\n")
    head = json.loads(first)
    n, end = head["n"], head["names_bytes"]
    names = rest[:end].decode("utf-8", "surrogateescape").split("\0") if n else []
    stamps = np.frombuffer(rest, "<i8", 2 * n, end).reshape(n, 2).astype(np.int64)
    kept = np.frombuffer(rest, "u1", n, end + 16 * n).astype(bool)
    fingerprints = np.frombuffer(rest, "<i8", n, end + 17 * n).astype(np.int64)
    remarks = [(int(p), str(reason), bool(out), bool(counts)) for p, reason, out, counts in head["remarks"]]
    form = Form(head["size"], head["channels"])
    checksums = np.frombuffer(rest, "<u4", int(kept.sum()), end + 25 * n).astype(np.uint32)
    return Index(form, head["key"], names, stamps, kept, fingerprints, remarks), checksums


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished files that a killed process left behind: a live one would have written within the last day."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        with contextlib.suppress(OSError):  # another process may just have finished or removed it
            if time.time() - part.stat().st_mtime > 86400:
                part.unlink()


def _remove_unused(path: Path) -> None:
    """Remove cache files beside this one that nobody has used for a month; a process that maps one keeps its content."""
    for file in path.parent.glob(f"*{path.suffix}"):
        with contextlib.suppress(OSError):
            if file != path and time.time() - file.stat().st_mtime > _UNUSED_DAYS * 86400 and _is_ours(file):
                file.unlink()
    with contextlib.suppress(OSError):
        others = [file for file in path.parent.glob(f"*{path.suffix}") if file != path and _is_ours(file)]
        remove_oldest(others, _MOST_BYTES)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)).startswith(b"autonovel images ")
