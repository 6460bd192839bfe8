"""The number asked for may be wrong: which groups belong together, and which hold two classes.

How many classes there are is counted elsewhere (`estimate`); here the groups are brought to that number. Comparing two groups
alone does not tell whether they are one class: the closest of many pairs of classes are closer than the halves of a wide one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.known_space import find_groups, smooth

SMALLEST = 8
"""Images in a group below which nothing is said about it."""


def merge_groups(points: Tensor, groups: Tensor, k: int, target: int) -> Tensor:
    """int64 (k,): for each group the smallest number of the groups that it is merged with, until `target` are left.

    Again and again the two are merged whose union scatters least more than they do (Ward's rule), after smoothing.
    """
    if not 1 <= target <= k:
        raise InputError(f"{k} groups cannot be merged into {target}; ask for 1 to {k}.")
    points = smooth(points).double()
    sizes = torch.bincount(groups, minlength=k).double()
    sums = points.new_zeros(k, points.shape[1]).index_add_(0, groups, points)
    to = torch.arange(k)
    alive = list(range(k))
    while len(alive) > target:
        means = sums[alive] / sizes[alive].clamp(min=1)[:, None]
        weight = sizes[alive][:, None] * sizes[alive] / (sizes[alive][:, None] + sizes[alive]).clamp(min=1)
        cost = weight * torch.cdist(means, means).square()
        cost[torch.ones_like(cost, dtype=torch.bool).tril()] = torch.inf
        place = int(cost.argmin())
        first, second = alive[place // len(alive)], alive[place % len(alive)]
        sums[first] += sums[second]
        sizes[first] += sizes[second]
        to[to == second] = first
        alive.remove(second)
    return to


def separation(points: Tensor, halves: Tensor) -> float:
    """How far apart groups 0 and 1 of `halves` (n,) are, in standard deviations along the line between their means."""
    a, b = points[halves == 0].double(), points[halves == 1].double()
    axis = b.mean(0) - a.mean(0)
    gap = axis.norm().item()
    if not gap > 0:  # equal, or one of them empty
        return 0.0
    a, b = a @ axis / gap, b @ axis / gap
    scatter = (len(a) * a.var(correction=0) + len(b) * b.var(correction=0)) / len(halves)
    return float(gap / max(scatter.sqrt().item(), 1e-9))


def widest_groups(points: Tensor, groups: Tensor, k: int, count: int, *, seed: int = 0) -> list[int]:
    """The `count` groups whose two halves lie farthest apart, farthest first."""
    gaps = {}
    for group in range(k):
        members = points[groups == group]
        if len(members) >= SMALLEST:
            gaps[group] = separation(members, find_groups(members, 2, seed=seed))
    return sorted(gaps, key=lambda group: gaps[group], reverse=True)[:count]


def number_notes(
    points: Tensor, groups: Tensor, k: int, counted: int, *, kind: str = "new classes", seed: int = 0
) -> list[str]:
    """Which groups to look at where `counted` classes were counted and `k` asked for; empty where the two are close.

    `kind` is what the groups are called.
    """
    if abs(counted - k) <= max(1, k // 4):  # the count is no surer than that
        return []
    look = f"The images look like {counted} {kind} rather than {k}"
    if counted < k:
        to = merge_groups(points, groups, k, counted).tolist()
        joined = [[g for g in range(k) if to[g] == first] for first in sorted(set(to))]
        sets = "; ".join(" and ".join(map(str, group)) for group in joined if len(group) > 1)
        return [f"{look}: clusters {sets} may be parts of one class."]
    wide = widest_groups(points, groups, k, counted - k, seed=seed)
    numbers = ", ".join(map(str, sorted(wide)))
    if not wide:
        return [f"{look}."]
    text = f"cluster {numbers} may hold two" if len(wide) == 1 else f"clusters {numbers} may hold two each"
    return [f"{look}: {text}."]
