"""edits.jsonl: lines that are only ever added, each on the disk before it is confirmed."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError, TrainingError
from autonovel.machine.disk import sync_folder
from autonovel.runs.files import lock

JOURNAL = "edits.jsonl"
Entry = dict[str, Any]
"""A line of the journal; ``do`` says which verb it is."""


def read_entries(path: Path) -> list[Entry]:
    """The entries of a journal. A last line that a crash cut off was never confirmed and does not count."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return _parse(content, path)[0]


class OpenJournal:
    """A journal that nobody else can add to while it is open."""

    def __init__(self, path: Path, file: io.FileIO) -> None:
        self._path, self._file = path, file
        self.entries, self._end = _parse(file.readall(), path)

    def append(self, entry: Entry) -> None:
        """Add a line; it is on the disk when this returns."""
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
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
        self.entries.append(entry)

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
            file = stack.enter_context(io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+"))
            lock(file, wait=True)
            if is_new:
                sync_folder(path.parent)
            journal = OpenJournal(path, file)
        yield journal


@contextmanager
def _kept(path: Path) -> Iterator[None]:
    """Say in a sentence why an edit could not be kept."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"The edit could not be kept ({path}: {error.strerror or error}); make room or allow writing, and do it again."
        ) from error


def _parse(content: bytes, path: Path) -> tuple[list[Entry], int]:
    """The entries, and where the last whole line ends."""
    entries: list[Entry] = []
    end = 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if not line.endswith(b"\n") or not isinstance(entry, dict) or "do" not in entry:
                raise ValueError("not an entry")
        except ValueError as error:
            if number == len(lines):
                break
            raise InputError(f"Line {number} of {path} is damaged; correct or delete that line.") from error
        entries.append(entry)
        end += len(line)
    return entries, end
