"""edits.jsonl: lines that are only ever added, each on the disk before it is confirmed.

Each line ends with a digest of itself and of all lines before it, and edits.json says how many lines were confirmed. So a line
that a crash cut off, which nobody was told of, can be told from one that has rotted, and a journal that has lost lines from
one that is short.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from autonovel.base.errors import InputError, TrainingError
from autonovel.machine.disk import sync_folder, whole
from autonovel.runs.files import lock

JOURNAL = "edits.jsonl"
CONFIRMED, NAMES = "edits.json", "names.json"
Entry = dict[str, Any]
"""A line of the journal; ``do`` says which verb it is."""

_CHECK = re.compile(rb',"check":"([0-9a-f]{16})"\}\n')
_CHECK_BYTES = len(b',"check":"0123456789abcdef"}\n')


class _Read(NamedTuple):
    """What a journal holds.

    Attributes:
        entries: of its whole lines.
        end: where the last of these ends.
        checks: the digest at the end of each; empty for a line that has none.
    """

    entries: list[Entry]
    end: int
    checks: list[str]


class _Confirmed(NamedTuple):
    """How many lines were confirmed at least, and the digest of the last of them."""

    edits: int
    check: str


def read_entries(path: Path) -> list[Entry]:
    """The entries of a journal. A last line that a crash cut off was never confirmed and does not count."""
    confirmed = _read_confirmed(path)  # before the journal, to which others may be adding
    try:
        with _opened(path, os.O_RDONLY) as file:
            content = file.readall()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); allow reading it.") from error
    return _checked(content, path, confirmed).entries


class OpenJournal:
    """A journal that nobody else can add to while it is open."""

    def __init__(self, path: Path, file: io.FileIO) -> None:
        self._path, self._file = path, file
        checked = _checked(file.readall(), path, _read_confirmed(path))
        self.entries, self._end = checked.entries, checked.end
        self._check = checked.checks[-1] if checked.checks else ""

    def append(self, entry: Entry) -> None:
        """Add a line; it is on the disk when this returns."""
        text = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
        check = _check_of(self._check, text)
        line = text + f',"check":"{check}"}}\n'.encode()
        with _kept(self._path):
            self._cut()
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._cut()  # a line that was not confirmed must not turn up later
                raise
        self._end += len(line)
        self._check = check
        self.entries.append(entry)
        with suppress(OSError):  # the journal is ahead of it then, as after a kill
            self._confirm()

    def _confirm(self) -> None:
        with whole(self._path.with_name(CONFIRMED), lasting=False) as path:
            path.write_text(json.dumps({"edits": len(self.entries), "check": self._check}) + "\n", encoding="utf-8")

    def _cut(self) -> None:
        """Drop what follows the last whole line: what a crash or a full disk left of another one."""
        self._file.truncate(self._end)
        self._file.seek(self._end)


@contextmanager
def open_journal(path: Path) -> Iterator[OpenJournal]:
    """Open a journal to add to it; waits while another process or thread does."""
    with ExitStack() as stack:
        with _kept(path):
            is_new = not path.exists()
            file = stack.enter_context(_opened(path, os.O_RDWR | os.O_CREAT))
            lock(file, wait=True)
            if is_new:
                sync_folder(path.parent)
            journal = OpenJournal(path, file)
        yield journal


def _opened(path: Path, flags: int) -> io.FileIO:
    """The journal itself: no link, which could lead to any file of the user's, and no pipe, which would never end."""
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) or path.is_symlink():
            raise InputError(
                f"{path} is a link, which may lead anywhere; put what it leads to in its place."
            ) from error
        if path.is_dir():
            raise InputError(f"{path} is a folder; put back a copy of the file.") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is no file; put back a copy of it.")
    return io.FileIO(descriptor, "r+" if flags & os.O_RDWR else "r")


@contextmanager
def _kept(path: Path) -> Iterator[None]:
    """Say in a sentence why an edit could not be kept."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"The edit could not be kept ({path}: {error.strerror or error}); make room or allow writing, and do it again."
        ) from error


def _checked(content: bytes, path: Path, confirmed: _Confirmed | None) -> _Read:
    """What the journal holds, refused where it has lost what was confirmed."""
    parsed = _parse(content, path)
    if confirmed is None:
        _check_names(parsed.entries, path)
        return parsed
    lost = confirmed.edits - len(parsed.entries)
    if lost > 0:
        raise InputError(
            f"{path} has lost {'its last edit' if lost == 1 else f'its last {lost} edits'} (of {confirmed.edits}); put back a "
            f"copy of it, or delete {path.with_name(CONFIRMED)} to go on without them."
        )
    if confirmed.edits and parsed.checks[confirmed.edits - 1] != confirmed.check:
        raise InputError(
            f"{path} holds other edits than were made here; put back a copy of it, or delete {path.with_name(CONFIRMED)} to "
            "go on with these."
        )
    return parsed


def _check_names(entries: list[Entry], path: Path) -> None:
    """Refuse a journal that knows less than names.json, which every edit writes: it was emptied, or another one."""
    file = path.with_name(NAMES)
    try:
        names = set(_json_of(file).values())
    except InputError:
        raise
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return
    if lost := sorted(map(str, names - {entry.get("name") for entry in entries if isinstance(entry.get("name"), str)})):
        raise InputError(
            f"{file} says that a cluster is called {lost[0]!r}, of which {path} knows nothing; put back a copy of {path.name}, "
            f"or delete {NAMES} to go on without."
        )


def _parse(content: bytes, path: Path) -> _Read:
    """The whole lines. A last one that is not whole was cut off, and whether it had been confirmed edits.json knows."""
    entries: list[Entry] = []
    checks: list[str] = []
    end = 0
    lines = [line for line in re.split(rb"(?<=\n)", content) if line]
    for number, line in enumerate(lines, start=1):
        before = checks[-1] if checks else ""
        try:
            entry = json.loads(line)
            if not line.endswith(b"\n") or not isinstance(entry, dict) or "do" not in entry:
                raise ValueError("not an entry")
            check = entry.pop("check", "")
            if (check or before) and not _is_whole(line, before):
                raise ValueError("not as it was written")
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise InputError(
                f"Line {number} of {path} is damaged; put back a copy of the file, or delete that line and those after it, and "
                f"{path.with_name(CONFIRMED)}."
            ) from error
        entries.append(entry)
        checks.append(check)
        end += len(line)
    return _Read(entries, end, checks)


def _is_whole(line: bytes, before: str) -> bool:
    """Whether a line holds the digest of itself and of those before it."""
    match = _CHECK.fullmatch(line[-_CHECK_BYTES:])
    return match is not None and match[1].decode() == _check_of(before, line[:-_CHECK_BYTES])


def _check_of(before: str, text: bytes) -> str:
    return hashlib.blake2b(before.encode() + b"\n" + text, digest_size=8).hexdigest()


def _json_of(file: Path) -> Any:
    with _opened(file, os.O_RDONLY) as opened:
        return json.loads(opened.readall())


def _read_confirmed(path: Path) -> _Confirmed | None:
    """What edits.json says; None where it says nothing that can be read, as of runs that nobody has edited."""
    file = path.with_name(CONFIRMED)
    try:
        content = _json_of(file)
        edits, check = content["edits"], content["check"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        return None
    return _Confirmed(edits, check) if type(edits) is int and edits >= 0 and isinstance(check, str) else None
