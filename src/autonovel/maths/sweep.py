"""k-means over the same points for many numbers of clusters, at a fraction of the cost of running each by itself."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autonovel.maths.kmeans import KMeansResult, best_of
from autonovel.maths.lloyd import lloyd
from autonovel.maths.points import Points


class Sweep:
    """Many k over one set of points.

    Only the largest k starts from k-means++. Each of the `restarts` chains then goes down to the next k by merging the
    clusters whose union costs least and iterating from there, which takes few iterations. The chains are kept, so that a
    finer pass can branch off them.
    """

    def __init__(self, features: Tensor, *, anchors: Tensor | None = None, restarts: int = 10, seed: int = 0) -> None:
        self.points = Points(features, anchors)
        self.restarts = restarts
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
            runs = lloyd(self.points, centres)
            self._chains[k] = runs.centres, runs.counts
            yield k, best_of(self.points, runs)


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
