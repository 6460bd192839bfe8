"""Putting one file in its place: by copying, linking or moving it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from autonovel.machine.disk import whole


def device_of(path: Path) -> int:
    """The file system that a path is or will be on."""
    return next(p for p in (path, *path.absolute().parents) if p.exists()).stat().st_dev


def is_full(error: OSError) -> bool:
    """Whether there was no room left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def copy(source: Path, target: Path, *, lasting: bool = False) -> None:
    """Copy a file with its dates; it is there whole or not at all."""
    with whole(target, lasting=lasting) as part:
        shutil.copy2(source, part)


def link(source: Path, target: Path) -> None:
    """A symbolic link to the file."""
    target.symlink_to(source.absolute())


def hardlink(source: Path, target: Path) -> None:
    """A second name for the same file."""
    target.hardlink_to(source.resolve())


def move(source: Path, target: Path) -> None:
    """Move a file; to another file system, by a copy that is on the disk before the source is deleted."""
    if source.is_symlink():  # which may lead somewhere relative to where it is
        target.symlink_to(source.resolve())
        source.unlink()
        return
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(source, target, lasting=True)
        source.unlink()


PLACE: dict[str, Callable[[Path, Path], None]] = {"copy": copy, "link": link, "hardlink": hardlink, "move": move}
"""How files get into folders, by name."""
