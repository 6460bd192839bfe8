"""Decode once: the pixels of all sides, from the cache where it is still right, and into it where it is not."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autonovel.data.reading.copies import find_copies
from autonovel.data.reading.decode import Pixels
from autonovel.data.reading.folder import Files, list_folder
from autonovel.data.reading.pictures import FilePictures, Side
from autonovel.data.reading.problems import Problem, printable
from autonovel.data.reading.store import HEAD, Builder, Index, open_cache, release
from autonovel.data.reading.survey import choose_form
from autonovel.data.reading.workers import Progress

_RELEASE_EVERY = 4096


def decode_sides(
    sides: Sequence[Side],
    size: int | None,
    channels: int | None,
    cache: Path | None,
    workers: int | None,
    progress: Progress | None,
) -> tuple[Pixels, Index, str]:
    """The pixels of all usable images, what became of each candidate, and a note on how the pixels were made."""
    # with the number of the side: the same path below both folders is two files, maybe of one size and time
    names = [f"{number} {name}" for number, side in enumerate(sides) for name in side.names]
    stamps = np.concatenate([side.pictures.stamps for side in sides])
    labels = [label for side in sides for label in side.labels]
    key = json.dumps([size, channels, [len(side.ids) for side in sides], _digest(labels)])
    path = _cache_file(sides, size, channels, cache)
    earlier = open_cache(path)
    if earlier is not None and earlier[1].key == key and earlier[1].same_sources(names, stamps):
        return *earlier, f"{len(earlier[0]):,} decoded images taken from {path}."
    form, note = choose_form(sides, size, channels)
    builder = Builder(path, form, len(names))
    try:
        prints = np.full(len(names), -1, np.int64)
        reused = _reuse(earlier, names, stamps, prints, builder)
        reasons = _decode_others(sides, reused, prints, builder, workers, progress)
        kept = np.array([position not in reasons for position in range(len(names))], dtype=bool)
        remarks = [(position, reason, True, True) for position, reason in reasons.items()]
        ids = [name for side in sides for name in side.ids]
        for remark in find_copies(labels, ids, kept, prints, builder.rows(len(names))):
            remarks.append(remark)
            kept[remark[0]] &= not remark[2]
        index = Index(form, key, names, stamps, kept, prints, remarks)
        pixels = builder.seal(index)
    except BaseException:
        builder.discard()
        raise
    if path.parent == _private_folder():
        with contextlib.suppress(OSError):  # the mapping keeps the content for as long as it is used
            path.unlink()
    return pixels, index, note


def decode_folders(
    folders: Sequence[Path], size: int, cache: Path
) -> tuple[Pixels, npt.NDArray[np.int64], list[Problem]]:
    """Colour images from folders, the position of each image's folder, and what could not be used."""
    parts = [list_folder(folder) for folder in folders]
    files = Files(
        paths=[path for part in parts for path in part.paths],
        labels=[None for part in parts for _ in part.paths],
        stamps=np.concatenate([part.stamps for part in parts]),
        problems=[problem for part in parts for problem in part.problems],
    )
    ids = [printable(path) for path in files.paths]
    place = json.dumps([os.path.realpath(folder) for folder in folders])
    side = Side(ids, files.labels, FilePictures(files), printable(folders[0].parent), files.problems, place=place)
    pixels, index, _ = decode_sides([side], size, 3, cache, None, None)
    classes = np.repeat(np.arange(len(parts)), [len(part.paths) for part in parts])
    remarks = [Problem(ids[p], reason, left_out, counts) for p, reason, left_out, counts in index.remarks]
    return pixels, classes[index.kept], files.problems + remarks


def _reuse(
    earlier: tuple[Pixels, Index] | None,
    names: Sequence[str],
    stamps: npt.NDArray[np.int64],
    prints: npt.NDArray[np.int64],
    builder: Builder,
) -> set[int]:
    """Copy the images that an outdated cache has of unchanged files; returns their positions."""
    if earlier is None or earlier[1].form != builder.form:
        return set()
    pixels, index = earlier
    stored = {
        (name, *stamp): (row, mark)
        for row, (name, stamp, mark) in enumerate(
            (index.names[entry], index.stamps[entry].tolist(), int(index.prints[entry]))
            for entry in np.flatnonzero(index.kept)
        )
    }
    reused: set[int] = set()
    with builder.part.open("r+b") as file:
        for position, (name, stamp) in enumerate(zip(names, stamps.tolist(), strict=True)):
            if (found := stored.get((name, *stamp))) is None:
                continue
            row, prints[position] = found
            file.seek(HEAD + position * builder.row_bytes)
            file.write(pixels[row].tobytes())
            reused.add(position)
            if len(reused) % _RELEASE_EVERY == 0:
                release(pixels)
    release(pixels)
    return reused


def _decode_others(
    sides: Sequence[Side],
    reused: set[int],
    prints: npt.NDArray[np.int64],
    builder: Builder,
    workers: int | None,
    progress: Progress | None,
) -> dict[int, str]:
    """Decode everything that was not reused; returns why, by position, for what could not be."""
    reasons: dict[int, str] = {}
    first, finished, total = 0, len(reused), len(prints)
    for side in sides:
        places = [place for place in range(len(side.ids)) if first + place not in reused]
        rows = [first + place for place in places]
        report = None if progress is None else _shifted(progress, finished, total)
        verdicts = side.pictures.decode(places, rows, builder.part, builder.form, HEAD, workers, report)
        for row, verdict in zip(rows, verdicts, strict=True):
            prints[row] = verdict.print
            if verdict.reason:
                reasons[row] = verdict.reason
        finished += len(places)
        first += len(side.ids)
    return reasons


def _shifted(progress: Progress, finished: int, total: int) -> Progress:
    return lambda done, _: progress(finished + done, total)


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()


def _cache_file(sides: Sequence[Side], size: int | None, channels: int | None, cache: Path | None) -> Path:
    places = [side.place for side in sides]
    if cache is None or None in places:
        return _private_folder() / f"{os.urandom(8).hex()}.images"
    return Path(cache) / f"{_digest([places, size, channels])}.images"


@lru_cache(maxsize=1)
def _private_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="autonovel-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
