"""Files that appear whole or not at all, and whether a folder can be written, asked before the work that would end there."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from autonovel.base.errors import InputError, option

CUT_OFF = re.compile(r"\..+\.part|\.tmp\w{6}", re.DOTALL)
"""What a process that was killed while it wrote leaves behind: files under our own names for them, and under safetensors'."""

_LONGEST = 150
"""Bytes of a name that are kept in the name of its unfinished file; file systems take 255."""


@contextmanager
def whole(target: Path, *, lasting: bool = True) -> Iterator[Path]:
    """A path to write to; the file moves to its place when it is complete.

    Args:
        target: the file to be.
        lasting: it is on the disk before it takes its place, and the folder knows it before this returns, so that it is there
            if the machine stops; and what killed processes left in the folder goes. Of many files that can be made again,
            that would take longer than to write them.
    """
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        import hashlib

        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    part = target.with_name(f".{name}.{_machine()}-{os.getpid()}.part")
    if lasting:
        remove_cut_off(target.parent)
    try:
        yield part
        if lasting:
            _sync(part)
        os.replace(part, target)
        if lasting:
            sync_folder(target.parent)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def remove_cut_off(folder: Path) -> None:
    """Remove what processes of this machine left unfinished in a folder when they were killed."""
    if os.name != "posix":  # elsewhere one cannot ask for a process without doing something to it
        return
    ours = re.compile(rf"\..+\.{_machine()}-([0-9]+)\.part(\.\w+)?", re.DOTALL)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = ours.fullmatch(entry.name) if entry.name.startswith(".") else None
            if match and not _lives(int(match[1])):
                with suppress(OSError):
                    os.unlink(entry.path)


def temporary_folder() -> Path:
    """A new folder for what goes with this process, where the system has such; what killed processes left there goes now."""
    import shutil  # slow to import, for --help
    import tempfile

    folder = Path(tempfile.gettempdir())
    ours = re.compile(rf"autonovel-{_machine()}-([0-9]+)-[0-9a-f]+")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = ours.fullmatch(entry.name) if os.name == "posix" else None
            if match and not _lives(int(match[1])) and not entry.is_symlink():
                shutil.rmtree(entry.path, ignore_errors=True)  # another user's stays
    made = folder / f"autonovel-{_machine()}-{os.getpid()}-{os.urandom(6).hex()}"
    made.mkdir(mode=0o700)
    return made


def check_room(folder: Path, n_bytes: float, what: str, instead: str) -> None:
    """Refuse work whose files would not fit on the disk: ``what`` they are, and what to do ``instead`` of it."""
    import shutil  # slow to import, for --help

    free = shutil.disk_usage(nearest_there_is(folder)).free
    if n_bytes > free:
        raise InputError(f"{what} {in_gigabytes(n_bytes)} and {folder} has room for {in_gigabytes(free)}; {instead}.")


def in_gigabytes(n_bytes: float) -> str:
    """For a person: 1.2 GB."""
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes > 5e7 else f"{n_bytes / 1e6:,.1f} MB"


@lru_cache(1)
def _machine() -> str:
    """Tells machines apart that share a disk."""
    import hashlib  # slow to import, for --help
    import socket

    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Keep the names in a folder too, should the machine stop now."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network disks do not know the wish
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def nearest_there_is(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    return next((p for p in (path, *path.parents) if os.path.exists(p)), Path("."))


def why_not_writable(folder: Path) -> str:
    """Why nothing can be written in a folder, or in the nearest one above it that there is; nothing where it can.

    Rights alone do not say: a file system may be read-only or full, a name too long.
    """
    import tempfile  # slow to import, for --help

    try:
        folder.exists()  # fails for a name that the system does not take
        # a file that has no name where the system allows it, so that a kill leaves none behind
        with tempfile.TemporaryFile(prefix=".", suffix=".part", dir=nearest_there_is(folder)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def refuse_other_folder(path: Path) -> None:
    """Refuse a folder with anything but what a run leaves that ended before its first file was written."""
    if any(entry.name != "state" and not CUT_OFF.fullmatch(entry.name) for entry in path.iterdir()):
        raise InputError(f"The folder {path} is not empty and holds no run; give another folder as {option('out')}.")
