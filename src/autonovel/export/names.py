"""Names of classes and files that every file system takes."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

LONGEST = 120
"""Bytes of a name; file systems take 255, and paths are limited too."""

_FORBIDDEN = re.compile(r'[\\/:*?"<>|]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices."""


def safe_name(name: str, longest: int = LONGEST) -> str:
    """A name of one part of a path: nothing in it leads elsewhere, is invisible or is refused by a common file system.

    >>> safe_name("a/b: c?"), safe_name(".."), safe_name("con"), safe_name("heron")
    ('a_b_ c_', '_', '_con', 'heron')
    """
    clean = "".join("_" if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in name)
    clean = _FORBIDDEN.sub("_", unicodedata.normalize("NFC", clean)).strip()
    clean = clean.rstrip(". ")
    if clean.startswith("."):  # which would hide it
        clean = "_" + clean.lstrip(".")
    if _RESERVED.fullmatch(clean):
        clean = "_" + clean
    return shortened(clean or "_", longest)


def shortened(name: str, longest: int) -> str:
    """The name cut to this many bytes, with a few letters that tell it from others cut alike."""
    if len(name.encode()) <= longest:
        return name
    mark = "~" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return name.encode()[: longest - len(mark)].decode(errors="ignore").rstrip(". ") + mark


class Namer:
    """Gives names within a folder, each once: a second ``a.jpg`` becomes ``a (2).jpg``.

    Letters that differ only in case are the same here, as on many file systems.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {_folded(name) for name in taken}
        self._next: dict[str, int] = {}

    def give(self, name: str) -> str:
        """This name, or one like it that is free."""
        unused, key = name, _folded(name)
        dot = name.rfind(".", 1)
        stem, suffix = (name[:dot], name[dot:]) if dot > 0 and len(name) - dot <= 10 else (name, "")
        number = self._next.get(key, 2)
        while _folded(unused) in self._taken:
            end = f" ({number}){suffix}"
            unused = shortened(stem, 240 - len(end.encode())) + end
            number += 1
        self._next[key] = number
        self._taken.add(_folded(unused))
        return unused


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
