"""What a set of points shows of its classes without any label: a tree over the points, and how far neighbours agree."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autonovel.maths.kmeans import kmeans

Floats = NDArray[np.float64]

# Principal components in which the tree is built.
COMPONENTS = 128
# Numbers of neighbours at which overlaps are looked at.
NEIGHBOURS = (2, 4, 6, 9, 12, 17, 24, 33, 46, 64)
# Points in a class at which the fall of the tree's heights is looked at.
CLASS_SIZES = (1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
# Rows over which an overlap is averaged: enough for the average, few enough for large piles.
OVERLAP_ROWS = 512


@dataclass(frozen=True)
class Portrait:
    """What can be seen of a set of points without labels."""

    n: int
    """Number of points."""
    levels: Floats
    """(n - 1,) logarithms of the relative heights of the Ward tree, falling: cutting between levels[k - 2] and
    levels[k - 1] gives k clusters."""
    overlap: Floats
    """Logarithm of the mean share of neighbours that two neighbours have in common, for each of `NEIGHBOURS`. It is
    highest where the neighbours are as many as the other members of a class."""

    @property
    def signs(self) -> Floats:
        """All that tells the size of the classes: the overlaps, and how far the tree falls from one class size to the
        next. Below the size of a class it falls slowly, above it fast."""
        ranks = np.log(np.arange(1, self.n) + 0.5)
        heights = np.interp(np.log(np.maximum(1.6, self.n / np.array(CLASS_SIZES))), ranks, self.levels)
        return np.concatenate([self.overlap, np.diff(heights)])

    def clusters(self, threshold: float) -> int:
        """Clusters when the tree is cut at `threshold`."""
        return 1 + int((self.levels >= threshold).sum())

    def cut(self, k: int) -> float:
        """A threshold that gives `k` clusters."""
        if k == 1:
            return float(self.levels[0]) + 0.1
        return float(self.levels[k - 2 : k].mean())


def portray(points: Tensor, *, ratio: float = 1.0, seed: int = 0) -> Portrait:
    """The portrait of `points` (n, d), scaled to length 1, n at least 4; the distances take (n / ratio)² floats.

    With a `ratio` above 1 it is the portrait of the centres of n / ratio small clusters, which stand for all points in
    a tree of bounded size. Portraits can be compared where their ratios are the same.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    x = points.detach().double()
    x = x.cpu() if ratio == 1 else x  # small matrices are quicker there
    x = principal_components(x / x.norm(dim=1, keepdim=True).clamp(min=1e-12), COMPONENTS)
    if ratio > 1:
        x = kmeans(x.float(), max(4, round(len(x) / ratio)), restarts=1, max_iter=10, seed=seed).centres.double().cpu()
    spread = x.square().sum(1).mean().sqrt().item() or 1.0
    heights = np.maximum(linkage(pdist(x.numpy()), "ward")[::-1, 2], 1e-9 * spread)
    # Half the scale is that of the whole, half that of near neighbours: known classes agree best on this mean.
    levels = np.log(heights) - 0.5 * math.log(spread) - 0.5 * float(np.median(np.log(heights)))
    return Portrait(len(x), levels, neighbour_overlap(x.float(), seed))


def principal_components(x: Tensor, components: int) -> Tensor:
    """Coordinates (n, at most `components`) along the directions of largest variance, mean 0."""
    x = x - x.mean(0)
    small = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(small)
    vectors = vectors[:, -components:]
    if x.shape[0] < x.shape[1]:
        return vectors * values[-components:].clamp(min=0).sqrt()
    return x @ vectors


def neighbour_overlap(x: Tensor, seed: int = 0) -> Floats:
    """Logarithm of the share of neighbours in common, for each number of `NEIGHBOURS`; see `Portrait`."""
    n = len(x)
    nearest = torch.cdist(x, x).fill_diagonal_(torch.inf).topk(min(n - 1, NEIGHBOURS[-1]), largest=False).indices
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:OVERLAP_ROWS].to(x.device)
    count = nearest.shape[1]
    near = nearest[rows]
    ranks = torch.arange(count, device=x.device)
    place = torch.full((len(rows), n), count, device=x.device).scatter_(1, near, ranks.expand_as(near))
    # a neighbour's neighbour is one in common among the first k where all three places are below k
    within = place.gather(1, nearest[near].flatten(1)).view(-1, count, count)
    needed = torch.maximum(within, torch.maximum(ranks[:, None], ranks))
    common = torch.bincount(needed.flatten(), minlength=count + 1).cumsum(0).tolist()
    overlaps: list[float] = []
    for k in NEIGHBOURS:
        if k > count:  # a pile this small has no more to tell
            overlaps.append(overlaps[-1] if overlaps else 0.0)
            continue
        overlaps.append(math.log(max(common[k - 1] / (len(rows) * k * k), 1e-6)))
    return np.array(overlaps)
