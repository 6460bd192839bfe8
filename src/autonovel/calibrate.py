"""Counting classes with a tree whose cut is learned from known classes.

A group of known classes that training has not seen is a discovery problem with a known answer. Many such problems,
resampled to classes of many sizes, teach two things: at which height a Ward tree must be cut, given the size of the
classes, and how the size of the classes shows in the points without any label. Both are then read off the unlabelled
pile. Heights are taken relative to the spread of the points, because families of classes differ more in scale than
in shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

# Numbers of neighbours at which overlaps are looked at.
NEIGHBOURS = (2, 4, 6, 9, 12, 17, 24, 33, 46, 64)
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

    def clusters(self, threshold: float) -> int:
        """Clusters when the tree is cut at `threshold`."""
        return 1 + int((self.levels >= threshold).sum())

    def cut(self, k: int) -> float:
        """A threshold that gives `k` clusters."""
        if k == 1:
            return float(self.levels[0]) + 0.1
        return float(self.levels[k - 2 : k].mean())


def portray(points: Tensor, *, components: int = 128, normalise: bool = True, seed: int = 0) -> Portrait:
    """The portrait of `points` (n, d), n at least 4; the distances take n² floats."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    x = points.detach().double().cpu()
    if normalise:
        x = x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)
    x = principal_components(x, components)
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
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:OVERLAP_ROWS]
    found: list[float] = []
    for k in NEIGHBOURS:
        if k > nearest.shape[1]:  # a pile this small has no more to tell
            found.append(found[-1] if found else 0.0)
            continue
        member = torch.zeros(n, n).scatter_(1, nearest[:, :k], 1.0)
        common = (member[rows] @ member.T * member[rows]).sum() / (len(rows) * k * k)
        found.append(math.log(max(common.item(), 1e-6)))
    return np.array(found)


@dataclass(frozen=True)
class KnownProblem:
    """A resampled group of known classes: its portrait and the answer."""

    group: int
    n_classes: int
    portrait: Portrait

    @property
    def log_size(self) -> float:
        """Logarithm of the mean number of points in a class."""
        return math.log(self.portrait.n / self.n_classes)


class Calibration:
    """What the known problems teach, ready to be applied to a pile.

    `typical_size` is the class size to expect before looking, `size_spread` how many natural logarithms the size may
    be off from it; 0 takes it for granted.
    """

    def __init__(self, problems: Sequence[KnownProblem], *, typical_size: float, size_spread: float) -> None:
        sizes = np.array([problem.log_size for problem in problems])
        cuts = np.array([problem.portrait.cut(problem.n_classes) for problem in problems])
        groups = np.array([problem.group for problem in problems])
        self.typical, self.spread = math.log(typical_size), size_spread
        self.sizes = np.linspace(min(sizes.min(), self.typical) - 0.1, max(sizes.max(), self.typical) + 0.6, 160)
        # The height of the cut, linear in the logarithm of the size; each group lies somewhat above or below.
        bends = 1 if np.ptp(sizes) > 0.2 else 0
        self.line = np.polyfit(sizes, cuts, bends)
        rest = cuts - np.polyval(self.line, sizes)
        self.offsets = np.array([rest[groups == group].mean() for group in np.unique(groups)])
        # The overlaps, quadratic in it, and how they scatter.
        overlaps = np.stack([problem.portrait.overlap for problem in problems])
        design = np.vander(sizes, 3 if bends else 1)
        weights = np.linalg.lstsq(design, overlaps, rcond=None)[0]
        scatter = overlaps - design @ weights
        covariance = scatter.T @ scatter / len(problems)
        diagonal = np.diag(np.diag(covariance))
        self.precision = np.linalg.inv(0.7 * covariance + 0.3 * diagonal + 1e-6 * np.eye(len(covariance)))
        self.expected = np.vander(self.sizes, design.shape[1]) @ weights

    def size_belief(self, portrait: Portrait) -> Floats:
        """Probability of each of `self.sizes` (logarithms of class sizes), given what the pile looks like."""
        if self.spread == 0:
            belief = np.zeros(len(self.sizes))
            belief[np.abs(self.sizes - self.typical).argmin()] = 1.0
            return belief
        gap = portrait.overlap - self.expected
        score = -0.5 * np.einsum("ij,jk,ik->i", gap, self.precision, gap)
        score -= 0.5 * ((self.sizes - self.typical) / self.spread) ** 2
        belief = np.exp(score - score.max())
        return np.asarray(belief / belief.sum())

    def log_size(self, portrait: Portrait, quantile: float = 0.5) -> float:
        """Logarithm of the class size: the median of the belief, or another quantile."""
        step = np.searchsorted(np.cumsum(self.size_belief(portrait)), quantile)
        return float(self.sizes[min(int(step), len(self.sizes) - 1)])

    def threshold(self, portrait: Portrait, quantile: float = 0.5) -> float:
        """Where to cut the tree of a pile."""
        return float(np.polyval(self.line, self.log_size(portrait, quantile)))

    def answers(self, portrait: Portrait) -> list[int]:
        """The counts that single groups and less likely class sizes would give: the spread of the estimate."""
        cuts = [self.threshold(portrait, quantile) for quantile in (0.1, 0.3, 0.5, 0.7, 0.9)]
        return [portrait.clusters(cut + offset) for cut in cuts for offset in self.offsets]


def draw_problem(
    features: Tensor, labels: Tensor, classes: Tensor, size: float, unevenness: float, generator: torch.Generator
) -> Tensor:
    """Points of `classes`, about `size` of each: sizes are uniform within ± `unevenness` of it (a share)."""
    keep = []
    for label in classes.tolist():
        members = (labels == label).nonzero()[:, 0].cpu()
        wanted = size * (1 + unevenness * (2 * torch.rand((), generator=generator).item() - 1))
        order = torch.randperm(len(members), generator=generator)[: max(2, round(wanted))]
        keep.append(members[order])
    return features[torch.cat(keep).to(features.device)]
