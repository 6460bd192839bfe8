"""The clusters of a run as pictures and pages show them: in order, with colours and confidence."""

from __future__ import annotations

import colorsys
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from autonovel.base.errors import InputError
from autonovel.data.reading.decode import MOST_PIXELS, open_image
from autonovel.data.reading.members import content_in, in_shard
from autonovel.data.reading.problems import as_path
from autonovel.runs.answers import ImageRecord
from autonovel.runs.folder import Folder
from autonovel.runs.geometry import typicality
from autonovel.runs.parts import Lazy
from autonovel.runs.thumbnails import SIDE, Thumbnails

Rows = npt.NDArray[np.int64]
"""Rows of predictions.csv."""

MOST_KEPT = 100_000

Order = Literal["typical", "doubtful", "odd", "file"]

_FIRST_COLOURS = (
    "#0f766e",
    "#d97706",
    "#4f46e5",
    "#dc2626",
    "#0891b2",
    "#a21caf",
    "#65a30d",
    "#db2777",
    "#2563eb",
    "#92400e",
)

FIRST_KNOWN = 1000
"""Colours from here on are those of known classes."""


def colour(number: int) -> str:
    """The colour of a cluster by its number, so that it keeps it: ten that are easy to tell apart, then hues by the golden ratio.

    >>> colour(0), colour(10) == colour(0), colour(-1) == colour(0)
    ('#0f766e', False, False)
    """
    if 0 <= number < len(_FIRST_COLOURS):
        return _FIRST_COLOURS[number]
    place = number if number >= 0 else FIRST_KNOWN - number  # known classes have negative numbers
    red, green, blue = colorsys.hls_to_rgb(place * 0.618034 % 1, 0.42 + 0.16 * (place % 3) / 2, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


@dataclass(frozen=True, eq=False)
class Shown:
    """A cluster as it is shown.

    Attributes:
        number: its number in the run.
        name: its name.
        kind: "new", "known" or "not a class".
        named: whether a person or the labels gave the name; "new 3" otherwise.
        members: its images, ascending.
        colour: as #rrggbb.
        sure: how sure the machine was of every image of the run.
        typical: how close to the middle of their clusters some images are.
    """

    number: int
    name: str
    kind: str
    named: bool
    members: Rows
    colour: str
    sure: npt.NDArray[np.float32]
    typical: Callable[[Rows], npt.NDArray[np.float32]]

    @property
    def closeness(self) -> npt.NDArray[np.float32]:
        """Of its members; kept where there are not millions."""
        kept: npt.NDArray[np.float32] | None = vars(self).get("kept")
        if kept is None:
            kept = self.typical(self.members)
            if len(kept) <= MOST_KEPT:
                vars(self)["kept"] = kept
        return kept

    @property
    def _order(self) -> npt.NDArray[np.int64]:
        return np.argsort(-self.closeness, kind="stable")

    @property
    def rows(self) -> Rows:
        """Its images, the most typical first."""
        return self.members[self._order]

    @property
    def typicality(self) -> npt.NDArray[np.float32]:
        """Of the same images."""
        return self.closeness[self._order]

    @property
    def probability(self) -> npt.NDArray[np.float32]:
        """How sure the machine was of each of them."""
        return self.sure[self.rows]

    @property
    def size(self) -> int:
        """Number of images."""
        return len(self.members)

    @cached_property
    def confidence(self) -> float:
        """Mean probability of its images; 0 for an empty cluster."""
        return float(self.sure[self.members].mean()) if self.size else 0.0

    def most_typical(self, count: int) -> Rows:
        """The first of its rows, without putting all in order."""
        if count >= self.size:
            return self.rows
        close = self.closeness
        least = -np.partition(-close, count - 1)[count - 1]
        some = np.flatnonzero(close >= least)
        return self.members[some[np.argsort(-close[some], kind="stable")][:count]]

    def ordered(self, by: Order, names: Sequence[str] = ()) -> Rows:
        """Its images in an order: by typicality, by doubt, the least typical first, or by the names of their files."""
        if by == "doubtful":
            return self.rows[np.argsort(self.probability, kind="stable")]
        if by == "odd":
            return self.rows[::-1]
        if by == "file":
            if isinstance(names, Lazy):  # shards come in the order of their names
                return self.members
            return np.array(sorted(self.rows.tolist(), key=lambda row: names[row]), dtype=np.int64)
        return self.rows


def shown_clusters(run: Folder, before: Sequence[Shown] = ()) -> list[Shown]:
    """The clusters of a run as they are now.

    Args:
        run: a finished run.
        before: what was shown earlier; clusters that still have the same images need not be put in order again.
    """
    probability = np.asarray(run.machine.probability, dtype=np.float32)
    if run.parts is None:
        features = run.features

        def typical(rows: Rows) -> npt.NDArray[np.float32]:
            return typicality(features[rows], np.zeros(len(rows), dtype=np.int64))
    else:
        close = run.typicality

        def typical(rows: Rows) -> npt.NDArray[np.float32]:
            return close[rows]

    given = run.names
    earlier = {cluster.number: cluster for cluster in before}
    every = []
    for cluster in run.clusters:
        shown = Shown(
            number=cluster.number,
            name=cluster.name,
            kind=cluster.kind,
            named=cluster.number in given or cluster.kind == "known",
            members=cluster.members,
            colour=colour(cluster.number),
            sure=probability,
            typical=typical,
        )
        known = earlier.get(cluster.number)
        if known is not None and np.array_equal(known.members, cluster.members):
            vars(shown).update({name: value for name, value in vars(known).items() if name in ("kept", "confidence")})
        every.append(shown)
    return every


def shown_names(run: Folder) -> Sequence[str]:
    """What every unlabelled image is called: its path below the folder that was given, else its id."""
    # asked for once: each time the run looks whether the file has changed
    records, ids = run.images, run.machine.images
    if not records or run.parts is not None:
        return ids
    paths = (records[place].path for place in run.unlabelled.tolist())
    return tuple(path or image for path, image in zip(paths, ids, strict=True))


@dataclass(frozen=True)
class Picks:
    """The images of a cluster that say most about it; no image is in two of them.

    Attributes:
        typical: nearest to its centre.
        doubtful: of which the machine was least sure.
        odd: farthest from its centre.
    """

    typical: list[int]
    doubtful: list[int]
    odd: list[int]


def pick(cluster: Shown, usable: npt.NDArray[np.bool_], typical: int, others: int) -> Picks:
    """The images to show of a cluster.

    Args:
        cluster: the cluster.
        usable: for every row of predictions.csv, whether there is a picture.
        typical: how many typical images.
        others: how many doubtful ones, and how many odd ones.
    """
    taken: set[int] = set()

    def take(rows: Rows, count: int) -> list[int]:
        rows_taken: list[int] = []
        for row in rows.tolist():
            if len(rows_taken) == count:
                break
            if usable[row] and row not in taken:
                rows_taken.append(row)
                taken.add(row)
        return rows_taken

    return Picks(
        typical=take(cluster.rows, typical),
        doubtful=take(cluster.ordered("doubtful"), others),
        odd=take(cluster.ordered("odd"), others),
    )


class Pictures:
    """The thumbnails of a run; those of unlabelled images by row of predictions.csv.

    Attributes:
        usable: for every row of predictions.csv, whether there is a picture.
        side: pixels of a picture, which is square.
    """

    def __init__(self, run: Folder) -> None:
        self._thumbnails = run.thumbnails
        self._place = run.unlabelled
        self.side = 0 if self._thumbnails is None else self._thumbnails.side
        count = len(run.machine.images)
        self.usable: npt.NDArray[np.bool_] = np.zeros(count, dtype=bool)
        if self._thumbnails is not None and len(self._place) == count:
            self.usable = np.isin(self._place, self._thumbnails.rows)
        self._run, self._in_shards = run, has_pictures_in_shards(run)
        if self._in_shards:
            self.side, self.usable = SIDE, np.ones(count, dtype=bool)

    @property
    def _sheets(self) -> Thumbnails:
        if self._thumbnails is None:
            raise InputError("This run has no thumbnails; run it again with this version.")
        return self._thumbnails

    @property
    def any(self) -> bool:
        """Whether there are any of unlabelled images."""
        return bool(self.usable.any())

    def pixels(self, row: int) -> npt.NDArray[np.uint8]:
        """(side, side, 3) the picture of an unlabelled image."""
        return self.pixels_of(int(self._place[row]))

    def many(self, rows: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """The pictures of unlabelled images; each contact sheet is opened once."""
        if self._in_shards:
            return [self.pixels(row) for row in rows]
        by_sheet = sorted(range(len(rows)), key=lambda at: self._sheets.place(self._place[rows[at]])[0])
        by_place = {at: self.pixels(rows[at]) for at in by_sheet}
        return [by_place[at] for at in range(len(rows))]

    def pixels_of(self, place: int) -> npt.NDArray[np.uint8]:
        """(side, side, 3) the picture of an image by its row in images.csv."""
        if self._in_shards:
            small = from_source(self._run.images[place], SIDE)
            return np.full((SIDE, SIDE, 3), 255, np.uint8) if small is None else squared(small)
        return np.asarray(self._sheets.image(place).convert("RGB"))

    def has(self, place: int) -> bool:
        """Whether the image in this row of images.csv has a picture."""
        return self._in_shards or (self._thumbnails is not None and self._thumbnails.has(place))


def has_pictures_in_shards(run: Folder) -> bool:
    """Whether pictures come from the shards that the images of the run came from."""
    return run.parts is not None and len(run.parts) > 0 and from_source(run.images[-1], SIDE) is not None


def squared(image: Image.Image) -> npt.NDArray[np.uint8]:
    """The middle of an image as (side, side, 3) pixels."""
    return np.asarray(ImageOps.fit(image, (SIDE, SIDE)))


def from_source(record: ImageRecord, side: int) -> Image.Image | None:
    """The image of a file or of a shard, with this side at most; None if it cannot be read."""
    try:
        if in_shard(record.source):
            content = content_in(record.source, record.image)
            file: Any = io.BytesIO(content) if content is not None else None
        else:
            path = as_path(record.source)
            if not os.path.isfile(path):  # gone, or a device that would never end
                return None
            file = open(path, "rb")  # noqa: SIM115, closed below
        if file is None:
            return None
        with file, open_image(file) as image:
            image.draft("RGB", (side, side))
            if image.width * image.height > MOST_PIXELS:
                return None
            image.thumbnail((side, side))
            return ImageOps.exif_transpose(image).convert("RGB")
    except Exception:  # whatever is wrong with a stranger's file, there is none
        return None
