"""Counting classes with a tree whose cut is learned from known classes.

A group of known classes that training has not seen is a discovery problem with a known answer. Many such problems,
resampled to classes of many sizes, teach two things: at which height a Ward tree must be cut, given the size of the
classes, and how the size of the classes shows in the points without any label. Both are then read off the unlabelled
pile. Heights are taken relative to the spread of the points, because families of classes differ more in scale than
in shape. What the families disagree on, each judged by what the others teach, is the uncertainty of the answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autonovel.maths.kmeans import kmeans

Floats = NDArray[np.float64]

# Numbers of neighbours at which overlaps are looked at.
NEIGHBOURS = (2, 4, 6, 9, 12, 17, 24, 33, 46, 64)
# Points in a class at which the fall of the tree's heights is looked at.
CLASS_SIZES = (1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
# Rows over which an overlap is averaged: enough for the average, few enough for large piles.
OVERLAP_ROWS = 512
# How far, in natural logarithms, class sizes may lie apart and still be similar.
SIMILAR_SIZE = 0.2
# Groups that share classes disagree less than new classes do with known ones: by this factor, as known classes show.
WIDER = 1.5


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


def portray(
    points: Tensor, *, components: int = 128, normalise: bool = True, ratio: float = 1.0, seed: int = 0
) -> Portrait:
    """The portrait of `points` (n, d), n at least 4; the distances take (n / ratio)² floats.

    With a `ratio` above 1 it is the portrait of the centres of n / ratio small clusters, which stand for all points in
    a tree of bounded size. Portraits can be compared where their ratios are the same.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    x = points.detach().double()
    x = x.cpu() if ratio == 1 else x  # small matrices are quicker there
    if normalise:
        x = x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)
    x = principal_components(x, components)
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
    be off from it; 0 takes it for granted. `ratio` is that of the portraits; sizes are counted in what they show.
    `disjoint` says that the groups share no class.
    """

    def __init__(
        self,
        problems: Sequence[KnownProblem],
        *,
        typical_size: float,
        size_spread: float,
        ratio: float = 1.0,
        disjoint: bool = True,
    ) -> None:
        self.problems, self.ratio, self.disjoint = problems, ratio, disjoint
        self.typical, self.spread = math.log(typical_size), size_spread
        sizes = np.array([problem.log_size for problem in problems])
        cuts = np.array([problem.portrait.cut(problem.n_classes) for problem in problems])
        self.sizes = np.linspace(min(sizes.min(), self.typical) - 0.1, max(sizes.max(), self.typical) + 0.6, 160)
        # The height of the cut, linear in the logarithm of the size.
        bends = 1 if np.ptp(sizes) > 0.2 else 0
        self.line = np.polyfit(sizes, cuts, bends)
        # The signs of the size, quadratic in it, and how they scatter.
        signs = np.stack([problem.portrait.signs for problem in problems])
        design = np.vander(sizes, 3 if bends else 1)
        weights = np.linalg.lstsq(design, signs, rcond=None)[0]
        scatter = signs - design @ weights
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
        gap = portrait.signs - self.expected
        score = -0.5 * np.einsum("ij,jk,ik->i", gap, self.precision, gap)
        score -= 0.5 * ((self.sizes - self.typical) / self.spread) ** 2
        belief = np.exp(score - score.max())
        return np.asarray(belief / belief.sum())

    def log_size(self, portrait: Portrait) -> float:
        """Logarithm of the class size: the median of the belief."""
        step = np.searchsorted(np.cumsum(self.size_belief(portrait)), 0.5)
        return float(self.sizes[min(int(step), len(self.sizes) - 1)])

    def threshold(self, portrait: Portrait) -> float:
        """Where to cut the tree of a pile."""
        return float(np.polyval(self.line, self.log_size(portrait)))

    def count(self, portrait: Portrait) -> int:
        """The number of classes in a pile."""
        return portrait.clusters(self.threshold(portrait))

    @cached_property
    def parts(self) -> "dict[int, Calibration]":
        """For each group of known problems, what the other groups teach."""
        groups = sorted({problem.group for problem in self.problems})
        return {
            group: Calibration(
                [problem for problem in self.problems if problem.group != group],
                typical_size=math.exp(self.typical),
                size_spread=self.spread,
                ratio=self.ratio,
            )
            for group in groups
            if len(groups) > 1
        }

    @cached_property
    def errors(self) -> tuple[Floats, Floats]:
        """For each known problem, judged by the other groups: the size of its classes and by how much the count is off,
        both as natural logarithms."""
        judge = self.parts or {self.problems[0].group: self}
        sizes = [judge[p.group].log_size(p.portrait) for p in self.problems]
        gaps = [math.log(judge[p.group].count(p.portrait) / p.n_classes) for p in self.problems]
        return np.array(sizes), np.array(gaps)

    def interval(self, count: int, portrait: Portrait, coverage: float) -> tuple[int, int]:
        """A range around `count`, so wide that it holds the true number in a share `coverage` of the known problems.

        Small classes are harder to count than large ones, so problems count whose classes have a similar size.
        """
        sizes, gaps = self.errors
        weights = np.exp(-0.5 * ((sizes - self.log_size(portrait)) / SIMILAR_SIZE) ** 2) + 1e-6
        order = np.argsort(np.abs(gaps))
        share = np.cumsum(weights[order]) / weights.sum()
        error = np.abs(gaps)[order][min(int(np.searchsorted(share, coverage)), len(order) - 1)]
        reach = math.exp(error if self.disjoint else WIDER * error)
        return min(count, round(count / reach)), max(count, round(count * reach))


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
