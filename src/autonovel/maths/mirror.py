"""Whether a mirrored image still shows its class, asked of the labelled images: a digit does not, a cat does."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.maths.known_space import nearest

SIDE = 16
"""Images are compared at this many pixels a side: shape and pose, hardly any detail."""
AT_ONCE = 256
"""Images that are made smaller together."""
LEAST_LOSS = 0.02
"""The share of images that must no longer be recognised, all in all, before mirroring is called harmful..."""
LEAST_ERRORS = 3.0
"""... and by how many standard errors of it."""


@dataclass(frozen=True)
class Mirrored:
    """How often the nearest other labelled image is of the same class, for images as they are and mirrored."""

    plain: float
    """Share of the images as they are."""
    mirrored: float
    """Share of the mirrored images."""
    standard_error: float
    """Of the difference."""

    @property
    def harmful(self) -> bool:
        """Whether mirroring makes images of another class of them, beyond chance."""
        loss = self.plain - self.mirrored
        return loss > max(LEAST_LOSS, LEAST_ERRORS * self.standard_error)

    def sentence(self) -> str:
        """What was found, for a person."""
        shares = f"labelled images find their class in {self.plain:.0%} of cases, mirrored ones in {self.mirrored:.0%}"
        return f"views are {'not ' if self.harmful else ''}mirrored: {shares}"


def look_mirrored(images: Tensor, labels: Tensor) -> Mirrored:
    """Compare labelled images, uint8 (n, h, w, c) with labels (n,), with each other as they are and mirrored.

    An image is never compared with itself, so one that is its own mirror image gains nothing by it.
    """
    pixels = torch.cat([_reduced(part) for part in images.split(AT_ONCE)])
    own, other = _points(pixels), _points(pixels.flip(3))
    plain, mirrored = (labels[_nearest_other(points, own)] == labels for points in (own, other))
    change = plain.double() - mirrored.double()
    error = change.std(correction=0).item() / len(labels) ** 0.5
    return Mirrored(plain.double().mean().item(), mirrored.double().mean().item(), error)


def _reduced(images: Tensor) -> Tensor:
    pixels = images.permute(0, 3, 1, 2).float()
    large = min(pixels.shape[2:]) > SIDE
    return F.interpolate(pixels, (SIDE, SIDE), mode="bilinear", antialias=True) if large else pixels


def _points(pixels: Tensor) -> Tensor:
    flat = pixels.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)


def _nearest_other(points: Tensor, among: Tensor) -> Tensor:
    """int64 (n,): for each point the most similar row of `among` other than its own."""
    if len(points) < 2:
        return torch.zeros(len(points), dtype=torch.int64, device=points.device)
    two = nearest(points, 2, among)
    own = torch.arange(len(points), device=points.device)
    return torch.where(two[:, 0] == own, two[:, 1], two[:, 0])
