"""Counting classes with a tree whose cut is learned from known classes.

A group of known classes that training has not seen is a discovery problem with a known answer. Many such problems,
resampled to classes of many sizes, teach two things: at which height a Ward tree must be cut, given the size of the
classes, and how the size of the classes shows in the points without any label. Both are then read off the unlabelled
pile. Heights are taken relative to the spread of the points, because families of classes differ more in scale than
in shape. How wrong the count of each family is, when only the others teach it, is the uncertainty of the answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autonovel.maths.count.portrait import Floats, Portrait

SIMILAR_SIZE = 0.2
"""How far, in natural logarithms, class sizes may lie apart and still be similar."""

WIDER = 1.5
"""Groups that share classes disagree less with each other than new classes do with known ones: by this factor."""


@dataclass(frozen=True)
class KnownTree:
    """A resampled group of known classes: its portrait and the answer."""

    group: int
    n_classes: int
    portrait: Portrait

    @property
    def log_size(self) -> float:
        """Logarithm of the mean number of points in a class."""
        return math.log(self.portrait.n / self.n_classes)


class TreeCalibration:
    """What the known problems teach, ready to be applied to a pile.

    `typical_size` is the class size to expect before looking, `size_spread` how many natural logarithms the size may
    be off from it; 0 takes it for granted. `ratio` is that of the portraits; sizes are counted in the points they show.
    `disjoint` says that the groups share no class.
    """

    def __init__(
        self,
        problems: Sequence[KnownTree],
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
    def parts(self) -> "dict[int, TreeCalibration]":
        """For each group of known problems, what the other groups teach."""
        groups = sorted({problem.group for problem in self.problems})
        return {
            group: TreeCalibration(
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
        """A range around `count` that reaches as far as the errors on known problems, allowing for how few they are.

        Small classes are harder to count than large ones, so problems count by how similar the size of their classes is.
        """
        sizes, gaps = self.errors
        weights = np.exp(-0.5 * ((sizes - self.log_size(portrait)) / SIMILAR_SIZE) ** 2) + 1e-6
        if self.disjoint:
            groups = np.array([problem.group for problem in self.problems])
            error = error_of_a_new_group(np.abs(gaps), weights, groups, coverage)
        else:
            order = np.argsort(np.abs(gaps))
            share = np.cumsum(weights[order]) / weights.sum()
            error = WIDER * np.abs(gaps)[order][min(int(np.searchsorted(share, coverage)), len(order) - 1)]
        reach = math.exp(error)
        return min(count, round(count / reach)), max(count, round(count * reach))

    def belief_by_number(self, portrait: Portrait, ks: Sequence[int]) -> list[float]:
        """How likely each number of classes is, relative to the likeliest: what is believed of the class size at which
        the tree would be cut into that many. Empty where the size is taken for granted."""
        if self.spread == 0 or len(self.line) < 2 or self.line[0] <= 0:
            return []
        slope, height = self.line
        sizes = (np.array([portrait.cut(k) for k in ks]) - height) / slope
        belief = np.interp(sizes, self.sizes, self.size_belief(portrait), left=0.0, right=0.0)
        return [float(x) for x in belief / belief.max()] if belief.max() > 0 else []


def error_of_a_new_group(errors: Floats, weights: Floats, groups: NDArray[np.int64], coverage: float) -> float:
    """How far off the count of a new group may be, with probability `coverage`, judging by groups counted by the others.

    Problems of one group are wrong together, so groups count and not problems: of each, the root mean square of its errors.
    A new group is one more draw among them: with G groups its error should not exceed the ceil((G + 1) coverage)-th
    smallest, or the largest where there are too few for that rank. Single problems scatter within a group, and a few groups
    may by chance all be easy; so it is at least what Student's t with G degrees of freedom makes of the groups' errors.
    """
    from scipy.stats import t

    names = np.unique(groups)
    squares = [np.average(errors[groups == g] ** 2, weights=weights[groups == g]) for g in names]
    by_group = np.sort(np.sqrt(squares))
    rank = min(len(names), math.ceil((len(names) + 1) * coverage - 1e-9))
    student = float(t.ppf((1 + coverage) / 2, len(names))) * math.sqrt(float(np.mean(squares)))
    return max(float(by_group[rank - 1]), student)
