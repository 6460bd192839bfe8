"""Whether a folder can be written, asked before the work that would end there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def nearest_there_is(path: Path) -> Path:
    """The path, or the nearest one above it that exists."""
    return next((p for p in (path, *path.parents) if os.path.exists(p)), Path("."))


def why_not_writable(folder: Path) -> str:
    """Why nothing can be written in a folder, or in the nearest one above it that there is; nothing where it can.

    Rights alone do not say: a file system may be read-only or full, a name too long.
    """
    try:
        folder.exists()  # fails for a name that the system does not take
        with tempfile.TemporaryDirectory(prefix=".", dir=nearest_there_is(folder)):
            return ""
    except OSError as error:
        return error.strerror or str(error)
