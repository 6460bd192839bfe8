"""Where things are kept that can always be computed again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def user_cache() -> Path:
    """The folder ``autonovel`` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autonovel"


def remove_oldest(files: Iterable[Path], most: int) -> None:
    """Remove the files that were used longest ago, until all together have no more than so many bytes."""
    files_kept = []
    for file in files:
        with suppress(OSError):  # another process may just have removed it
            status = file.stat()
            files_kept.append((status.st_mtime, status.st_size, file))
    total = sum(size for _, size, _ in files_kept)
    for _, size, file in sorted(files_kept):
        if total <= most:
            return
        with suppress(OSError):
            file.unlink()
            total -= size
