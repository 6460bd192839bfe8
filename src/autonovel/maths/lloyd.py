"""Lloyd's algorithm, exact, for several runs over the same points at once; the engine room of `kmeans` and `Sweep`.

The assignment step of all runs is one matrix product per chunk of points; the centres follow from exact sums, updated only
for points that changed cluster.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from autonovel.maths.points import CPU_BLOCK, GPU_BLOCK, Points


@dataclass
class Restarts:
    """Several k-means runs over the same points."""

    centres: Tensor
    """(runs, k, d), centred and scaled as the points are."""
    labels: Tensor
    """(runs, free points)"""
    inertia: Tensor
    """float64 (runs,) of the scaled points, on the CPU."""
    n_iter: Tensor
    """int64 (runs,), on the CPU."""
    counts: Tensor
    """float64 (runs, k), points of each cluster when the run ended, anchors included."""


def lloyd(points: Points, start: Tensor, *, max_iter: int = 300, tol: float = 1e-4) -> Restarts:
    """Exact Lloyd iterations for all runs of `start` (runs, k, d) together; a run that has converged drops out.

    An empty cluster takes over the point that lies farthest from its centre.
    """
    runs, k, _ = start.shape
    n, device = len(points.x), points.device
    out = Restarts(
        start.clone(),
        torch.zeros(runs, n, dtype=torch.int64, device=device),
        torch.zeros(runs, dtype=torch.float64),
        torch.zeros(runs, dtype=torch.int64),
        torch.zeros(runs, k, dtype=torch.float64, device=device),
    )

    def settle(which: Tensor, labels: Tensor, distance: Tensor) -> None:
        inertia = distance.sum(1, dtype=torch.float64) + _anchor_inertia(points, out.centres[which])
        out.labels[which] = labels
        out.inertia[which.cpu()] = inertia.cpu()

    alive = torch.arange(runs, device=device)
    unsettled = []
    centres = out.centres
    labels = torch.empty(runs, n, dtype=torch.int64, device=device)
    sums, counts = _anchor_totals(points, runs, k)
    for iteration in range(1, max_iter + 1):
        fresh, distance = _assign(points, centres)
        _repair_empty(points, fresh, distance, k)
        changed = torch.ones_like(fresh, dtype=torch.bool) if iteration == 1 else fresh != labels
        n_changed = changed.sum(1)
        _move(points, sums, counts, labels, fresh, changed, n_changed.tolist())
        labels = fresh
        # An empty cluster that could not be repaired (too few distinct points) stays where it is.
        means = torch.where(counts[..., None] > 0, sums / counts[..., None].clamp(min=1), centres.double()).float()
        # Features are scaled to a mean variance of 1, so the shift is relative to the spread.
        shift = (means - centres).double().square().sum((1, 2))
        centres = means
        still = n_changed == 0
        finished = still | (shift <= tol) if tol > 0 else still
        if iteration == max_iter:
            finished = torch.ones_like(finished)
        if finished.any():
            out.centres[alive[finished]] = centres[finished]
            out.counts[alive[finished]] = counts[finished]
            out.n_iter[alive[finished].cpu()] = iteration
            settle(alive[still], labels[still], distance[still])
            unsettled.append(alive[finished & ~still])
            alive, centres, labels = alive[~finished], centres[~finished], labels[~finished]
            sums, counts = sums[~finished], counts[~finished]
            if len(alive) == 0:
                break
    # Where the centres still moved a little, labels and inertia must belong to the final centres.
    late = torch.cat(unsettled)
    if len(late):
        settle(late, *_assign(points, out.centres[late]))
    return out


def _assign(points: Points, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest centre in each run and squared distance to it, both (runs, free points)."""
    runs, k, _ = centres.shape
    n = len(points.x)
    flat = centres.flatten(0, 1)
    square = centres.square().sum(2).flatten()
    labels = torch.empty(runs, n, dtype=torch.int64, device=points.device)
    distance = torch.empty(runs, n, device=points.device)
    for chunk in points.chunks(runs * k):
        block = torch.addmm(square, points.x[chunk], flat.T, alpha=-2)
        least, nearest = block.view(-1, runs, k).min(2)
        distance[:, chunk] = least.T
        labels[:, chunk] = nearest.T
    return labels, distance.add_(points.x_sq).clamp_(min=0)


def _anchor_totals(points: Points, runs: int, k: int) -> tuple[Tensor, Tensor]:
    """Sums (runs, k, d) and counts (runs, k), float64, as the anchors alone give them."""
    sums = torch.zeros(runs, k, points.dim, dtype=torch.float64, device=points.device)
    counts = torch.zeros(runs, k, dtype=torch.float64, device=points.device)
    sums[:, : points.n_anchors] = points.anchor_sums
    counts[:, : points.n_anchors] = points.anchor_counts
    return sums, counts


def _anchor_inertia(points: Points, centres: Tensor) -> Tensor:
    """float64 (runs,): squared distances of the anchors to the centres of their classes."""
    own = centres[:, : points.n_anchors].double()
    cross = (own * points.anchor_sums).sum((1, 2))
    return points.anchor_square - 2 * cross + (own.square().sum(2) * points.anchor_counts).sum(1)


def _move(
    points: Points, sums: Tensor, counts: Tensor, old: Tensor, new: Tensor, changed: Tensor, n_changed: list[int]
) -> None:
    """Bring sums and counts (in place) from the labels `old` to `new`.

    Few changes are moved one by one, in float64 so that nothing drifts; many are cheaper to sum anew.
    """
    n, k = len(points.x), counts.shape[1]
    anchors = points.n_anchors
    few = torch.tensor([0 < m <= n // 8 for m in n_changed], device=points.device)
    for run, m in enumerate(n_changed):
        if m > n // 8:
            sums[run], counts[run] = _cluster_sums(points.x, new[run], k)
            sums[run, :anchors] += points.anchor_sums
            counts[run, :anchors] += points.anchor_counts
    flat_sums, flat_counts = sums.view(-1, points.dim), counts.view(-1)
    step = max(1, (CPU_BLOCK if points.device.type == "cpu" else GPU_BLOCK) // points.dim)
    moves = (changed & few[:, None]).nonzero()
    for begin in range(0, len(moves), step):
        run, point = moves[begin : begin + step].T
        rows = points.x[point].double()
        ones = torch.ones_like(point, dtype=torch.float64)
        for cluster, sign in ((new[run, point], 1), (old[run, point], -1)):
            flat_sums.index_add_(0, run * k + cluster, rows, alpha=sign)
            flat_counts.index_add_(0, run * k + cluster, ones, alpha=sign)


def _cluster_sums(x: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sums (k, d) and counts (k,) of the rows of each cluster, float64; short stretches are summed in float32."""
    sums = torch.zeros(k, x.shape[1], dtype=torch.float64, device=x.device)
    step = 1 << 16
    for begin in range(0, len(x), step):
        part = labels[begin : begin + step]
        counts = torch.bincount(part, minlength=k)
        sums += embedding_bag(torch.argsort(part), x[begin : begin + step], counts.cumsum(0) - counts, mode="sum")
    return sums, torch.bincount(labels, minlength=k).double()


def _repair_empty(points: Points, labels: Tensor, distance: Tensor, k: int) -> None:
    """Give each empty cluster (in place) the point farthest from its centre whose cluster can spare it."""
    runs = len(labels)
    flat = labels + k * torch.arange(runs, device=labels.device)[:, None]
    counts = torch.bincount(flat.flatten(), minlength=runs * k).view(runs, k)
    counts[:, : points.n_anchors] += 1  # never empty, and free points may all leave
    for run, cluster in (counts == 0).nonzero().tolist():
        spare = torch.where(counts[run, labels[run]] > 1, distance[run], -1.0)
        farthest = int(spare.argmax())
        if spare[farthest] <= 0:  # every point that could go lies on its centre: too few distinct points
            continue
        counts[run, labels[run, farthest]] -= 1
        counts[run, cluster] = 1
        labels[run, farthest] = cluster
        distance[run, farthest] = 0
