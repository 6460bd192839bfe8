"""How many parts a graph of neighbours falls into nearly: the largest gap between the eigenvalues of its links.

Were there no link between classes, as many eigenvalues would be 1 as there are classes. A few links between them make these a
little smaller, and the next one stays well below (Zelnik-Manor and Perona 2004, whose distances count relative to those of the
neighbourhood).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.maths.known_space import nearest

NEIGHBOURS = 10
LOCAL = 7
"""The neighbour whose distance is the scale of a point."""
DENSE = 300
"""Points up to which all eigenvalues of a part of the graph are taken at once."""


def eigenvalues(points: Tensor, count: int) -> npt.NDArray[np.float64]:
    """The `count` largest, largest first, of the normalised links between neighbours among `points` (n, d) of length 1."""
    from scipy.sparse import coo_matrix, diags
    from scipy.sparse.csgraph import connected_components
    from scipy.sparse.linalg import eigsh

    n, m = len(points), min(NEIGHBOURS, len(points) - 1)
    near = nearest(points, m)
    square = (points[near] - points[:, None]).square().sum(2).double()
    scale = square.sort(1).values[:, min(LOCAL, m) - 1].sqrt().clamp(min=1e-6)
    weight = torch.exp(-square / (scale[:, None] * scale[near]))
    rows = np.repeat(np.arange(n), m)
    links = coo_matrix((weight.flatten().cpu().numpy(), (rows, near.flatten().cpu().numpy())), shape=(n, n)).tocsr()
    links = links.maximum(links.T)
    part = connected_components(links, directed=False)[1]  # eigenvalues that are equal are found apart, not together
    values = []
    for number in range(part.max() + 1):
        inside = np.flatnonzero(part == number)
        own = links[inside][:, inside]
        scaling = diags(np.asarray(own.sum(1)).ravel() ** -0.5)
        own = scaling @ own @ scaling
        if len(inside) <= max(DENSE, count + 2):
            values.append(np.linalg.eigvalsh(own.toarray()))
        else:
            start = np.random.default_rng(0).normal(size=len(inside))
            values.append(eigsh(own, k=count, which="LA", v0=start, tol=1e-4, return_eigenvectors=False))
    return np.sort(np.concatenate(values))[::-1][:count]


def gaps(points: Tensor, largest: int) -> dict[int, float]:
    """For each number of parts from 2, how far the eigenvalue behind it falls."""
    values = eigenvalues(points, min(largest + 1, len(points)))
    return {k: float(values[k - 1] - values[k]) for k in range(2, len(values))}
