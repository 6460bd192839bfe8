"""What a finished run wrote, by digest: whoever reads a file later knows that it is still that.

checksums.sha256 is what ``sha256sum`` writes, and ``sha256sum --check checksums.sha256`` in the folder reads it too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

FILE = "checksums.sha256"

_LINE = re.compile(r"([0-9a-f]{64})  ([^\n\0]+)")
_CHANGING = frozenset(
    (FILE, "edits.jsonl", "edits.json", "names.json", "map.npy", "report.html", "clusters.png", "state/lock")
)
"""Files that change after the end of a run, or that can be made again from the others."""


def digest_of(path: Path) -> str:
    """The digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse(text: str) -> dict[str, frozenset[str]]:
    """The digest of each file, two while it is written again; raises ValueError for what no run writes."""
    digests: dict[str, frozenset[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2].startswith("/") or ".." in Path(match[2]).parts:
            raise ValueError(f"line {number} is not a checksum")
        digests[match[2]] = digests.get(match[2], frozenset()) | {match[1]}
    return digests


def as_text(digests: Mapping[str, Collection[str]]) -> str:
    """The lines of the file."""
    return "".join(f"{digest}  {name}\n" for name in sorted(digests) for digest in sorted(digests[name]))


def files_of(folder: Path) -> list[str]:
    """The files of a run that stay as they are: those in the folder and the contact sheets and parts."""
    everything = [*folder.iterdir(), *(folder / "thumbnails").glob("*"), *(folder / "predictions").glob("*")]
    names = (path.relative_to(folder).as_posix() for path in everything if path.is_file() and not path.is_symlink())
    return sorted(name for name in names if name not in _CHANGING and not Path(name).name.startswith("."))
