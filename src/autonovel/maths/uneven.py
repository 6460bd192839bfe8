"""Groups of classes whose sizes differ much: a tree by average linkage, and a mixture in which sizes are free.

k-means prefers groups of one size, so it cuts a class of hundreds before it gives one of a dozen a group of its own. A tree by
average linkage does not, but its many strays must not count as groups: it is cut where as many groups as are wanted have a
twelfth of the mean size. A few rounds of a mixture then put images on the borders right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.maths.known_space import group_means, smooth, unit, without_empty

UNEVEN = 0.38
"""The spread of the sizes of groups (standard deviation over mean) from which on classes seem to differ in size. k-means shows
less than there is: of classes of equal size it makes groups that spread by 0.1 to 0.3, of sizes from 15 to 1 by 0.4 to 0.8."""
LEAST = 1 / 12
"""Share of the mean size of a group below which one is taken for strays."""
POINTS = 3000
"""In the tree, at most: its distances take the square of them. Of a larger pile a sample is grouped, and the rest follows it."""
ROUNDS, SHARPNESS = 5, 15.0
"""Of the mixture."""


class Tree(NamedTuple):
    """Points joined two by two, until there is one group.

    Attributes:
        first, second: int64 (n - 1,), what each merge joins: points below n, n + the number of an earlier merge from there on.
        sizes: int64 (n - 1,), points of the merged group.
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class Sample(NamedTuple):
    """The points of a tree, and where they are in the pile."""

    rows: Tensor
    smoothed: Tensor
    tree: Tree


def are_uneven(groups: Tensor, k: int) -> bool:
    """Whether `k` groups (n,) of k-means differ so much in size that the classes seem to."""
    sizes = torch.bincount(groups, minlength=k).double()
    return bool(sizes.std(correction=0) > UNEVEN * sizes.mean())


def average_tree(points: Tensor) -> Tree:
    """The groups whose points (n, d) are closest on average are joined first."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    merges = linkage(pdist(points.double().cpu().numpy(), "sqeuclidean"), "average")
    return Tree(*(merges[:, column].astype(np.int64) for column in (0, 1, 3)))


def cut(tree: Tree, k: int, least: float) -> npt.NDArray[np.int64] | None:
    """The last state of the tree in which `k` groups have `least` points: the group of each point, -1 for strays.

    The `k` largest groups are numbered from 0, the largest first; the rest are strays. None where there is no such state.
    """
    n = len(tree.sizes) + 1
    size = np.concatenate([np.ones(n, np.int64), tree.sizes])
    large = (size >= least).astype(np.int64)
    there = np.cumsum(np.concatenate([[large[:n].sum()], large[n:] - large[tree.first] - large[tree.second]]))
    states = np.flatnonzero(there >= k)
    if not len(states):
        return None
    to = np.arange(n + len(tree.sizes))
    done = int(states[-1])
    for parts in (tree.first, tree.second):
        to[parts[:done]] = n + np.arange(done)
    while (to != to[to]).any():
        to = to[to]
    _, groups, counts = np.unique(to[:n], return_inverse=True, return_counts=True)
    number = np.full(len(counts), -1)
    number[np.argsort(-counts, kind="stable")[:k]] = np.arange(k)
    return number[groups]


def sample_tree(points: Tensor, *, seed: int = 0) -> Sample:
    """The tree over smoothed `points` (n, d) of length 1, or over some of them; serves any number of groups."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[:POINTS]
    rows = order.sort().values.to(points.device)
    smoothed = smooth(points[rows])
    return Sample(rows, smoothed, average_tree(smoothed))


def groups_of(sample: Sample, points: Tensor, k: int) -> Tensor | None:
    """int64 (n,): `k` groups of `points` (n, d) of length 1 by their tree; None where no `k` are more than strays."""
    branches = cut(sample.tree, k, max(2.0, LEAST * len(sample.rows) / k))
    if branches is None:
        return None
    groups = torch.from_numpy(branches).to(points.device)
    inside = groups >= 0
    means = group_means(sample.smoothed[inside], groups[inside], k)
    groups = torch.where(inside, groups, (sample.smoothed @ means.T).argmax(1))
    sizes = torch.bincount(groups, minlength=k)
    return mixture(points, group_means(sample.smoothed, groups, k), sizes / len(groups))


def uneven_groups(points: Tensor, k: int, *, seed: int = 0) -> Tensor | None:
    """int64 (n,): `k` groups of `points` (n, d) of length 1, of whatever size; see :func:`groups_of`."""
    return groups_of(sample_tree(points, seed=seed), points, k) if len(points) > max(2, k) else None


def mixture(points: Tensor, means: Tensor, shares: Tensor) -> Tensor:
    """int64 (n,): groups of `points` (n, d) after rounds in which directions `means` (k, d) and `shares` (k,) follow them."""
    for _ in range(ROUNDS):
        likely = answer(points, means, shares)
        shares, means = likely.mean(0), unit(likely.T @ points)
    return without_empty(points, answer(points, means, shares).argmax(1), len(means))


def answer(points: Tensor, means: Tensor, shares: Tensor) -> Tensor:
    """(n, k): how likely each group is for `points` (n, d), given its direction and its share of all points."""
    return (SHARPNESS * points @ means.T + shares.clamp(min=1e-6).log()).softmax(1)
