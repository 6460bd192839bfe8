"""Dividing images into groups by their features, without training: k-means inside a cluster, and Ward's tree over all."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from autonovel.runs.geometry import Floats, reduced

Ints = npt.NDArray[np.int64]

TREE_EXACT = 5_000
"""Points that the tree is built of directly, in some seconds; more are first put into small groups."""

SMALL_GROUPS = 2_000


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
    """Many small groups of near points: the group of each point, and the centres and sizes of the groups."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(count, batch_size=4096, n_init=1, max_iter=20, random_state=0, reassignment_ratio=0)
    found = model.fit_predict(points)
    numbers, group, sizes = np.unique(found, return_inverse=True, return_counts=True)
    centres = np.zeros((len(numbers), points.shape[1]))
    np.add.at(centres, group, points)
    return group.astype(np.int64), (centres / sizes[:, None]).astype(np.float32), sizes.astype(np.float64)


def ward(points: Floats, sizes: npt.NDArray[np.float64]) -> list[tuple[float, int, int]]:
    """Ward's tree: the merges as (height, a, b), where a and b are any points of the two groups.

    Groups a and b are ``size_a size_b / (size_a + size_b) |centre_a - centre_b|^2`` apart, the growth of the squared
    distances to the centres when they merge. Follows chains of nearest neighbours: a pair that are each other's nearest
    can merge at once, in any order, so the merges come unsorted.
    """
    centre = np.array(points, dtype=np.float64)
    size = np.array(sizes, dtype=np.float64)
    alive = np.ones(len(centre), dtype=bool)
    merges: list[tuple[float, int, int]] = []
    chain: list[int] = []
    while len(merges) < len(centre) - 1:
        if not chain:
            chain.append(int(alive.argmax()))
        tip = chain[-1]
        apart = np.square(centre - centre[tip]).sum(1) * (size * size[tip] / (size + size[tip]))
        apart[~alive] = np.inf
        apart[tip] = np.inf
        nearest = int(apart.argmin())
        if len(chain) > 1 and apart[chain[-2]] <= apart[nearest]:
            nearest = chain[-2]
            merges.append((float(apart[nearest]), nearest, tip))
            chain = chain[:-2]
            total = size[nearest] + size[tip]
            centre[nearest] = (centre[nearest] * size[nearest] + centre[tip] * size[tip]) / total
            size[nearest] = total
            alive[tip] = False
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
