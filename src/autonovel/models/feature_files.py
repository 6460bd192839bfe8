"""Rows of features by the digest of their image, in memory and in files.

Every computation leaves files of its own that are written under another name and renamed when complete: nothing is ever changed
in place, and two processes at once need no lock. Files that nothing has used for a month are removed, and the oldest
of more than 4 GiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, option
from autonovel.machine.cache_folder import remove_oldest

Features = npt.NDArray[np.float32]

DIGEST = 22
"""Bytes that an image is known by."""

_MAGIC = b"autonovel features 2\n"
_HEAD = struct.Struct("<21sQ")  # magic, values of a row; records follow, and a checksum of everything before it
_CHECKSUM = 16
_SUFFIX = ".features"
_UNUSED_DAYS = 30
_MOST_BYTES = 4 * 2**30
"""Of all features that are kept; two million images of a network with 512 features."""

_FILE_SECONDS = 60.0
_FILE_BYTES = 2**28
"""A file is complete after so long or so much, so that a computation that is killed does not lose everything."""


class Store:
    """Rows of features by digest, in memory and in the files of one folder.

    Args:
        cache: folder for the files; None keeps rows in memory alone.
        made: what made the features; others live in another folder.
        width: values of a row.
    """

    def __init__(self, cache: Path | None, made: str, width: int) -> None:
        self._rows: dict[bytes, Features] = {}
        self._files: dict[bytes, Path] = {}
        self._used: set[Path] = set()
        self._writer: _Writer | None = None
        if cache is None:
            return
        folder = cache / hashlib.blake2b(made.encode(), digest_size=12).hexdigest()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"The cache folder {cache} cannot be used ({error.strerror or error}); give another as {option('cache')}."
            ) from None
        _remove_unused(cache)
        self._writer = _Writer(folder, width)
        for file in folder.glob(f"*{_SUFFIX}"):
            digests, rows = _read(file, width)
            self._rows.update(zip(digests, rows, strict=True))
            self._files.update(dict.fromkeys(digests, file))

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._rows

    def __getitem__(self, digest: bytes) -> Features:
        if digest in self._files:
            self._used.add(self._files[digest])
        return self._rows[digest]

    def add(self, digests: list[bytes], rows: Features) -> None:
        """Take in new rows."""
        self._rows.update(zip(digests, rows, strict=True))
        if self._writer is not None:
            self._writer.add(digests, rows)

    def close(self) -> None:
        """Complete the files, and remember that those which were there were used today."""
        if self._writer is not None:
            self._writer.close()
        for file in self._used:
            with contextlib.suppress(OSError):  # another user's, or just removed
                os.utime(file)


class _Writer:
    """Writes rows in a thread while the next ones are computed; a GPU makes a hundred megabytes a second."""

    def __init__(self, folder: Path, width: int) -> None:
        self._folder, self._width = folder, width
        self._thread: Executor | None = None
        self._writes: list[Future[None]] = []
        self._file: _File | None = None

    def add(self, digests: list[bytes], rows: Features) -> None:
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._writes.append(self._thread.submit(self._write, digests, rows))

    def close(self) -> None:
        if self._thread is not None:
            self._writes.append(self._thread.submit(self._complete))
            self._thread.shutdown()
            for write in self._writes:
                write.result()  # raises what nobody expected

    def _write(self, digests: list[bytes], rows: Features) -> None:
        records = np.empty(len(digests), _records(self._width))
        records["digest"] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST)
        records["row"] = rows
        try:
            if self._file is None:
                self._file = _File(self._folder)
                self._file.write(_HEAD.pack(_MAGIC, self._width))
            self._file.write(records.tobytes())
        except OSError:  # a full disk: the features are there all the same, and can be computed again
            self._give_up()
        else:
            if self._file.is_old():
                self._complete()

    def _complete(self) -> None:
        try:
            if self._file is not None:
                self._file.complete()
            self._file = None
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        if self._file is not None:
            self._file.remove()
        self._file = None


class _File:
    """A file that grows under a name that nobody reads."""

    def __init__(self, folder: Path) -> None:
        self._name = folder / f"{os.getpid()}-{os.urandom(6).hex()}{_SUFFIX}"
        self._part = folder / f".{self._name.stem}.part"
        self._file = self._part.open("xb")
        self._checksum = hashlib.blake2b(digest_size=_CHECKSUM)
        self._begun, self._size = time.monotonic(), 0

    def write(self, content: bytes) -> None:
        self._checksum.update(content)
        self._file.write(content)
        self._size += len(content)

    def is_old(self) -> bool:
        return time.monotonic() - self._begun > _FILE_SECONDS or self._size > _FILE_BYTES

    def complete(self) -> None:
        """Without waiting for the disk: the checksum tells if the power failed meanwhile."""
        self._file.write(self._checksum.digest())
        self._file.close()
        os.replace(self._part, self._name)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._part.unlink(missing_ok=True)


def _records(width: int) -> np.dtype[Any]:
    return np.dtype([("digest", np.uint8, DIGEST), ("row", "<f4", width)])


def _read(file: Path, width: int) -> tuple[list[bytes], Features]:
    """The digests and rows of a file; none where it is damaged in any way or was removed meanwhile."""
    nothing: tuple[list[bytes], Features] = ([], np.empty((0, width), np.float32))
    try:
        if not file.is_file():  # a pipe would never end
            return nothing
        content = memoryview(file.read_bytes())
        magic, columns = _HEAD.unpack_from(content)
    except (OSError, struct.error):
        return nothing
    body, kind = content[_HEAD.size : -_CHECKSUM], _records(width)
    if magic != _MAGIC or columns != width or len(body) % kind.itemsize:
        return nothing
    if hashlib.blake2b(content[:-_CHECKSUM], digest_size=_CHECKSUM).digest() != content[-_CHECKSUM:]:
        return nothing
    records = np.frombuffer(body, kind)
    digests = records["digest"].tobytes()
    return [digests[i : i + DIGEST] for i in range(0, len(digests), DIGEST)], records["row"]


def _remove_unused(cache: Path) -> None:
    """Remove what nothing has used for a month, the oldest of too many, and parts that a killed process left a day ago."""
    for pattern, days in ((f"*/*{_SUFFIX}", _UNUSED_DAYS), ("*/.*.part", 1)):
        for file in cache.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > days * 86400:
                    file.unlink()
    remove_oldest(cache.glob(f"*/*{_SUFFIX}"), _MOST_BYTES)
