"""The pixels of all parts: from the cache where it is still right, otherwise decoded into it."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.data.images import Pixels
from autonovel.data.reading.copies import find_copies
from autonovel.data.reading.decode import Form
from autonovel.data.reading.folder import Files, list_folder
from autonovel.data.reading.parts import DecodeJob, FileReader, Part
from autonovel.data.reading.problems import Problem, printable
from autonovel.data.reading.store import Builder, Index, open_cache, release
from autonovel.data.reading.workers import Progress
from autonovel.machine.disk import temporary_folder

_RELEASE_EVERY = 4096


@dataclass(frozen=True)
class Request:
    """How the images are wanted.

    Attributes:
        size: side of the square that images are brought to; as suits them when None.
        channels: 1 for grey, 3 for colour; as suits them when None.
        cache: folder for the decoded images; a temporary file when None.
        workers: decoding processes; one per core when None.
        progress: called with (done, total) while decoding.
    """

    size: int | None = None
    channels: int | None = None
    cache: Path | None = None
    workers: int | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.size is not None and not 4 <= self.size <= 1024:
            raise InputError(f"Images cannot be brought to {self.size} pixels; choose a size from 4 to 1024.")
        if self.channels not in (None, 1, 3):
            raise InputError(f"Images have 1 channel (grey) or 3 (colour), not {self.channels}.")


def read_pixels(
    parts: Sequence[Part], request: Request, choose: Callable[[], tuple[Form, str]]
) -> tuple[Pixels, Index, str]:
    """The pixels of all usable images, what came of each candidate, and a note on how the pixels were made.

    ``choose`` gives the form of the images and the note; it is asked only where the cache does not serve.
    """
    # With the number of the part: the same path below both folders is two files, maybe of one size and time.
    names = [f"{number} {name}" for number, part in enumerate(parts) for name in part.cache_names]
    stamps = np.concatenate([part.reader.stamps for part in parts])
    labels = [label for part in parts for label in part.labels]
    key = json.dumps([request.size, request.channels, [len(part) for part in parts], _digest(labels)])
    path = _cache_file(parts, request)
    earlier = open_cache(path)
    if earlier is not None and earlier[1].key == key and earlier[1].same_sources(names, stamps):
        return *earlier, f"{len(earlier[0]):,} decoded images taken from {path}."
    form, note = choose()
    builder = Builder(path, form, len(names))
    try:
        fingerprints = np.full(len(names), -1, np.int64)
        reused = _reuse(earlier, names, stamps, fingerprints, builder)
        reasons = _decode_others(parts, reused, fingerprints, builder, request)
        kept = np.array([position not in reasons for position in range(len(names))], dtype=bool)
        remarks = [(position, reason, True, True) for position, reason in reasons.items()]
        ids = [name for part in parts for name in part.ids]
        for remark in find_copies(labels, ids, kept, fingerprints, builder.rows(len(names))):
            remarks.append(remark)
            kept[remark[0]] &= not remark[2]
        index = Index(form, key, names, stamps, kept, fingerprints, remarks)
        pixels = builder.seal(index)
    except BaseException:
        builder.discard()
        raise
    if path.parent == _private_folder():
        with contextlib.suppress(OSError):  # the mapping keeps the content for as long as it is used
            path.unlink()
    return pixels, index, note


def read_class_folders(
    folders: Sequence[Path], size: int, cache: Path
) -> tuple[Pixels, npt.NDArray[np.int64], list[Problem]]:
    """Colour images from folders, the number of each image's folder, and what could not be used."""
    listings = [list_folder(folder) for folder in folders]
    files = Files(
        paths=[path for listing in listings for path in listing.paths],
        labels=[None for listing in listings for _ in listing.paths],
        stamps=np.concatenate([listing.stamps for listing in listings]),
        problems=[problem for listing in listings for problem in listing.problems],
    )
    ids = [printable(path) for path in files.paths]
    key = json.dumps([os.path.realpath(folder) for folder in folders])
    part = Part(ids, files.labels, FileReader(files, ""), printable(folders[0].parent), files.problems, cache_key=key)
    pixels, index, _ = read_pixels([part], Request(size, 3, cache), lambda: (Form(size, 3), ""))
    classes = np.repeat(np.arange(len(listings)), [len(listing.paths) for listing in listings])
    return pixels, classes[index.kept], files.problems + as_problems(index, ids)


def as_problems(index: Index, ids: Sequence[str]) -> list[Problem]:
    """The remarks of a cache file as problems of the images with these ids."""
    # of all that is left out, only an unlabelled copy of a labelled image does not count as unusable
    return [
        Problem(ids[position], reason, left_out, counts, copy=left_out and not counts)
        for position, reason, left_out, counts in index.remarks
    ]


def _reuse(
    earlier: tuple[Pixels, Index] | None,
    names: Sequence[str],
    stamps: npt.NDArray[np.int64],
    fingerprints: npt.NDArray[np.int64],
    builder: Builder,
) -> set[int]:
    """Copy from an outdated cache the images of files that have not changed; returns their positions."""
    if earlier is None or earlier[1].form != builder.form:
        return set()
    pixels, index = earlier
    stored = {
        (name, *stamp): (row, mark)
        for row, (name, stamp, mark) in enumerate(
            (index.names[entry], index.stamps[entry].tolist(), int(index.fingerprints[entry]))
            for entry in np.flatnonzero(index.kept)
        )
    }
    reused: set[int] = set()
    with builder.target.path.open("r+b") as file:
        for position, (name, stamp) in enumerate(zip(names, stamps.tolist(), strict=True)):
            if (place := stored.get((name, *stamp))) is None:
                continue
            row, fingerprints[position] = place
            builder.target.write(file, position, pixels[row].tobytes())
            reused.add(position)
            if len(reused) % _RELEASE_EVERY == 0:
                release(pixels)
    release(pixels)
    return reused


def _decode_others(
    parts: Sequence[Part],
    reused: set[int],
    fingerprints: npt.NDArray[np.int64],
    builder: Builder,
    request: Request,
) -> dict[int, str]:
    """Decode everything that was not reused; returns why, by row, for what could not be."""
    reasons: dict[int, str] = {}
    first, finished, total = 0, len(reused), len(fingerprints)
    for part in parts:
        positions = [position for position in range(len(part)) if first + position not in reused]
        progress = None if request.progress is None else _shifted(request.progress, finished, total)
        job = DecodeJob(positions, first, builder.target, request.workers, progress)
        for row, outcome in zip(job.rows, part.reader.decode(job), strict=True):
            fingerprints[row] = outcome.fingerprint
            if outcome.reason:
                reasons[row] = outcome.reason
        finished += len(positions)
        first += len(part)
    return reasons


def _shifted(progress: Progress, finished: int, total: int) -> Progress:
    """Progress of one part as progress of the whole."""
    return lambda done, _: progress(finished + done, total)


def _digest(value: object) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=12).hexdigest()


def _cache_file(parts: Sequence[Part], request: Request) -> Path:
    keys = [part.cache_key for part in parts]
    if request.cache is None or None in keys:
        return _private_folder() / f"{os.urandom(8).hex()}.images"
    return Path(request.cache) / f"{_digest([keys, request.size, request.channels])}.images"


@lru_cache(maxsize=1)
def _private_folder() -> Path:
    folder = temporary_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
