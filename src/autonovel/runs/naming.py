"""Which names a cluster may have."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from autonovel.base.errors import InputError

if TYPE_CHECKING:
    from autonovel.runs.state import State

LONGEST_NAME = 200
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that turn the text around them, so that a name reads as another one."""

_USUAL = re.compile(r"(new )+[0-9]+")


def check_name(state: State, number: int, name: Any) -> str:
    """The name as it is kept, without blanks around it; refused with the reason where it cannot be."""
    from autonovel.runs.state import usual_name  # which needs numpy

    if not isinstance(name, str):
        raise InputError(f"The name of cluster {number} must be text, not {name!r}.")
    clean = _normal(name.strip())
    if all(unicodedata.category(letter)[0] in "CZ" for letter in clean):
        raise InputError(
            f"The name of cluster {number} is empty; give it a word, or undo to go back to an earlier one."
        )
    if len(clean) > LONGEST_NAME:
        raise InputError(f"The name of cluster {number} has {len(clean)} letters; use {LONGEST_NAME} at most.")
    if any(unicodedata.category(letter) in _CONTROLS or letter in _DIRECTIONS for letter in clean):
        raise InputError(f"The name {clean!r} has control characters in it; leave them out.")
    if clean == "not a class":
        raise InputError(f"{clean!r} is no name; if cluster {number} is none, mark it as {clean!r}.")
    if clean in map(_normal, state.known):
        raise InputError(
            f"{clean!r} is a known class; if cluster {number} is that class, mark it as {clean!r} instead of naming it."
        )
    if taken := [n for n in state.marks if n != number and state.names.get(n) == clean]:
        raise InputError(f"Cluster {taken[0]} is called {clean!r} already; merge the two or choose another name.")
    if _USUAL.fullmatch(clean) and clean != usual_name(number, state.known):
        raise InputError(f"{clean!r} is what a cluster is called while it has no name; choose another name.")
    return clean


def _normal(text: str) -> str:
    """One spelling of letters that Unicode can spell in several ways."""
    return unicodedata.normalize("NFC", text)
