"""`judges`: three independent judges count the classes of a pile, and the middle one decides.

Each is often wrong alone, and in its own way: the silhouette joins classes that lie close together, the graph of neighbours sees
classes that are bridged as one, the tree calibrated on known classes takes new ones to be as wide. Where fewer than four classes
are known there is no tree, and the smaller of two answers counts. Where groups of k-means show that classes differ in size, the
silhouette of branches is a fourth judge, and the larger of two answers counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from autonovel.machine.cpu import side_by_side
from autonovel.maths.count.calibrated import count_by_calibration
from autonovel.maths.count.gap import gaps
from autonovel.maths.count.probes import MIN_INTERVAL_CLASSES, MIN_PROBE_CLASSES, Effort, ProbeSet, run_in_turn
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import number_of_classes, smooth, some_of_each, unit, whitening
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep
from autonovel.maths.uneven import are_uneven, groups_of, sample_tree

SAMPLE = 3000
"""Points of a large pile in the graph, and over which a silhouette is averaged; twice as many are grouped."""
TREES, TREE_SAMPLE = 24, 1500
"""Known problems on which the tree is calibrated; points of a larger pile that it is built over, the known classes thinned alike.
A tree over twice as many takes four times as long and was not right more often."""
LEAST = 8
"""Points of a known class that are kept all the same."""
LESS, MORE, MORE_UNEVEN = 1.2, 1.35, 1.7
"""By how much the true number may lie below the smallest answer and above the largest, or above it where classes differ in size:
every judge counts too few then. Of photographs of known classes taken for new ones, the range so made held the number in over
nine of ten problems, and in four of five where the largest class was fifteen times the smallest."""


def count_by_judges(
    labelled: Tensor, labels: Tensor, pile: Tensor, max_new: int, seed: int, *, effort: Effort
) -> ClassEstimate:
    """Count the classes of `pile` (m, r), given `labelled` (n, r) with `labels` (n,), numbered from 0 without gaps."""
    n_known = number_of_classes(labels)
    numbers = _numbers(min(max_new, len(pile) // 4))
    if not numbers:
        n_new = 1 if len(pile) < 2 else 2
        note = f"{len(pile)} images are too few to count classes in; they are taken for {n_new}."
        interval = (1, len(pile)) if len(pile) else None
        return ClassEstimate(n_new, interval, {"k": [], "silhouette": [], "gap": []}, "judges", note=note)
    points = unit(pile)
    if n_known:
        groups = torch.cat([labels, labels.new_full((len(pile),), -1)])
        points = unit(pile @ whitening(torch.cat([labelled, pile]), groups))
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).to(points.device)
    points = points[order[: 2 * SAMPLE]]
    runs = dict(Sweep(smooth(points), restarts=5, seed=seed).chain(numbers))
    groups_of_k = {k: runs[k].labels for k in numbers}
    apart = _silhouettes(points, groups_of_k, seed)
    fall = gaps(points[:SAMPLE], numbers[-1])
    answers = {"silhouette": _highest(apart)}
    if fall:
        answers["graph"] = _highest(fall)
    uneven = are_uneven(groups_of_k[answers["silhouette"]], answers["silhouette"])
    if uneven:
        sample = sample_tree(points, seed=seed)
        branches = {k: parted for k in numbers if (parted := groups_of(sample, points, k)) is not None}
        answers["branches"] = _highest(_silhouettes(points, branches, seed)) if branches else answers["silhouette"]
    if n_known >= MIN_PROBE_CLASSES:
        share = min(1.0, TREE_SAMPLE / len(pile))
        wanted = (share * torch.bincount(labels).double()).round().long().clamp(min=LEAST)
        few = some_of_each(labels, wanted, torch.Generator().manual_seed(seed))
        known = [ProbeSet(labelled[few], labels[few], n_known)]
        effort = replace(effort, draws=TREES)
        run_jobs = side_by_side if pile.device.type == "cpu" else run_in_turn
        some = pile[order[: round(share * len(pile))].sort().values]
        answers["tree"] = count_by_calibration(known, some, max_new, seed, effort=effort, run_jobs=run_jobs).n_new
    # of two in the middle the smaller, for either errs upwards more often; where classes differ in size, all join small ones
    n_new = max(2, (statistics.median_high if uneven else statistics.median_low)(answers.values()))
    said = ", ".join(f"{k} ({name})" for name, k in answers.items())
    curve = {
        "k": [float(k) for k in numbers],
        "silhouette": list(apart.values()),
        "gap": [fall.get(k, math.nan) for k in numbers],
    }
    interval = _interval(list(answers.values()), max(n_new, min(max_new, len(pile) // 2)), uneven=uneven)
    note = f"The ways of counting gave {said}"
    note += "." if n_known >= MIN_INTERVAL_CLASSES else f"; {_few(n_known)} cannot show how often they are wrong."
    return ClassEstimate(n_new, interval, curve, "judges", list(answers.values()), note, next_highest_peak(apart))


def _few(n_known: int) -> str:
    return f"{n_known} known class{'es' if n_known > 1 else ''}" if n_known else "images without any label"


def _interval(answers: Sequence[int], largest: int, *, uneven: bool) -> tuple[int, int]:
    """A range that holds the true number in three of four problems with known classes, and more: see LESS and MORE."""
    more = MORE_UNEVEN if uneven else MORE
    return max(1, math.floor(min(answers) / LESS)), min(largest, math.ceil(max(answers) * more))


def _numbers(largest: int) -> list[int]:
    """2, 3, 4, ... and beyond a dozen in steps of a tenth."""
    numbers, k = [], 2
    while k <= largest:
        numbers.append(k)
        k += max(1, k // 10)
    return numbers


def _silhouettes(points: Tensor, groups: Mapping[int, Tensor], seed: int) -> dict[int, float]:
    """For each number of groups, (n,) each, their silhouette among the points."""
    scores = silhouette(points, torch.stack(list(groups.values())), sample=SAMPLE, seed=seed)
    return dict(zip(groups, scores.score.tolist(), strict=True))


def _highest(curve: Mapping[int, float]) -> int:
    return max(curve, key=lambda k: curve[k])


def next_highest_peak(curve: dict[int, float]) -> int | None:
    """The number at the second highest local maximum of a curve; None where there is one peak only."""
    numbers = sorted(curve)
    values = [-torch.inf, *(curve[k] for k in numbers), -torch.inf]
    peaks = [k for i, k in enumerate(numbers, 1) if values[i - 1] < values[i] >= values[i + 1]]
    peaks.sort(key=lambda k: curve[k], reverse=True)
    return peaks[1] if len(peaks) > 1 else None
