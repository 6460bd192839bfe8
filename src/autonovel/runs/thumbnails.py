"""Small pictures of the images of a run, on contact sheets, so that a report can be drawn on another day."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from autonovel.base.errors import InputError
from autonovel.runs.answers import read_answers, read_images
from autonovel.runs.files import RunFiles, damaged

SIDE = 64
COLUMNS = 16
"""A sheet has as many rows as columns: 256 pictures, some 300 kB."""

AT_MOST = 100_000
"""Pictures of a run. Of more images, each class and cluster gets the same share, and small ones are there whole."""

QUALITY = 85
INDEX, ORDER = "thumbnails/index.json", "thumbnails/order.npy"


class Thumbnails:
    """The contact sheets of a run. Rows are those of images.csv.

    Attributes:
        count: number of pictures.
        side: pixels of a cell, which is square.
        columns: cells beside each other on a sheet.
        cells: cells on a sheet.
        sheets: number of sheets.
        rows: (count,) rows of images.csv that have a picture, in the order of the cells. Images of one class or cluster
            lie together, so that looking at one takes few sheets.
    """

    def __init__(self, run: RunFiles) -> None:
        index = run.read_json(INDEX)
        self._run = run
        try:
            self.count, self.side, self.columns = (int(index[name]) for name in ("count", "side", "columns"))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(run, INDEX, error) from error
        if not (0 <= self.count < 2**40 and 0 < self.side < 2**12 and 0 < self.columns < 2**10):
            raise damaged(run, INDEX, "no run writes such numbers")
        self.cells = self.columns**2
        self.sheets = -(-self.count // self.cells)
        self.rows: npt.NDArray[np.int64] = run.read_array(ORDER, "i", 1)
        if len(self.rows) != self.count:
            raise damaged(run, ORDER, f"it has {len(self.rows)} rows for {self.count} pictures")
        self._place = {row: place for place, row in enumerate(self.rows.tolist())}
        self._opened = lru_cache(maxsize=8)(self._open)

    def has(self, row: int) -> bool:
        """Whether there is a picture of this image: always, unless the run has more than 100,000."""
        return int(row) in self._place

    def place(self, row: int) -> tuple[int, int, int]:
        """Where the picture of an image is: the sheet, and the pixels of its upper left corner there."""
        try:
            sheet, cell = divmod(self._place[int(row)], self.cells)
        except KeyError:
            raise InputError(f"Image {row} of {self._run.path} has no thumbnail.") from None
        return sheet, cell % self.columns * self.side, cell // self.columns * self.side

    def sheet(self, number: int) -> bytes:
        """A sheet as JPEG."""
        if not 0 <= number < self.sheets:
            raise InputError(f"There is no sheet {number} in {self._run.path}; it has {self.sheets}.")
        try:
            return self._run.file(_sheet_name(number)).read_bytes()
        except OSError as error:
            raise damaged(self._run, _sheet_name(number), error.strerror) from error

    def image(self, row: int) -> Image.Image:
        """The picture of an image."""
        sheet, x, y = self.place(row)
        return self._opened(sheet).crop((x, y, x + self.side, y + self.side))

    def _open(self, number: int) -> Image.Image:
        try:
            image = Image.open(io.BytesIO(self.sheet(number)), formats=("JPEG",))
            image.load()  # now, not in whichever thread crops it first
        except (OSError, SyntaxError) as error:
            raise damaged(self._run, _sheet_name(number), error) from error
        return image


def read_thumbnails(run: RunFiles) -> Thumbnails | None:
    """The contact sheets of a run; None where it has none."""
    return Thumbnails(run) if run.has(INDEX) else None


def write_thumbnails(run: RunFiles, images: npt.NDArray[np.uint8], *, at_most: int = AT_MOST) -> None:
    """Write the contact sheets, a few at a time; uses predictions.csv and images.csv where they are there.

    Args:
        run: the folder.
        images: (n, h, w, c), every image of the run in data-set order; may be mapped from a file.
        at_most: how many pictures to keep.
    """
    rows = _chosen(_groups(run, len(images)), at_most)
    cells = COLUMNS**2

    def write(number: int) -> None:
        part = rows[number * cells : (number + 1) * cells]
        with run.whole(_sheet_name(number)) as path:
            _draw(images[part]).save(path, "JPEG", quality=QUALITY)

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as threads:  # Pillow lets others work while it encodes
        for _ in threads.map(write, range(-(-len(rows) // cells))):
            pass
    run.write_array(ORDER, rows)
    # last: its presence says that all is there
    run.write_json(INDEX, {"count": len(rows), "side": SIDE, "columns": COLUMNS})


def _sheet_name(number: int) -> str:
    return f"thumbnails/{number:05d}.jpg"


def _groups(run: RunFiles, count: int) -> npt.NDArray[np.int64]:
    """(n,) a number for the class or cluster of every image; all in one while nothing is known about them."""
    records = read_images(run)
    if len(records) != count:
        return np.zeros(count, dtype=np.int64)
    names = {name: place for place, name in enumerate(dict.fromkeys(r.label for r in records if r.label is not None))}
    groups = np.array([-1 if r.label is None else names[r.label] for r in records], dtype=np.int64)
    unlabelled = groups < 0
    if run.has("predictions.csv"):
        answered = read_answers(run).group
        if len(answered) == unlabelled.sum():
            groups[unlabelled] = len(names) + answered - answered.min(initial=0)
    return groups


def _chosen(groups: npt.NDArray[np.int64], at_most: int) -> npt.NDArray[np.int64]:
    """Rows that get a picture, those of one group together: all, or evenly spaced ones of the large groups."""
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    quota = _quota(sizes, at_most)
    parts = [
        order[start + np.linspace(0, size - 1, min(size, quota)).astype(np.int64)]
        for start, size in zip(starts, sizes, strict=True)
    ]
    return np.concatenate(parts) if parts else order


def _quota(sizes: npt.NDArray[np.int64], at_most: int) -> int:
    """The most that each group may have so that all together have no more than ``at_most``; never under one."""
    low, high = 1, int(max(sizes.max(initial=1), 1))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= at_most else (low, middle - 1)
    return low


def _draw(images: npt.NDArray[np.uint8]) -> Image.Image:
    """A sheet of these images."""
    colour = images.shape[3] >= 3
    pictures = np.asarray(images[..., :3] if colour else images[..., 0])
    lines = -(-len(images) // COLUMNS)
    sheet = Image.new("RGB" if colour else "L", (COLUMNS * SIDE, lines * SIDE))
    for cell, picture in enumerate(pictures):
        small = _fitted(Image.fromarray(picture))
        x, y = cell % COLUMNS * SIDE, cell // COLUMNS * SIDE
        sheet.paste(small, (x + (SIDE - small.width) // 2, y + (SIDE - small.height) // 2))
    return sheet


def _fitted(image: Image.Image) -> Image.Image:
    """Made to fit a cell: enlarged by a whole number, so that pixels stay sharp, or reduced."""
    longest = max(image.size)
    if longest <= SIDE:
        factor = SIDE // longest
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    size = [max(1, round(length * SIDE / longest)) for length in image.size]
    return image.resize((size[0], size[1]), Image.Resampling.LANCZOS, reducing_gap=2)
