"""Classes too rare for a sample: groups among the points that fit no class, which lie as close together as a class does."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autonovel.maths.known_space import unit

SMALLEST = 10
"""Points of a rare class at least; fewer may be copies of one image, or chance."""
SEEDS = 4000
"""Points from which groups are looked for: a class that has a thousandth of all is met four times."""
NEAREST = (8, 12, 16, 24)
"""Points around a seed of which the middle is taken, and again around that middle: the first are strays for the most part."""
_BLOCK = 1 << 24


def rare_groups(
    points: Tensor, centres: Tensor, *, least: float, usual: float, smallest: int = SMALLEST, seed: int = 0
) -> Tensor:
    """(r, d): the middles of groups of `points` (n, d) that fit none of `centres` (k, d); all are of length 1.

    Groups are looked for in one half of the points, around each of many seeds, and must be found again in the other: there half
    of a smallest group must be so close to the middle that it fits a class, and three times as many points as chance puts there.
    The outliers of a class lie around its middle: a group nearer to a class than classes are to each other is left out.

    Args:
        points: each less similar than `least` to every centre.
        centres: of the classes that are known or found.
        least: the similarity to its centre below which a point does not fit a class.
        usual: that of a usual point of a class to its centre.
        smallest: points of a group at least.
        seed: of the halves and seeds.
    """
    n, nothing = len(points), points.new_zeros(0, points.shape[1])
    if n < 2 * smallest:
        return nothing
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    first, second = points[order[: n // 2]], points[order[n // 2 :]]
    middles = torch.cat([_shifted(first, some) for some in first[:SEEDS].split(_BLOCK // len(first) + 1)])
    if len(centres):
        between = (centres @ centres.T).fill_diagonal_(-1).max().item()
        # no nearer to a class than classes are to each other, and a usual member is a stranger to it
        apart = min(max(between, least), least / max(usual, 1e-6))
        middles = middles[(middles @ centres.T).amax(1) <= apart]
    if not len(middles):
        return nothing
    counts = torch.cat([_beyond_chance(some @ second.T, least) for some in middles.split(_BLOCK // len(second) + 1)])
    middles, counts = middles[counts >= smallest / 2], counts[counts >= smallest / 2]
    dense: list[Tensor] = []
    left = points
    while len(middles):
        member = left @ middles[counts.argmax()] >= least
        if int(member.sum()) < smallest:
            break
        dense.append(unit(left[member].mean(0, keepdim=True))[0])
        # between two groups lie middles that are near to some points of either
        left = left[left @ dense[-1] < least]
        counts = torch.cat([(some @ left.T >= least).sum(1) for some in middles.split(_BLOCK // max(1, len(left)) + 1)])
        middles, counts = middles[counts >= smallest], counts[counts >= smallest]
    return torch.stack(dense) if dense else nothing


def _shifted(points: Tensor, seeds: Tensor) -> Tensor:
    """The middle around each seed (s, d): of its nearest points, and of more of them around that."""
    middles = seeds
    for count in NEAREST:
        nearest = (middles @ points.T).topk(min(count, len(points)), dim=1).indices
        middles = unit(points[nearest].mean(1))
    return middles


def _beyond_chance(similar: Tensor, least: float) -> Tensor:
    """How many of the similarities (s, n) to each middle fit a class; 0 where that is not three times what chance gives."""
    count = (similar >= least).sum(1)
    others = (similar < least).to(similar)
    n = others.sum(1).clamp(min=2)
    mean = (similar * others).sum(1) / n
    spread = ((similar - mean[:, None]).square() * others).sum(1) / n
    deviation = (least - mean) / spread.sqrt().clamp(min=1e-6)
    chance = similar.shape[1] * 0.5 * torch.erfc(deviation / math.sqrt(2))
    return torch.where(count >= 3 * chance, count, 0)
