"""Everything that is printed for a person goes through here."""

from __future__ import annotations

import re
from typing import TextIO

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a terminal obeys instead of showing it, but for ends of lines and tabs; and what no stream can encode."""


def printable(text: str) -> str:
    r"""The text with control characters written out.

    Names of files and classes may hold any of them: one that starts an escape sequence could clear the screen or hide a line.

    >>> print(printable("\x1b[2Jcat\r"))
    \x1b[2Jcat\r
    """
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: object, stream: TextIO | None = None) -> None:
    """Print a line or several; to stdout when no stream is given."""
    print(printable(str(text)), file=stream, flush=True)
