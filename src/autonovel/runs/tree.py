"""Dividing images into groups by their features, without training: k-means inside a cluster, and Ward's tree over all."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from autonovel.runs.geometry import CHUNK, Floats, reduced

Ints = npt.NDArray[np.int64]

TREE_EXACT = 5_000
"""Points that the tree is built of directly, in some seconds; more are first put into small groups."""

SMALL_GROUPS = 2_000
LLOYD_STEPS = 4


def divide(features: npt.NDArray[np.floating], k: int) -> Ints:
    """(n,) k groups by k-means, the largest first; fewer where fewer images differ."""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer distinct points than groups, which the caller sees
        found = KMeans(k, n_init=10, random_state=0).fit_predict(reduced(features))
    return largest_first(found)


def divide_by_tree(features: npt.NDArray[np.floating], k: int, *, exact: int = TREE_EXACT) -> Ints:
    """(n,) k groups: Ward's tree cut where it has k branches, the largest group first."""
    points = reduced(features)
    if len(points) <= exact:
        return largest_first(cut(len(points), ward(points, np.ones(len(points))), k))
    small, centres, sizes = _small_groups(points, max(min(SMALL_GROUPS, exact), k))
    return largest_first(cut(len(centres), ward(centres, sizes), k)[small])


def _small_groups(points: Floats, count: int) -> tuple[Ints, Floats, npt.NDArray[np.float64]]:
    """Many small groups of near points: the group of each point, and the centres and sizes of the groups.

    k-means from points that are evenly spaced in the list; a few steps of it are enough for groups of some dozen points.
    """
    centres = points[np.linspace(0, len(points) - 1, count).astype(np.int64)]
    for _ in range(LLOYD_STEPS):
        found = _nearest(points, centres)
        _, group, sizes = np.unique(found, return_inverse=True, return_counts=True)
        order = np.argsort(group, kind="stable")
        sums = np.add.reduceat(points[order], np.concatenate([[0], sizes.cumsum()[:-1]]), dtype=np.float64)
        centres = (sums / sizes[:, None]).astype(np.float32)
    return group.astype(np.int64), centres, sizes.astype(np.float64)


def _nearest(points: Floats, centres: Floats) -> Ints:
    """(n,) the centre nearest to each point."""
    half = np.square(centres).sum(1) / 2
    found = [
        (points[start : start + CHUNK // 4] @ centres.T - half).argmax(1) for start in range(0, len(points), CHUNK // 4)
    ]
    return np.concatenate(found)


def ward(points: Floats, sizes: npt.NDArray[np.float64]) -> list[tuple[float, int, int]]:
    """Ward's tree: the merges as (height, a, b), where a and b are any points of the two groups.

    Groups a and b are ``size_a size_b / (size_a + size_b) |centre_a - centre_b|^2`` apart, the growth of the squared
    distances to the centres when they merge. Follows chains of nearest neighbours: a pair that are each other's nearest
    can merge at once, in any order, so the merges come unsorted.
    """
    centre = np.array(points, dtype=np.float64)
    size = np.array(sizes, dtype=np.float64)
    name = np.arange(len(centre))  # of what is left: a point of each group
    merges: list[tuple[float, int, int]] = []
    chain: list[int] = []  # places among what is left
    gone: list[int] = []
    while len(merges) < len(points) - 1:
        if len(gone) > len(name) / 4:  # what is gone no longer costs anything
            left = np.setdiff1d(np.arange(len(name)), gone)
            chain = np.searchsorted(left, chain).tolist()
            centre, size, name, gone = centre[left], size[left], name[left], []
        if not chain:
            chain.append(int(np.argmax(size > 0)))
        tip = chain[-1]
        away = centre - centre[tip]
        apart = np.einsum("ij,ij->i", away, away) * (size * size[tip] / (size + size[tip]))
        apart[gone] = np.inf
        apart[tip] = np.inf
        nearest = int(apart.argmin())
        if len(chain) > 1 and apart[chain[-2]] <= apart[nearest]:
            nearest = chain[-2]
            merges.append((float(apart[nearest]), int(name[nearest]), int(name[tip])))
            chain = chain[:-2]
            total = size[nearest] + size[tip]
            centre[nearest] = (centre[nearest] * size[nearest] + centre[tip] * size[tip]) / total
            size[nearest] = total
            size[tip] = 0
            gone.append(tip)
        else:
            chain.append(nearest)
    return merges


def cut(count: int, merges: list[tuple[float, int, int]], k: int) -> Ints:
    """(count,) the k groups that are left before the highest merges."""
    parent = list(range(count))

    def root(point: int) -> int:
        while parent[point] != point:
            parent[point] = parent[parent[point]]
            point = parent[point]
        return point

    for _, a, b in sorted(merges, key=lambda merge: merge[0])[: max(count - k, 0)]:
        parent[root(b)] = root(a)
    return np.unique([root(point) for point in range(count)], return_inverse=True)[1].astype(np.int64)


def largest_first(groups: npt.NDArray[np.integer]) -> Ints:
    """The same groups, numbered from 0 by size; equal sizes by their first image."""
    _, first, group, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    return np.argsort(order).astype(np.int64)[group]
