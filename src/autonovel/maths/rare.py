"""Classes too rare for a sample: small groups of a pile that lie close together and far from everything else."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autonovel.maths.known_space import nearest, unit

SMALLEST = 10
"""Points of a rare class at least; fewer may be copies of one image, or chance."""
SEEDS = 4000
"""Points from which groups are looked for: those whose neighbours are most similar to them, compared with their class."""
AROUND = 6
"""Points of which the middle is taken, a seed among them."""
SIZES = tuple(int(5 * 1.4**step) for step in range(11))
"""Sizes of a group in one half of the points that are tried: 5 to 144."""
GAP = 0.2
"""How much less similar to its middle the next points must be than those of a group, and its points to any class. Among 40,000
photographs drawings lay 0.35 to 0.6 apart and birds of one species 0.2 to 0.3; with less, parts of a class come in."""
_BLOCK = 1 << 24


def rare_groups(points: Tensor, centres: Tensor, *, smallest: int = SMALLEST, seed: int = 0) -> Tensor:
    """(r, d): centres for groups of `points` (n, d) that are none of the classes with `centres` (k, d).

    Groups are looked for in one half of the points and must be found again in the other: after the points of a group, which has
    half of the `smallest` there or more, the similarity to its middle falls by :data:`GAP`. A centre is as much shorter than 1
    as makes its group nearest to it and hardly anything else: a rare class among common ones is much narrower than they are.
    """
    n, nothing = len(points), points.new_zeros(0, points.shape[1])
    if n < 4 * smallest:
        return nothing
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(points.device)
    first, second = points[order[: n // 2]], points[order[n // 2 :]]
    fits = (points @ centres.T).amax(1)
    near = nearest(first, AROUND - 1)
    close = torch.cat(
        [(a[:, None] * first[b]).sum(2).mean(1) for a, b in zip(first.split(1024), near.split(1024), strict=True)]
    )
    seeds = (close - fits[order[: n // 2]]).topk(min(SEEDS, len(first))).indices
    middles = unit(first[seeds] + first[near[seeds]].sum(1))
    sizes = [size for size in SIZES if size >= smallest / 2 and 2 * size <= len(second)]
    gaps, cuts = _gaps(middles, second, sizes)
    found: list[Tensor] = []
    for place in gaps.argsort(descending=True).tolist():
        if gaps[place] < GAP:
            break
        members = points @ middles[place] >= cuts[place]
        if int(members.sum()) < smallest:
            continue
        middle = unit(points[members].mean(0, keepdim=True))[0]
        similar = points @ middle
        if (similar - fits)[members].mean() < GAP:
            continue
        length = _length(similar, fits, members)
        if length:
            found.append(length * middle)
            fits = torch.maximum(fits, similar)  # what lies here is found
    return torch.stack(found) if found else nothing


def _gaps(middles: Tensor, others: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """For each middle (s, d) the largest fall in similarity after some points of `others` (n, d), and the similarity half-way."""
    gaps, cuts = [], []
    for some in middles.split(max(1, _BLOCK // len(others))):
        top = (some @ others.T).topk(2 * sizes[-1], dim=1).values
        # a few of a group may lie far out, and a few of the others near it
        inner = top[:, [math.ceil(0.8 * size) - 1 for size in sizes]]
        outer = top[:, [2 * size - 1 for size in sizes]]
        gap, best = (inner - outer).max(1)
        gaps.append(gap)
        cuts.append(((inner + outer) / 2).gather(1, best[:, None])[:, 0])
    return torch.cat(gaps), torch.cat(cuts)


def _length(similar: Tensor, fits: Tensor, members: Tensor) -> float:
    """The length of a centre to which `members` (n,) are nearer than to their class, and others are not; 0 where there is none.

    `similar` (n,) is to the middle of the group and `fits` (n,) to the nearest class.
    """
    ratio = torch.where(similar > 0, fits / similar.clamp(min=1e-6), torch.inf)
    ratio, order = ratio.sort()
    gain = torch.where(members[order], 1, -1).cumsum(0)
    gain[ratio >= 1] = 0
    best = int(gain.argmax())
    if int(gain[best]) < 0.5 * int(members.sum()):
        return 0.0
    after = float(ratio[best + 1]) if best + 1 < len(ratio) else 1.0
    return min(1.0, (max(float(ratio[best]), 0.0) + min(after, 1.0)) / 2)
