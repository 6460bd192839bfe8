"""Faults of single files: listed instead of stopping the work, as long as they are not too many."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autonovel.base.errors import InputError

MOST_LEFT_OUT = 0.10
"""The largest share of images that may be unusable; above it something is wrong with the data as a whole."""


@dataclass(frozen=True)
class Problem:
    """One file, and what is wrong with it.

    Attributes:
        path: the file or folder, in printable form.
        reason: what is wrong, as a short clause.
        left_out: whether the file is left out; if not, this is a mere remark.
        counts: whether it counts as an unusable image. A stray text file or the second copy of an image does not.
        copy: whether it was left out of the unlabelled images because it is among the labelled ones.
    """

    path: str
    reason: str
    left_out: bool = True
    counts: bool = True
    copy: bool = False


def printable(path: str | os.PathLike[str]) -> str:
    r"""A path as text that any file or terminal can hold: bytes that are not UTF-8 become escapes like ``\xff``.

    A name that holds such an escape as text keeps apart from it: its backslash is escaped too. :func:`as_path` turns it back.

    >>> printable("caf\udce9.jpg"), printable("café.jpg"), printable(r"caf\xe9.jpg")
    ('caf\\xe9.jpg', 'café.jpg', 'caf\\x5cxe9.jpg')
    """
    text = os.fspath(path)
    if os.name == "posix" and "\\x" in text:  # elsewhere a backslash divides folders
        text = _ESCAPED.sub(r"\\x5c\1", text)
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "backslashreplace")


def as_path(text: str) -> str:
    """The path that :func:`printable` made this text of."""
    if os.name != "posix" or "\\x" not in text:
        return text
    return os.fsdecode(
        _ESCAPED_BYTE.sub(lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "surrogateescape"))
    )


_ESCAPED = re.compile(r"\\(x[0-9a-f]{2})")
_ESCAPED_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


PROBLEM_FIELDS = ("path", "reason", "left_out")
"""The columns of ``problems.csv``."""


def as_rows(problems: Iterable[Problem]) -> list[tuple[str, str, str]]:
    """The rows of ``problems.csv``."""
    return [(problem.path, problem.reason, "yes" if problem.left_out else "no") for problem in problems]


def summary(problems: Sequence[Problem]) -> str:
    """How often each reason occurs, most frequent first, as one clause; at most four reasons.

    >>> summary([Problem("a", "empty file"), Problem("b", "truncated"), Problem("c", "empty file")])
    '2 empty file, 1 truncated'
    """
    counts: dict[str, int] = {}
    for problem in problems:
        reason = problem.reason.partition(" (")[0].partition(" as ")[0].rstrip(",")  # without what is particular
        counts[reason] = counts.get(reason, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    text = ", ".join(f"{count:,} {reason}" for reason, count in ordered[:4])
    return text + (f", and {len(ordered) - 4} more reasons" if len(ordered) > 4 else "")


def refuse_if_too_many(problems: Sequence[Problem], n_used: int) -> None:
    """Stop when more than a tenth of the images cannot be used."""
    unusable = [problem for problem in problems if problem.left_out and problem.counts]
    total = n_used + len(unusable)
    if len(unusable) > MOST_LEFT_OUT * total:
        raise InputError(
            f"{len(unusable):,} of {total:,} images cannot be used ({summary(unusable)}), for example "
            f"{unusable[0].path!r}; repair or remove them, since {MOST_LEFT_OUT:.0%} is the most that may be left out."
        )
