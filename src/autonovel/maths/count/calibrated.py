"""`calibrated`, the default estimator: a tree over the pile, cut where a cut is right for known classes.

A group of known classes that training has not seen is a discovery problem with a known answer. Many such problems,
resampled to classes of many sizes, teach two things: at which height a Ward tree must be cut, given the size of the
classes, and how the size of the classes shows in the points without any label. Both are then read off the unlabelled
pile. Heights are taken relative to the spread of the points, because families of classes differ more in scale than
in shape. How wrong the count of each family is, when only the others teach it, is the uncertainty of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from autonovel.maths.count.portrait import Floats, Portrait, portray
from autonovel.maths.count.probes import Effort, ProbeSet, RunJobs, run_in_turn, why_no_interval
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.count.search import second_peak

MIN_TREE_CLASS = 8
"""Points that a class should have in a tree; fewer do not show its size."""

SIZE_SPREAD = 0.5
"""How far, in natural logarithms, a guessed class size may well lie from that of the probe classes."""

SIMILAR_SIZE = 0.2
"""How far, in natural logarithms, class sizes may lie apart and still be similar."""

WIDER = 1.5
"""Groups that share classes disagree less with each other than new classes do with known ones: by this factor."""


def count_by_calibration(
    probes: Sequence[ProbeSet],
    pile: Tensor,
    max_new: int,
    seed: int,
    *,
    coverage: float = 0.8,
    size_range: tuple[int, int] | None = None,
    grouped: bool = False,
    effort: Effort,
    run_jobs: RunJobs = run_in_turn,
) -> ClassEstimate:
    """Calibrate on the probe classes and count those of the pile; `grouped`: each probe set is a family.

    The interval holds the true number with probability `coverage`. `size_range` is the smallest and the largest size of a class
    in the pile, where they are known; otherwise the size is read off the pile.
    """
    # The points of a pile too large for one tree are merged, as long as a probe class still has more than a few.
    ratio = max(1.0, min(len(pile) / effort.tree_points, _class_size(probes) / MIN_TREE_CLASS))
    calibration = calibrate_tree(
        probes, size_range, seed=seed, grouped=grouped, ratio=ratio, effort=effort, run_jobs=run_jobs
    )
    estimate = count_by_tree(calibration, pile, max_new=max_new, coverage=coverage, effort=effort, seed=seed)
    note = why_no_interval(probes, grouped)
    return replace(estimate, interval=None, note=note) if note else estimate


def calibrate_tree(
    probes: Sequence[ProbeSet],
    size_range: tuple[int, int] | None = None,
    *,
    effort: Effort,
    seed: int = 0,
    grouped: bool = True,
    ratio: float = 1.0,
    run_jobs: RunJobs = run_in_turn,
) -> TreeCalibration:
    """Learn from resampled groups of probe classes how to count classes; serves any number of piles.

    With `grouped` each probe set is a group; otherwise groups of classes are drawn at random from each set. `ratio` is
    the number of points that each point of a tree stands for; see `portray`.
    """
    generator = torch.Generator().manual_seed(seed)
    n_classes = max(probe.n_classes for probe in probes)
    largest = max(2.0, min(_class_size(probes), ratio * effort.tree_points / n_classes))
    if size_range is not None:
        low, high = size_range
        shrink = min(1.0, largest / high)
        sizes, typical, spread = (low * shrink, high * shrink), shrink * (low + high) / 2, 0.0
    else:
        sizes, typical, spread = (min(4.0 * ratio, largest), largest), largest, SIZE_SPREAD

    def draws() -> Iterator[partial[KnownTree]]:
        for draw in range(max(effort.draws, 6 * len(probes))):
            which = draw % len(probes)
            probe = probes[which]
            wanted, unevenness = _draw_sizes(sizes, size_range is not None, generator)
            n = probe.n_classes
            if not grouped:  # a random half to all of the classes; each draw counts as a group of its own
                n = int(torch.randint(max(3, n // 2), n + 1, (), generator=generator))
                which = draw
            classes = torch.randperm(probe.n_classes, generator=generator)[:n]
            points = draw_problem(probe.features, probe.labels, classes, wanted, unevenness, generator)
            yield partial(_known_tree, which, n, points, ratio, seed)

    problems = run_jobs(draws())
    return TreeCalibration(problems, typical_size=typical / ratio, size_spread=spread, ratio=ratio, disjoint=grouped)


def _known_tree(group: int, n_classes: int, points: Tensor, ratio: float, seed: int) -> KnownTree:
    return KnownTree(group, n_classes, portray(points, ratio=ratio, seed=seed))


def _class_size(probes: Sequence[ProbeSet]) -> float:
    """Points in a probe class, the median."""
    counts = torch.cat([torch.bincount(probe.labels.cpu(), minlength=probe.n_classes) for probe in probes])
    return counts.double().median().item()


def _draw_sizes(sizes: tuple[float, float], given: bool, generator: torch.Generator) -> tuple[float, float]:
    """Mean class size and its relative half-range for one resampled problem; `given`: the range of the sizes is known."""
    low, high = sizes
    if given:
        return (low + high) / 2, (high - low) / (high + low)
    a, b = torch.rand(2, generator=generator).tolist()
    # Beyond the largest, cut off there, so that the full size, which is the likeliest, is well represented.
    return min(high, math.exp(math.log(low) + a * (math.log(2 * high) - math.log(low)))), 0.8 * b


def count_by_tree(
    calibration: TreeCalibration,
    pile: Tensor,
    *,
    effort: Effort,
    max_new: int = 100,
    coverage: float = 0.8,
    seed: int = 0,
) -> ClassEstimate:
    """Apply a calibration to the points of a pile (n, d)."""
    generator = torch.Generator().manual_seed(seed)
    ratio = calibration.ratio
    keep = min(len(pile), round(ratio * effort.tree_points))
    portraits = [portray(_sample(pile, keep, generator), ratio=ratio, seed=seed)]
    # Classes larger than any probe class: fewer points of each make the pile comparable, their number stays.
    limit, least = calibration.typical + 0.2, round(8 * max_new * ratio)
    while calibration.log_size(portraits[0]) > limit and keep > least and calibration.spread > 0:
        keep = max(least, keep // 2)
        portraits = [portray(_sample(pile, keep, generator), ratio=ratio, seed=seed)]
    if keep < len(pile):
        more = (_sample(pile, keep, generator) for _ in range(effort.splits - 1))
        portraits += [portray(sample, ratio=ratio, seed=seed) for sample in more]
    n_new = int(np.median([min(max_new, calibration.count(portrait)) for portrait in portraits]))
    first = portraits[0]
    low, high = calibration.interval(n_new, first, coverage)
    answers = [min(max_new, part.count(first)) for part in calibration.parts.values()]
    ks = range(1, min(max_new, first.n - 1) + 1)
    curve = {
        "k": [float(k) for k in ks],
        "height": [math.exp(first.cut(k)) for k in ks],
        "threshold": [math.exp(calibration.threshold(first))] * len(ks),
    }
    belief = calibration.belief_by_number(first, ks)
    second = second_peak(dict(zip(ks, belief, strict=True)), n_new) if belief else None
    curve |= {"belief": belief} if belief else {}
    return ClassEstimate(n_new, (max(1, low), min(max_new, high)), curve, "calibrated", answers, second=second)


def _sample(pile: Tensor, keep: int, generator: torch.Generator) -> Tensor:
    if keep >= len(pile):
        return pile
    return pile[torch.randperm(len(pile), generator=generator)[:keep].to(pile.device)]


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
    def parts(self) -> dict[int, TreeCalibration]:
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
