"""k-means over the same points for many numbers of clusters, at a fraction of the cost of running each by itself."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autonovel.maths.kmeans import KMeansResult, best_of
from autonovel.maths.lloyd import lloyd
from autonovel.maths.points import Points

# Labels kept for one batch of runs (runs x points): bounds the memory of a sweep over many k.
_MAX_LABELS = 1 << 25


def kmeans_sweep(
    features: Tensor,
    ks: Sequence[int],
    *,
    anchors: Tensor | None = None,
    restarts: int = 10,
    max_iter: int = 300,
    tol: float = 1e-4,
    seed: int = 0,
    reuse: bool = True,
) -> dict[int, KMeansResult]:
    """The best result for every k of `ks`.

    With `reuse` only the largest k starts from k-means++. Each of the `restarts` chains then goes down to the next k by
    merging the clusters whose union costs least and iterating from there, which takes few iterations. Without, every k
    starts afresh; the draws are shared, because the first j centres of a k-means++ seeding are a seeding for j.
    """
    sweep = Sweep(features, anchors=anchors, restarts=restarts, max_iter=max_iter, tol=tol, seed=seed)
    return dict(sorted(sweep.chain(ks) if reuse else sweep.fresh(ks)))


class Sweep:
    """Many k over one set of points; see `kmeans_sweep`. Keeps its chains, so that a finer pass can branch off them."""

    def __init__(
        self,
        features: Tensor,
        *,
        anchors: Tensor | None = None,
        restarts: int = 10,
        max_iter: int = 300,
        tol: float = 1e-4,
        seed: int = 0,
    ) -> None:
        self.points = Points(features, anchors)
        self.restarts, self.max_iter, self.tol = restarts, max_iter, tol
        self.generator = torch.Generator().manual_seed(seed)
        self._chains: dict[int, tuple[Tensor, Tensor]] = {}

    def chain(self, ks: Sequence[int]) -> Iterator[tuple[int, KMeansResult]]:
        """Downwards: each restart continues from its own centres at the next larger k seen so far.

        Merging from above finds better optima than adding centres from below, where the few centres of a small k
        have settled between the clusters.
        """
        for k in sorted(set(ks), reverse=True):
            self.points.check_k(k)
            above = [j for j in self._chains if j >= k]
            if above:
                centres = merge_centres(*self._chains[min(above)], k, self.points.n_anchors)
            else:
                centres = self.points.seed_centres(k, self.restarts, self.generator)
            runs = lloyd(self.points, centres, [k] * self.restarts, max_iter=self.max_iter, tol=self.tol)
            self._chains[k] = runs.centres, runs.counts
            yield k, best_of(self.points, runs)

    def fresh(self, ks: Sequence[int]) -> Iterator[tuple[int, KMeansResult]]:
        """Every k from its own k-means++ start, several k in one batch of matrix products."""
        ks = sorted(set(ks))
        for k in ks:
            self.points.check_k(k)
        seeds = self.points.seed_centres(ks[-1], self.restarts, self.generator)
        for group in self._groups(ks):
            k_max = group[-1]
            sizes = [k for k in group for _ in range(self.restarts)]
            start = seeds[:, :k_max].repeat(len(group), 1, 1)
            runs = lloyd(self.points, start, sizes, max_iter=self.max_iter, tol=self.tol)
            for i, k in enumerate(group):
                yield k, best_of(self.points, runs.pick(list(range(i * self.restarts, (i + 1) * self.restarts))))

    def _groups(self, ks: Sequence[int]) -> Iterator[list[int]]:
        """Neighbouring k that share a batch: enough columns for a fast product, little padding, bounded labels."""
        columns = 512 if self.points.device.type == "cpu" else 8192
        group: list[int] = []
        for k in ks:
            larger = [*group, k]
            labels = len(larger) * self.restarts * len(self.points.x)
            if group and (len(larger) * k * self.restarts > columns or k > 1.5 * group[0] + 2 or labels > _MAX_LABELS):
                yield group
                larger = [k]
            group = larger
        if group:
            yield group


def merge_centres(centres: Tensor, counts: Tensor, k: int, n_anchors: int) -> Tensor:
    """From (runs, m, d) centres of clusters with `counts` (runs, m) points down to (runs, k, d).

    The two clusters whose union raises the inertia least are merged (Ward's rule), one pair after the other. The
    clusters of two anchor classes are never merged; a free cluster may end in that of an anchor class.
    """
    runs, m, _ = centres.shape
    centres, counts = centres.to(torch.float64, copy=True), counts.to(torch.float64, copy=True)
    index = torch.arange(runs, device=centres.device)
    upper = torch.ones(m, m, dtype=torch.bool, device=centres.device).triu(1)
    upper[:n_anchors, :n_anchors] = False
    gap = torch.cdist(centres, centres).square_()
    for last in range(m - 1, k - 1, -1):
        size = last + 1
        weight = (
            counts[:, :size, None]
            * counts[:, None, :size]
            / (counts[:, :size, None] + counts[:, None, :size]).clamp(min=1)
        )
        cost = (weight * gap[:, :size, :size]).masked_fill_(~upper[:size, :size], torch.inf)
        pair = cost.flatten(1).argmin(1)
        low, high = pair // size, pair % size
        total = counts[index, low] + counts[index, high]
        share = (counts[index, high] / total.clamp(min=1))[:, None]
        centres[index, low] = torch.lerp(centres[index, low], centres[index, high], share)
        counts[index, low] = total
        # The last cluster moves into the gap, so that the live ones stay in front.
        centres[index, high] = centres[:, last].clone()
        counts[index, high] = counts[:, last].clone()
        for changed in (high, low):
            row = (centres[index, changed][:, None] - centres[:, :m]).square().sum(2)
            gap[index, changed] = row
            gap[index, :, changed] = row
    return centres[:, :k].float()
