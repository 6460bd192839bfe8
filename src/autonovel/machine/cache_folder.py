"""Where things are kept that can always be computed again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The folder ``autonovel`` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autonovel"
