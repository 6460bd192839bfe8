"""Pictures of images that came from no file, from the thumbnails of the run."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from autonovel.base.errors import AutonovelWarning
from autonovel.machine.disk import whole

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

    from autonovel.export.items import Item
    from autonovel.runs.folder import Run


def has_picture(run: Run, row: int) -> bool:
    """Whether there is a thumbnail of this row of images.csv."""
    return row >= 0 and run.thumbnails is not None and run.thumbnails.has(row)


def sheet_of(run: Run, item: Item) -> int:
    """The contact sheet with the picture of an image, -1 where it has a file: in this order each sheet is opened once."""
    return -1 if item.source or run.thumbnails is None else run.thumbnails.place(item.row)[0]


def picture(run: Run, row: int) -> Image:
    """The thumbnail without the margin of its cell, in the size of the image or smaller."""
    from PIL import Image

    thumbnails = run.thumbnails
    assert thumbnails is not None
    height, width = run.config["run"]["data"]["shape"][:2]
    side, longest = thumbnails.side, max(height, width)
    factor = side // longest if longest <= side else 0
    shown = (
        (width * factor, height * factor)
        if factor
        else tuple(max(1, round(n * side / longest)) for n in (width, height))
    )
    left, top = (side - shown[0]) // 2, (side - shown[1]) // 2
    inside = thumbnails.image(row).crop((left, top, left + shown[0], top + shown[1]))
    # small images were enlarged by a whole number: the mean of such a block takes back most of what JPEG changed
    return inside.resize((width, height), Image.Resampling.BOX) if factor > 1 else inside


def write_picture(run: Run, row: int, target: Path) -> None:
    """Write the thumbnail as PNG; it is there whole or not at all."""
    with whole(target, lasting=False) as part:
        picture(run, row).save(part, "PNG")


def tell(count: int) -> None:
    """Say that pictures were made of thumbnails."""
    if count:
        many = f"{count:,} images that came from no file were" if count > 1 else "One image that came from no file was"
        warnings.warn(
            f"{many} written as PNG from the thumbnails of the run, which are no exact copies.", AutonovelWarning
        )
