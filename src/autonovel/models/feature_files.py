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
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

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

_AT_ONCE = 1024
"""Rows that are read at a time."""
_FILE_SECONDS = 60.0
_FILE_BYTES = 2**28
"""A file is complete after so long or so much, so that a computation that is killed does not lose everything."""


class Store:
    """Rows of features by digest, in the files of one folder; those that are in no complete file yet are in memory.

    Args:
        cache: folder for the files.
        made: what made the features; others live in another folder.
        width: values of a row.
    """

    def __init__(self, cache: Path, made: str, width: int) -> None:
        self._fresh: dict[bytes, Features] = {}
        self._places: dict[bytes, tuple[int, int]] = {}
        self._files: list[Path] = []
        self._used: set[int] = set()
        self._opened: tuple[int, BinaryIO] | None = None
        self._kind = _records(width)
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
            self._take(file, _read(file, width))

    def get(self, digest: bytes) -> Features | None:
        """The row of an image; None where there is none, or its file was removed meanwhile."""
        if (row := self._fresh.get(digest)) is not None:
            return row
        place = self._places.get(digest)
        if place is None:
            return None
        number, index = place
        try:
            if self._opened is None or self._opened[0] != number:
                self._let_go()
                self._opened = number, self._files[number].open("rb")
            self._opened[1].seek(_HEAD.size + index * self._kind.itemsize)
            record = self._opened[1].read(self._kind.itemsize)
        except OSError:
            return None
        if len(record) < self._kind.itemsize or record[:DIGEST] != digest:
            return None
        self._used.add(number)
        found: Features = np.frombuffer(record, self._kind)["row"][0]
        return found

    def add(self, digests: list[bytes], rows: Features) -> None:
        """Take in new rows."""
        self._fresh.update(zip(digests, rows, strict=True))
        self._writer.add(digests, rows)
        while self._writer.done:  # what lies in a file need not lie in memory
            file, written = self._writer.done.popleft()
            self._take(file, written)
            for digest in written:
                self._fresh.pop(digest, None)

    def close(self) -> None:
        """Complete the files, and remember that those which were there were used today."""
        self._let_go()
        self._writer.close()
        for number in self._used:
            with contextlib.suppress(OSError):  # another user's, or just removed
                os.utime(self._files[number])

    def _take(self, file: Path, digests: list[bytes]) -> None:
        self._files.append(file)
        number = len(self._files) - 1
        self._places.update((digest, (number, index)) for index, digest in enumerate(digests))

    def _let_go(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None


class _Writer:
    """Writes rows in a thread while the next ones are computed; a GPU makes a hundred megabytes a second."""

    def __init__(self, folder: Path, width: int) -> None:
        self._folder, self._width = folder, width
        self._thread: Executor | None = None
        self._writes: list[Future[None]] = []
        self._file: _File | None = None
        self._written: list[bytes] = []
        self.done: deque[tuple[Path, list[bytes]]] = deque()
        """Complete files, and the digests of their rows."""

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
            self._written += digests
        except OSError:  # a full disk: the features are there all the same, and can be computed again
            self._give_up()
        else:
            if self._file.is_old():
                self._complete()

    def _complete(self) -> None:
        try:
            if self._file is not None:
                self.done.append((self._file.complete(), self._written))
            self._file, self._written = None, []
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        if self._file is not None:
            self._file.remove()
        self._file, self._written = None, []


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

    def complete(self) -> Path:
        """Without waiting for the disk: the checksum tells if the power failed meanwhile."""
        self._file.write(self._checksum.digest())
        self._file.close()
        os.replace(self._part, self._name)
        return self._name

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self._part.unlink(missing_ok=True)


def _records(width: int) -> np.dtype[Any]:
    return np.dtype([("digest", np.uint8, DIGEST), ("row", "<f4", width)])


def _read(file: Path, width: int) -> list[bytes]:
    """The digests of the rows of a file; none where it is damaged in any way or was removed meanwhile."""
    kind, checksum = _records(width), hashlib.blake2b(digest_size=_CHECKSUM)
    digests: list[bytes] = []
    try:
        if not file.is_file():  # a pipe would never end
            return []
        with file.open("rb") as opened:
            n, odd = divmod(os.fstat(opened.fileno()).st_size - _HEAD.size - _CHECKSUM, kind.itemsize)
            head = opened.read(_HEAD.size)
            if odd or n < 0 or _HEAD.unpack(head) != (_MAGIC, width):
                return []
            checksum.update(head)
            while len(digests) < n:
                content = opened.read(min(_AT_ONCE, n - len(digests)) * kind.itemsize)
                checksum.update(content)
                some = np.frombuffer(content, kind)["digest"].tobytes()
                digests += [some[i : i + DIGEST] for i in range(0, len(some), DIGEST)]
            return digests if opened.read() == checksum.digest() else []
    except (OSError, ValueError, struct.error):
        return []


def _remove_unused(cache: Path) -> None:
    """Remove what nothing has used for a month, the oldest of too many, and parts that a killed process left a day ago."""
    for pattern, days in ((f"*/*{_SUFFIX}", _UNUSED_DAYS), ("*/.*.part", 1)):
        for file in cache.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > days * 86400:
                    file.unlink()
    remove_oldest(cache.glob(f"*/*{_SUFFIX}"), _MOST_BYTES)
