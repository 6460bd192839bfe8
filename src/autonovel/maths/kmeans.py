"""k-means with anchors: some points are held to a class, the others are free.

Plain k-means is the case without anchors. All restarts run at once. Random draws come from a CPU generator, so a seed means
the same on every device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.lloyd import Restarts, lloyd
from autonovel.maths.points import Points


@dataclass(frozen=True)
class KMeansResult:
    """The best of the restarts."""

    labels: Tensor
    """int64 (n,), the cluster of each point; anchored points keep their class."""
    centres: Tensor
    """(k, d), float32 unless the features are float64."""
    inertia: float
    """Sum of squared distances of all points, anchors included, to their centre."""
    n_iter: int
    """Lloyd iterations of the chosen restart."""


def kmeans(
    features: Tensor,
    k: int,
    *,
    anchors: Tensor | None = None,
    restarts: int = 10,
    max_iter: int = 300,
    tol: float = 1e-4,
    seed: int = 0,
    init: Tensor | None = None,
) -> KMeansResult:
    """Cluster `features` (n, d) into `k` clusters by Lloyd's algorithm with k-means++ seeding.

    `anchors` is int64 (n,): the class 0..a-1 of a point that is held to that class, -1 for a free point. Class c is
    cluster c; its centre still moves with the free points that join it. `init` gives start centres, (k, d) for one
    run or (restarts, k, d), and leaves nothing to chance. A run ends when no label changes or the centres move by
    less than `tol` (relative to the spread of the features); `tol=0` waits for the labels.
    """
    points = Points(features, anchors)
    points.check_k(k)
    if restarts < 1 or max_iter < 1:
        raise InputError(f"k-means needs at least one restart and one iteration, not {restarts} and {max_iter}.")
    if init is None:
        start = points.seed_centres(k, restarts, torch.Generator().manual_seed(seed))
    else:
        start = init if init.ndim == 3 else init[None]
        if start.shape[1:] != (k, points.dim):
            raise InputError(f"Start centres must have shape ({k}, {points.dim}), not {tuple(init.shape)}.")
        start = points.to_inner(start)
    return best_of(points, lloyd(points, start, max_iter=max_iter, tol=tol))


def best_of(points: Points, runs: Restarts) -> KMeansResult:
    """The run with the lowest inertia, in the user's units, with a label for anchors too."""
    # Runs that found the same clusters differ by rounding; the first of them wins, on every device.
    # Where all points lie on their centres, rounding may also leave a little less than nothing.
    least = runs.inertia.min()
    best = int((runs.inertia <= least + 1e-6 * least.abs()).nonzero()[0])
    labels = points.anchors.clone()
    labels[points.anchors < 0] = runs.labels[best]
    centres = runs.centres[best].double() * points.scale + points.mean.double()
    inertia = runs.inertia[best].item() * points.scale**2
    return KMeansResult(labels, centres.to(points.dtype), inertia, int(runs.n_iter[best]))
