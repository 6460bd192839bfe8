"""Image files, decoded part by part while what was decoded before is put to use; nothing is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from autonovel.data.images import Pixels
from autonovel.data.reading.decode import Form
from autonovel.data.reading.workers import Chunk, Decoders, Outcome, PixelFile, available_cores, decode_chunk, is_few
from autonovel.machine.disk import check_room, temporary_folder

AT_ONCE = 1024
"""Files of a part at most."""
PART_BYTES = 64 * 2**20
"""Bytes of a part at most."""
PARTS = 4
"""How many parts there is room for: one in use, the others being decoded."""


class Decoded(NamedTuple):
    """A part of the files, decoded.

    Attributes:
        pixels: uint8 (m, size, size, channels) of those that can be used, in their order.
        reasons: for every file of the part why it cannot be used; empty where it can.
    """

    pixels: Pixels
    reasons: list[str]


def stream_files(paths: Sequence[str], form: Form, *, workers: int | None = None) -> Iterator[Decoded]:
    """The files in their order, part by part.

    While one part is in use, worker processes decode the next ones into a small file, row by row in a circle.
    """
    workers = workers or available_cores()
    size = max(1, min(AT_ONCE, PART_BYTES // form.n_bytes))
    parts = [range(start, min(start + size, len(paths))) for start in range(0, len(paths), size)]
    folder = temporary_folder()
    name = folder / "pixels"
    try:
        needed = min(PARTS * size, len(paths)) * form.n_bytes
        check_room(folder.parent, needed, "Decoded images take", "make room there, or name another folder in TMPDIR")
        with name.open("xb") as file:
            file.truncate(PARTS * size * form.n_bytes)
        target = PixelFile(name, form)
        rows = np.asarray(np.memmap(name, np.uint8, "r", 0, (PARTS * size, *form.shape)))
        outcomes = _here(paths, parts, target) if is_few(len(paths)) else _beside(paths, parts, target, workers)
        for part, came in zip(parts, outcomes, strict=True):
            used = [position % len(rows) for position, outcome in zip(part, came, strict=True) if not outcome.reason]
            yield Decoded(rows[used], [outcome.reason for outcome in came])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here(paths: Sequence[str], parts: Sequence[range], target: PixelFile) -> Iterator[list[Outcome]]:
    """What came of the files of each part, decoded in this process."""
    with target.path.open("r+b") as file:
        for part in parts:
            outcomes = decode_chunk(_chunk(paths, part, len(parts[0])), file, target)
            file.flush()
            yield outcomes


def _beside(paths: Sequence[str], parts: Sequence[range], target: PixelFile, workers: int) -> Iterator[list[Outcome]]:
    """What came of the files of each part, decoded by worker processes that are ahead by as many parts as there is room."""
    size, by_position = len(parts[0]), dict[int, Outcome]()
    missing = [len(part) for part in parts]
    share = max(1, min(64, (PARTS - 1) * size // (4 * workers)))
    position_of: dict[int, int] = {}  # the file whose pixels go into a row now
    with Decoders(target, min(workers, -(-len(paths) // share))) as decoders:

        def give(part: range) -> None:
            for start in range(part.start, part.stop, share):
                some = range(start, min(start + share, part.stop))
                chunk = _chunk(paths, some, size)
                position_of.update(zip(chunk.rows, some, strict=True))
                decoders.give(chunk)

        for part in parts[: PARTS - 1]:
            give(part)
        for number, part in enumerate(parts):
            while missing[number]:
                chunk, outcomes = decoders.take()
                by_position.update(zip([position_of[row] for row in chunk.rows], outcomes, strict=True))
                missing[position_of[chunk.rows[0]] // size] -= len(outcomes)
            if number + PARTS - 1 < len(parts):
                give(parts[number + PARTS - 1])  # into the rows of the part before this one, which has been used
            yield [by_position.pop(position) for position in part]


def _chunk(paths: Sequence[str], positions: range, size: int) -> Chunk:
    """The files at these positions, and their rows in the circle."""
    return Chunk([position % (PARTS * size) for position in positions], [paths[position] for position in positions])
