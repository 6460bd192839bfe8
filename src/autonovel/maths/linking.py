"""Groups of very different sizes: small pieces are joined where many of their images are neighbours.

k-means cuts a large class in two before it gives a small one a group of its own, whatever space it works in. Whether images have
their nearest neighbours in their own group says so without any label: along such a cut many have not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.maths.known_space import find_groups, group_means, nearest

NEIGHBOURS = 10
PIECES, FEWEST, MOST, IN_A_PIECE = 12, 60, 600, 8
"""Pieces for each group that is wanted, the fewest and the most in all, and the fewest images that one has on average."""
LEAST = 0.15
"""Share of the mean size of a group below which one is taken for strays, which stay with those that they are linked to."""


def neighbours(points: Tensor) -> Tensor:
    """int64 (n, up to `NEIGHBOURS`): the nearest of the other points (n, d) of length 1."""
    return nearest(points, min(NEIGHBOURS, len(points) - 1))


def leaving(near: Tensor, groups: Tensor, k: int) -> float:
    """The share of the links to neighbours `near` (n, m) that leave a group, on average over the `k` groups."""
    links = _links(near, groups, k)
    return (1 - links.diagonal() / links.sum(1).clamp(min=1)).mean().item()


def link_groups(points: Tensor, near: Tensor, k: int, *, seed: int = 0) -> Tensor | None:
    """int64 (n,): `k` groups of `points` (n, d) of length 1 with neighbours `near`; None where no `k` can be found.

    Pieces found by k-means are joined again and again, those two first that have most links for their sizes (average linkage).
    The answer is the last state in which `k` groups are more than strays.
    """
    count = max(k, min(max(PIECES * k, FEWEST), MOST, len(points) // IN_A_PIECE))
    pieces = find_groups(points, count, restarts=3, seed=seed)
    links, sizes = _links(near, pieces, count), torch.bincount(pieces, minlength=count).double()
    density = (links / (sizes[:, None] * sizes).clamp(min=1)).fill_diagonal_(-1)
    density[sizes == 0] = density[:, sizes == 0] = -1
    to, last = torch.arange(count, device=points.device), None
    while True:
        if int((sizes >= LEAST * len(points) / k).sum()) >= k:
            last = to.clone()
        if int((sizes > 0).sum()) <= k:
            break
        if density.max() <= 0:  # parts without any link: those whose directions are closest
            means = group_means(points, to[pieces], count)
            density = torch.where(density < 0, density, 1e-9 * (2 + means @ means.T).double())
        first, second = divmod(int(density.argmax()), count)
        for values in (links, links.T, sizes):
            values[first] += values[second]
            values[second] = 0
        row = torch.where(sizes > 0, links[first] / (sizes[first] * sizes).clamp(min=1), -1.0)
        row[first] = -1
        density[first] = density[:, first] = row
        density[second] = density[:, second] = -1
        to[to == second] = first
    return None if last is None else _without_strays(near, last[pieces], count, k)


def _without_strays(near: Tensor, groups: Tensor, count: int, k: int) -> Tensor:
    """The `k` largest groups, numbered from 0; each of the others joins the one to which most links lead for its size."""
    sizes = torch.bincount(groups, minlength=count)
    kept = sizes.topk(k).indices
    links = _links(near, groups, count)[:, kept] / sizes[kept]
    to = links.argmax(1)
    to[kept] = torch.arange(k, device=groups.device)
    return to[groups]


def _links(near: Tensor, groups: Tensor, count: int) -> Tensor:
    """float64 (count, count): how many links to neighbours there are between each two groups, in either direction."""
    pairs = (groups[:, None] * count + groups[near]).flatten()
    links = torch.bincount(pairs, minlength=count * count).view(count, count).double()
    return links + links.T
