"""Which images a run has seen, by their pixels: the same image, given again, has the answer that the run has for it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autonovel.runs.files import damaged

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder

FILE = "seen.npy"
"""uint64 (images, 2), a quick mark and a whole one for every image of images.csv."""
SAMPLE = 64
"""Bytes of an image that its quick mark is made of."""

Pixels = npt.NDArray[np.uint8]
Marks = npt.NDArray[np.uint64]


def write_seen(run: Folder, images: Pixels) -> None:
    """Keep the marks of images (n, h, w, c)."""
    whole = np.fromiter((_whole(image) for image in images), dtype=np.uint64, count=len(images))
    run.write_array(FILE, np.stack([_quick(images), whole], 1))


class KnownPixels:
    """The images of a run."""

    def __init__(self, run: Folder) -> None:
        marks = run.read_array(FILE, "u", 2) if run.has(FILE) else np.zeros((0, 2), np.uint64)
        if marks.shape[1] != 2 or len(marks) not in (0, len(run.images)):
            raise damaged(run, FILE, f"it has {marks.shape} marks for {len(run.images)} images")
        self._quick = np.unique(marks[:, 0])
        rows = np.arange(len(marks))
        labelled = np.array([record.label is not None for record in run.images], dtype=bool)[: len(marks)]
        # of several alike the first counts, before them those whose class a person gave
        order = np.concatenate([rows[~labelled][::-1], rows[labelled][::-1]])
        self._row = dict(zip(marks[order, 1].tolist(), order.tolist(), strict=True))

    def rows(self, images: Pixels) -> dict[int, int]:
        """For images (n, h, w, c) that the run has seen, their places: the rows of images.csv."""
        if not len(self._quick):
            return {}
        perhaps = np.flatnonzero(np.isin(_quick(images), self._quick)).tolist()
        pairs = ((i, self._row.get(_whole(images[i]))) for i in perhaps)
        return {i: row for i, row in pairs if row is not None}


def _whole(image: Pixels) -> int:
    content = np.ascontiguousarray(image)
    return int.from_bytes(hashlib.blake2b(content.data, digest_size=8).digest(), "little")


def _quick(images: Pixels) -> Marks:
    """A number for each image from some of its bytes."""
    places = np.linspace(0, int(np.prod(images.shape[1:])) - 1, SAMPLE).astype(np.int64)
    weights = np.random.default_rng(0).integers(0, 2**63, SAMPLE // 8, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    marks = np.zeros(len(images), dtype=np.uint64)
    for start in range(0, len(images), 4096):
        some = images[start : start + 4096]
        words = np.ascontiguousarray(some.reshape(len(some), -1)[:, places]).view(np.uint64)
        marks[start : start + 4096] = (words * weights).sum(1, dtype=np.uint64)
    return marks
