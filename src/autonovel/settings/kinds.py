"""The types that settings and flags have: whether a value is of one, and what one takes, in words."""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from autonovel.base.errors import listed

_IN_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    NoneType: "none",
}


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; none where it is no union."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else ()


def is_a(kind: Any, value: Any) -> bool:
    """Whether a value, which may have been read from JSON, is of this type.

    >>> is_a(int, 5), is_a(int, True), is_a(float, 5), is_a(tuple[float, float], [0.4, 1])
    (True, False, True, True)
    """
    outer, inner = get_origin(kind), get_args(kind)
    if outer is Literal:
        return isinstance(value, str | int | bool) and value in inner
    if members(kind):
        return any(is_a(part, value) for part in inner)
    if outer is tuple:
        if not isinstance(value, list | tuple):
            return False
        parts = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return len(parts) == len(value) and all(map(is_a, parts, value))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def in_words(kind: Any, none: str = "none") -> str:
    """What may be given, for a sentence.

    Args:
        kind: the type; one of our own may say it itself, as ``WORDS``.
        none: how nothing is spelt where it is given.

    >>> in_words(int | Literal["auto", "true"]), in_words(tuple[float, float]), in_words(tuple[int, ...])
    ('a whole number, auto or true', '2 numbers', 'any number of whole numbers')
    """
    return listed(_alternatives(kind, none), "or")


def _alternatives(kind: Any, none: str) -> list[str]:
    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        many = "any number of" if Ellipsis in others else 1 + len(others)
        each = f"{_IN_WORDS[first].removeprefix('a ')}s" if first in _IN_WORDS else in_words(first)
        return [f"{many} {each}"]
    if get_origin(kind) is Literal:
        return list(map(str, get_args(kind)))
    if kind is NoneType:
        return [none]
    named = _IN_WORDS.get(kind, getattr(kind, "WORDS", "a value"))
    return [word for part in members(kind) for word in _alternatives(part, none)] or [named]
