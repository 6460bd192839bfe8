"""Points made ready for clustering: checked, centred, scaled, in chunks; and start centres for k-means."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from autonovel.base.errors import InputError

# Points per chunk and floats of one distance block. On a CPU the block should stay in the cache, on a GPU it should
# fill the machine.
CPU_ROWS, CPU_BLOCK = 1024, 1 << 20
GPU_ROWS, GPU_BLOCK = 1 << 17, 1 << 28


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
        """Slices of the free points, short enough that a block of them with this many columns stays small."""
        rows, block = (CPU_ROWS, CPU_BLOCK) if self.device.type == "cpu" else (GPU_ROWS, GPU_BLOCK)
        step = max(1, min(rows, block // max(1, columns)))
        for begin in range(0, len(self.x), step):
            yield slice(begin, begin + step)

    def squared_distances(self, chunk: slice, centres: Tensor) -> Tensor:
        """(points of the chunk, m) from the chunk's points to `centres` (m, d)."""
        block = torch.addmm(centres.square().sum(1), self.x[chunk], centres.T, alpha=-2)
        return block.add_(self.x_sq[chunk, None]).clamp_(min=0)

    def seed_centres(self, k: int, runs: int, generator: torch.Generator) -> Tensor:
        """Greedy k-means++ for `runs` runs at once: (runs, k, d), the anchor centres first.

        Each new centre is drawn with probability proportional to the squared distance to the nearest centre so far;
        of 2 + log k such draws the one that lowers the sum most is kept.
        """
        centres = torch.empty(runs, k, self.dim, device=self.device)
        done = self.n_anchors
        centres[:, :done] = (self.anchor_sums / self.anchor_counts[:, None]).float()
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


def _draw(weights: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """`draws` indices for each row of `weights` (runs, n), with probability proportional to the weight."""
    uniform = torch.rand(weights.shape[0], draws, generator=generator, dtype=torch.float64).to(weights.device)
    picks = []
    for row, level in zip(weights, uniform, strict=True):
        total = row.cumsum(0, dtype=torch.float64)
        picks.append(torch.searchsorted(total, level * total[-1], right=True))
    return torch.stack(picks).clamp_(max=weights.shape[1] - 1)
