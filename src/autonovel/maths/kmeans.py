"""k-means with anchors: some points are held to a class, the others are free.

Plain k-means is the case without anchors. The assignment step of all restarts (and, in a sweep, of several k) is one
matrix product per chunk of points; the centres follow from exact sums, updated only for points that changed cluster.
Random draws come from a CPU generator, so a seed means the same on every device.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from autonovel.errors import InputError

# Points per chunk and floats of one distance block. On a CPU the block should stay in the cache, on a GPU it should
# fill the machine.
_CPU_ROWS, _CPU_BLOCK = 1024, 1 << 20
_GPU_ROWS, _GPU_BLOCK = 1 << 17, 1 << 28


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
    return points.result(lloyd(points, start, [k] * len(start), max_iter=max_iter, tol=tol))


class Points:
    """The points to cluster: checked, centred and scaled, with the anchors reduced to their sums.

    Distances come from |x|² - 2xc + |c|², which loses digits when the points lie far from the origin; hence the
    centring. The anchors never change cluster, so all that is left of them is a sum and a count per class.
    """

    def __init__(self, features: Tensor, anchors: Tensor | None = None) -> None:
        check_features(features)
        self.n, self.dim = features.shape
        self.device = features.device
        if anchors is None:
            anchors = torch.full((self.n,), -1, dtype=torch.int64, device=self.device)
        if anchors.shape != (self.n,) or anchors.is_floating_point():
            raise InputError(f"Anchors must be {self.n} integers, one for each point (-1 where it is free).")
        anchors = anchors.to(self.device, torch.int64)
        self.anchors = anchors
        self.n_anchors = int(anchors.max().item()) + 1
        counts = torch.bincount(anchors[anchors >= 0], minlength=self.n_anchors)
        if anchors.min() < -1 or (counts == 0).any():
            raise InputError("Anchor classes must be numbered 0, 1, 2, ... without a gap, and free points must be -1.")

        x, self.mean, self.scale = standardise(features)
        self.dtype = x.dtype
        x = x.float()
        held = anchors >= 0
        self.anchor_counts = counts.double()
        self.anchor_sums = torch.zeros(self.n_anchors, self.dim, dtype=torch.float64, device=self.device)
        self.anchor_sums.index_add_(0, anchors[held], x[held].double())
        self.anchor_square = x[held].double().square().sum().item()
        self.x = x[~held] if self.n_anchors else x
        self.x_sq = self.x.square().sum(1)

    def check_k(self, k: int) -> None:
        """Refuse a number of clusters for which there are too few points, or too few clusters for the anchors."""
        free = len(self.x)
        if k < max(1, self.n_anchors):
            raise InputError(f"k-means needs at least {max(1, self.n_anchors)} clusters here, not {k}.")
        if k - self.n_anchors > free:
            raise InputError(f"{k} clusters are too many for {self.n_anchors} anchor classes and {free} free points.")

    def to_inner(self, centres: Tensor) -> Tensor:
        """Centres in the user's units, centred and scaled as the points are."""
        return (centres.to(self.device, torch.float64) - self.mean.double()).div(self.scale).float()

    def chunks(self, columns: int) -> Iterator[slice]:
        """Slices of the free points, short enough that a block of them with so many columns stays small."""
        rows, block = (_CPU_ROWS, _CPU_BLOCK) if self.device.type == "cpu" else (_GPU_ROWS, _GPU_BLOCK)
        step = max(1, min(rows, block // max(1, columns)))
        for begin in range(0, len(self.x), step):
            yield slice(begin, begin + step)

    def squared_distances(self, chunk: slice, centres: Tensor) -> Tensor:
        """(points of the chunk, m) from the chunk's points to `centres` (m, d)."""
        block = torch.addmm(centres.square().sum(1), self.x[chunk], centres.T, alpha=-2)
        return block.add_(self.x_sq[chunk, None]).clamp_(min=0)

    def seed_centres(self, k: int, runs: int, generator: torch.Generator, start: Tensor | None = None) -> Tensor:
        """Greedy k-means++ for `runs` runs at once: (runs, k, d), the anchor centres (or `start`) first.

        Each new centre is drawn with probability proportional to the squared distance to the nearest centre so far;
        of 2 + log k such draws the one that lowers the sum most is kept.
        """
        centres = torch.empty(runs, k, self.dim, device=self.device)
        if start is None:
            start = (self.anchor_sums / self.anchor_counts[:, None]).float().expand(runs, -1, -1)
        done = start.shape[1]
        centres[:, :done] = start
        n, trials = len(self.x), 2 + int(math.log(k))
        if done == 0:
            first = torch.randint(n, (runs,), generator=generator)
            centres[:, 0] = self.x[first.to(self.device)]
            done = 1
        if done == k:
            return centres
        nearest = torch.empty(runs, n, device=self.device)
        given = centres[:, :done].flatten(0, 1)
        for chunk in self.chunks(runs * done):
            nearest[:, chunk] = self.squared_distances(chunk, given).view(-1, runs, done).amin(2).T
        for j in range(done, k):
            picks = _draw(nearest, trials, generator)
            candidates = self.x[picks.flatten()]
            potential = torch.zeros(runs, trials, dtype=torch.float64, device=self.device)
            for chunk in self.chunks(runs * trials):
                block = self.squared_distances(chunk, candidates).view(-1, runs, trials)
                potential += torch.minimum(block, nearest[:, chunk].T[:, :, None]).sum(0)
            best = potential.argmin(1, keepdim=True)
            centres[:, j] = self.x[picks.gather(1, best)[:, 0]]
            for chunk in self.chunks(runs):
                block = self.squared_distances(chunk, centres[:, j])
                nearest[:, chunk] = torch.minimum(nearest[:, chunk], block.T)
        return centres

    def result(self, runs: "Restarts") -> KMeansResult:
        """The run with the lowest inertia, in the user's units, with a label for anchors too."""
        # Runs that found the same clusters differ by rounding; the first of them wins, on every device.
        # Where all points lie on their centres, rounding may also leave a little less than nothing.
        least = runs.inertia.min()
        best = int((runs.inertia <= least + 1e-6 * least.abs()).nonzero()[0])
        k = runs.sizes[best]
        labels = self.anchors.clone()
        labels[self.anchors < 0] = runs.labels[best]
        centres = runs.centres[best, :k].double() * self.scale + self.mean.double()
        return KMeansResult(
            labels, centres.to(self.dtype), runs.inertia[best].item() * self.scale**2, int(runs.n_iter[best])
        )


def standardise(features: Tensor) -> tuple[Tensor, Tensor, float]:
    """Points moved to mean 0 and scaled (all dimensions alike) to mean variance 1; also that mean and that scale.

    float64 stays float64, everything else becomes float32. Features that are all alike become zeros, with scale 1.
    """
    dtype = torch.float64 if features.dtype == torch.float64 else torch.float32
    mean = features.mean(0, dtype=torch.float64).to(dtype)
    centred = features - mean
    # What rounding leaves of constant features is no spread.
    noise = torch.finfo(dtype).eps * mean.abs().amax().item()
    spread = torch.linalg.vector_norm(centred, dtype=torch.float64).item() / math.sqrt(features.numel())
    if spread <= noise:
        return torch.zeros_like(centred), mean, 1.0
    return centred.div_(spread), mean, spread


def check_features(features: Tensor, name: str = "Features") -> None:
    """Refuse what cannot be clustered: a wrong shape, no points, values that are not finite."""
    if features.ndim != 2 or not features.is_floating_point():
        raise InputError(f"{name} must be a two-dimensional array of floats, one row for each point.")
    if len(features) == 0 or features.shape[1] == 0:
        raise InputError(f"{name} are empty: give at least one point with at least one dimension.")
    # A sum is finite only if every term is; the slow look for the row is left for the error.
    if not torch.isfinite(features.sum(dtype=torch.float64)):
        bad = (~torch.isfinite(features).all(1)).nonzero()
        if len(bad):
            raise InputError(f"{name} hold NaN or infinite values (first in row {int(bad[0])}); remove those points.")


@dataclass
class Restarts:
    """Several k-means runs over the same points; those with fewer clusters than the largest are padded."""

    centres: Tensor
    """(runs, k, d), centred and scaled as the points are."""
    labels: Tensor
    """(runs, free points)"""
    inertia: Tensor
    """float64 (runs,) of the scaled points, on the CPU."""
    n_iter: Tensor
    """int64 (runs,), on the CPU."""
    sizes: list[int]
    """Number of clusters of each run."""
    counts: Tensor
    """float64 (runs, k), points of each cluster when the run ended, anchors included."""

    def pick(self, chosen: list[int]) -> "Restarts":
        """Some of the runs, without padding they do not need."""
        sizes = [self.sizes[i] for i in chosen]
        centres = self.centres[chosen, : max(sizes)]
        counts = self.counts[chosen, : max(sizes)]
        return Restarts(centres, self.labels[chosen], self.inertia[chosen], self.n_iter[chosen], sizes, counts)


def lloyd(points: Points, start: Tensor, sizes: Sequence[int], *, max_iter: int = 300, tol: float = 1e-4) -> Restarts:
    """Exact Lloyd iterations for all runs of `start` (runs, k, d) together; a run that has converged drops out.

    Run r uses its first `sizes[r]` centres. An empty cluster takes over the point that lies farthest from its centre.
    """
    runs, k, _ = start.shape
    n, device = len(points.x), points.device
    size = torch.tensor(sizes, device=device)
    out = Restarts(
        start.clone(),
        torch.zeros(runs, n, dtype=torch.int64, device=device),
        torch.zeros(runs, dtype=torch.float64),
        torch.zeros(runs, dtype=torch.int64),
        list(sizes),
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
        fresh, distance = _assign(points, centres, size[alive])
        _repair_empty(points, fresh, distance, size[alive], k)
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
        settle(late, *_assign(points, out.centres[late], size[late]))
    return out


def _draw(weights: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """`draws` indices for each row of `weights` (runs, n), with probability proportional to the weight."""
    uniform = torch.rand(weights.shape[0], draws, generator=generator, dtype=torch.float64).to(weights.device)
    picks = []
    for row, level in zip(weights, uniform, strict=True):
        total = row.cumsum(0, dtype=torch.float64)
        picks.append(torch.searchsorted(total, level * total[-1], right=True))
    return torch.stack(picks).clamp_(max=weights.shape[1] - 1)


def _assign(points: Points, centres: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest of the first `size[r]` centres of run r and squared distance to it, both (runs, free points)."""
    runs, k, _ = centres.shape
    n = len(points.x)
    flat = centres.flatten(0, 1)
    square = centres.square().sum(2)
    square[torch.arange(k, device=size.device) >= size[:, None]] = torch.inf
    square = square.flatten()
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
    step = max(1, (_CPU_BLOCK if points.device.type == "cpu" else _GPU_BLOCK) // points.dim)
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


def _repair_empty(points: Points, labels: Tensor, distance: Tensor, size: Tensor, k: int) -> None:
    """Give each empty cluster (in place) the point farthest from its centre whose cluster can spare it."""
    runs = len(labels)
    flat = labels + k * torch.arange(runs, device=labels.device)[:, None]
    counts = torch.bincount(flat.flatten(), minlength=runs * k).view(runs, k)
    counts[:, : points.n_anchors] += 1  # never empty, and free points may all leave
    empty = (counts == 0) & (torch.arange(k, device=size.device) < size[:, None])
    for run, cluster in empty.nonzero().tolist():
        spare = torch.where(counts[run, labels[run]] > 1, distance[run], -1.0)
        farthest = int(spare.argmax())
        if spare[farthest] <= 0:  # every point that could go lies on its centre: too few distinct points
            continue
        counts[run, labels[run, farthest]] -= 1
        counts[run, cluster] = 1
        labels[run, farthest] = cluster
        distance[run, farthest] = 0
