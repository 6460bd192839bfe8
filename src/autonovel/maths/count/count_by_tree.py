"""`calibrated`, the default estimator: known classes calibrate a tree, which then counts the classes of a pile."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from autonovel.maths.count.calibrate import KnownTree, TreeCalibration
from autonovel.maths.count.class_estimate import ClassEstimate, ProbeSet, RunJobs, run_in_turn, why_no_interval
from autonovel.maths.count.number_search import second_peak
from autonovel.maths.count.portrait import Portrait, portray
from autonovel.settings.recipe import Estimate

MIN_TREE_CLASS = 8
"""Points that a class should have in a tree; fewer do not show its size."""


def count_by_calibration(
    probes: list[ProbeSet],
    pile: Tensor,
    max_new: int,
    settings: Estimate,
    seed: int,
    *,
    grouped: bool = False,
    run_jobs: RunJobs = run_in_turn,
) -> ClassEstimate:
    """Calibrate on the probe classes and count those of the pile; `grouped`: each probe set is a family."""
    # The points of a pile too large for one tree are merged, as long as a probe class still has more than a few.
    ratio = max(1.0, min(len(pile) / settings.tree_points, _class_size(probes) / MIN_TREE_CLASS))
    calibration = calibrate_tree(probes, settings=settings, seed=seed, grouped=grouped, ratio=ratio, run_jobs=run_jobs)
    found = count_by_tree(calibration, pile, max_new=max_new, settings=settings, seed=seed)
    note = why_no_interval(probes, grouped)
    return replace(found, interval=None, note=note) if note else found


def calibrate_tree(
    probes: Sequence[ProbeSet],
    *,
    settings: Estimate | None = None,
    seed: int = 0,
    grouped: bool = True,
    ratio: float = 1.0,
    run_jobs: RunJobs = run_in_turn,
) -> TreeCalibration:
    """Learn from resampled groups of probe classes how to count classes; serves any number of piles.

    With `grouped` each probe set is a group; otherwise groups of classes are drawn at random from each set. `ratio` is
    the number of points that each point of a tree stands for; see `portray`.
    """
    settings = Estimate() if settings is None else settings
    generator = torch.Generator().manual_seed(seed)
    n_classes = max(probe.n_classes for probe in probes)
    largest = max(2.0, min(_class_size(probes), ratio * settings.tree_points / n_classes))
    if settings.size_range is not None:
        low, high = settings.size_range
        shrink = min(1.0, largest / high)
        sizes, typical, spread = (low * shrink, high * shrink), shrink * (low + high) / 2, 0.0
    elif settings.class_size == "probes":
        sizes, typical, spread = (largest, largest), largest, 0.0
    else:
        sizes, typical, spread = (min(4.0 * ratio, largest), largest), largest, settings.size_spread

    def draws() -> Iterator[partial[KnownTree]]:
        for draw in range(max(settings.probe_draws, 6 * len(probes))):
            which = draw % len(probes)
            probe = probes[which]
            wanted, unevenness = _draw_sizes(sizes, settings, generator)
            n = probe.n_classes
            if not grouped:  # a random half to all of the classes; each draw counts as a group of its own
                n = int(torch.randint(max(3, n // 2), n + 1, (), generator=generator))
                which = draw
            classes = torch.randperm(probe.n_classes, generator=generator)[:n]
            points = draw_problem(probe.features, probe.labels, classes, wanted, unevenness, generator)
            yield partial(_known_problem, which, n, points, settings, seed, ratio)

    problems = run_jobs(draws())
    return TreeCalibration(problems, typical_size=typical / ratio, size_spread=spread, ratio=ratio, disjoint=grouped)


def _class_size(probes: Sequence[ProbeSet]) -> float:
    """Points in a probe class, the median."""
    counts = torch.cat([torch.bincount(probe.labels.cpu(), minlength=probe.n_classes) for probe in probes])
    return counts.double().median().item()


def _draw_sizes(sizes: tuple[float, float], settings: Estimate, generator: torch.Generator) -> tuple[float, float]:
    """Mean class size and its relative half-range for one resampled problem."""
    low, high = sizes
    if settings.size_range is not None:
        return (low + high) / 2, (high - low) / (high + low)
    a, b = torch.rand(2, generator=generator).tolist()
    if settings.class_size == "probes":
        return high, 0.0
    # Beyond the largest, cut off there, so that the full size, which is the likeliest, is well represented.
    return min(high, math.exp(math.log(low) + a * (math.log(2 * high) - math.log(low)))), 0.8 * b


def _known_problem(
    group: int, n_classes: int, points: Tensor, settings: Estimate, seed: int, ratio: float
) -> KnownTree:
    return KnownTree(group, n_classes, _portray(points, settings, seed, ratio))


def _portray(points: Tensor, settings: Estimate, seed: int, ratio: float) -> Portrait:
    return portray(points, components=settings.components, normalise=settings.normalise, ratio=ratio, seed=seed)


def count_by_tree(
    calibration: TreeCalibration, pile: Tensor, *, max_new: int = 100, settings: Estimate | None = None, seed: int = 0
) -> ClassEstimate:
    """Apply a calibration to the points of a pile (n, d)."""
    settings = Estimate() if settings is None else settings
    generator = torch.Generator().manual_seed(seed)
    ratio = calibration.ratio
    keep = min(len(pile), round(ratio * settings.tree_points))
    portraits = [_portray(_sample(pile, keep, generator), settings, seed, ratio)]
    # Classes larger than any probe class: fewer points of each make the pile comparable, their number stays.
    limit, least = calibration.typical + 0.2, round(8 * max_new * ratio)
    while calibration.log_size(portraits[0]) > limit and keep > least and calibration.spread > 0:
        keep = max(least, keep // 2)
        portraits = [_portray(_sample(pile, keep, generator), settings, seed, ratio)]
    if keep < len(pile):
        more = (_sample(pile, keep, generator) for _ in range(settings.splits - 1))
        portraits += [_portray(sample, settings, seed, ratio) for sample in more]
    n_new = int(np.median([min(max_new, calibration.count(portrait)) for portrait in portraits]))
    first = portraits[0]
    low, high = calibration.interval(n_new, first, settings.coverage)
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
