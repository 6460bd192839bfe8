"""How images are varied before a network sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from autonovel.settings.fields import Range, When

SCALED = ("crop", "redrawn", "drawing", "mixed", "scan")
"""The kinds that show a part of the image, scaled up."""


@dataclass(frozen=True)
class Augment:
    """How an image is varied before the network sees it; every image of a batch is varied on its own."""

    kind: Literal["none", "shift", "reflect", "turn", "crop", "redrawn", "drawing", "mixed", "scan"] = "shift"
    """none: as it is. shift: by up to four pixels, with black beyond the border; reflect: with its mirror image there. turn:
    rotated, zoomed, shifted. crop: a part of it scaled up, cut off where it reaches over the border; redrawn: drawn again
    there, as torchvision does; drawing: that, for drawings on paper, whose edge goes on beyond the border. mixed: a shift or a
    crop, by chance. scan: a crop, and often a square of it covered."""
    area: Annotated[tuple[float, float], Range(0, 1, above=True, rising=True), When("kind", *SCALED)] = (0.5, 1.0)
    """The smallest and the largest share of the image that is shown."""
    rotate: Annotated[float, Range(0, 180), When("kind", "turn", *SCALED)] = 0.0
    """The largest rotation, in degrees."""
    zoom: Annotated[float, Range(0, 0.9), When("kind", "turn", *SCALED)] = 0.0
    """The largest change of size, as a share (0.15: from 85 % to 115 %)."""
    shift: Annotated[float, Range(0, 1), When("kind", "turn")] = 0.0
    """The largest shift, as a share of the side; it is not rounded to pixels."""
    jitter: Annotated[float, Range(0, 1), When("kind", *SCALED)] = 0.0
    """The strength of random brightness, contrast and saturation; the hue turns by a quarter of it."""
    grey: Annotated[float, Range(0, 1), When("kind", *SCALED)] = 0.0
    """How often the colour is dropped."""
    solarise: Annotated[float, Range(0, 1), When("kind", *SCALED)] = 0.0
    """How often bright pixels are inverted."""
