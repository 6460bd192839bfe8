"""`judges`: three independent judges count the classes of a pile, and the middle one decides.

Each is often wrong alone, and in its own way: the silhouette joins classes that lie close together, repeatability sees no
classes that a half of the pile is too small to show, the tree calibrated on known classes takes new ones to be as wide.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from autonovel.maths.count.calibrated import count_by_calibration
from autonovel.maths.count.probes import MIN_INTERVAL_CLASSES, MIN_PROBE_CLASSES, Effort, ProbeSet
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import group_means, number_of_classes, smooth, unit, whitening
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import kmeans_sweep

REPEATABLE = 0.85
"""Repeatability that tells classes from parts of classes, where there are fewer than three known ones to learn it from."""
MOST_KNOWN = 20
"""Known classes from which it is learned, at most."""
HALVES = 3
SAMPLE = 3000


def count_by_judges(
    labelled: Tensor, labels: Tensor, pile: Tensor, max_new: int, seed: int, *, effort: Effort
) -> ClassEstimate:
    """Count the classes of `pile` (m, r), given `labelled` (n, r) with `labels` (n,), numbered from 0 without gaps."""
    n_known = number_of_classes(labels)
    numbers = _numbers(min(max_new, len(pile) // 4))
    if not numbers:
        note = f"{len(pile)} images are too few to count classes in; they are taken for one."
        return ClassEstimate(1, None, {"k": [], "silhouette": [], "repeatability": []}, "judges", note=note)
    points, known = unit(pile), unit(labelled)
    if n_known:
        groups = torch.cat([labels, labels.new_full((len(pile),), -1)])
        matrix = whitening(torch.cat([labelled, pile]), groups)
        points, known = unit(pile @ matrix), unit(labelled @ matrix)
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    points = points[order[: 2 * SAMPLE].to(points.device)]
    apart = _silhouettes(points, numbers, seed)
    repeat = repeatability(points, numbers, seed=seed)
    enough = repeatable_enough(known, labels, seed=seed)
    answers = {
        "silhouette": max(apart, key=lambda k: apart[k]),
        "repeatability": max((k for k in numbers if repeat[k] >= enough), default=1),
    }
    note, interval = "", None
    if n_known >= MIN_PROBE_CLASSES:
        tree = count_by_calibration([ProbeSet(labelled, labels, n_known)], pile, max_new, seed, effort=effort)
        answers["tree"] = tree.n_new
        interval = tree.interval
    second, differ = next_highest_peak(apart), len(set(answers.values())) > 1
    n_new = statistics.median_low(answers.values())  # of two, the smaller: either errs upwards more often
    if n_known < MIN_INTERVAL_CLASSES:
        interval = None
        note = (
            f"{_few(n_known)} there is no interval. The ways of counting gave "
            f"{', '.join(f'{k} ({name})' for name, k in answers.items())}"
            + (f"; the silhouette has a second peak at {second}." if differ and second is not None else ".")
        )
    elif interval is not None:
        interval = min(interval[0], n_new), max(interval[1], n_new)
    curve = {
        "k": [float(k) for k in numbers],
        "silhouette": list(apart.values()),
        "repeatability": list(repeat.values()),
    }
    return ClassEstimate(n_new, interval, curve, "judges", list(answers.values()), note, second)


def _few(n_known: int) -> str:
    if not n_known:
        return "Without known classes"
    return f"With {n_known} known class{'es' if n_known > 1 else ''}, fewer than {MIN_INTERVAL_CLASSES},"


def _numbers(largest: int) -> list[int]:
    """2, 3, 4, ... and beyond a dozen in steps of a tenth."""
    found, k = [], 2
    while k <= largest:
        found.append(k)
        k += max(1, k // 10)
    return found


def _silhouettes(points: Tensor, numbers: Sequence[int], seed: int) -> dict[int, float]:
    """For each number of groups of the smoothed points, the silhouette among the points as they were."""
    runs = kmeans_sweep(smooth(points), numbers, restarts=5, seed=seed)
    scores = silhouette(points, torch.stack([runs[k].labels for k in numbers]), sample=SAMPLE, seed=seed)
    return dict(zip(numbers, scores.score.tolist(), strict=True))


def repeatability(points: Tensor, numbers: Sequence[int], *, seed: int = 0, halves: int = HALVES) -> dict[int, float]:
    """For each number of groups: of two images that one half of the pile puts together, how many the other half does too.

    Each half is grouped on its own; the groups of the first then answer for the images of the second. The mean over groups is
    taken, whatever their size (prediction strength, Tibshirani and Walther 2005, which takes the smallest).
    """
    generator = torch.Generator().manual_seed(seed)
    total = dict.fromkeys(numbers, 0.0)
    for half in range(halves):
        order = torch.randperm(len(points), generator=generator).to(points.device)
        first, second = (smooth(points[part]) for part in order.tensor_split(2))
        feasible = [k for k in numbers if 2 * k <= min(len(first), len(second))]
        runs = [kmeans_sweep(part, feasible, restarts=3, seed=seed + half) for part in (first, second)]
        for k in feasible:
            other = (second @ group_means(first, runs[0][k].labels, k).T).argmax(1)
            total[k] += together(runs[1][k].labels, other, k) / halves
    return total


def repeatable_enough(known: Tensor, labels: Tensor, *, seed: int = 0) -> float:
    """The repeatability at which known classes are counted rightly: half-way between theirs and that of larger numbers."""
    n = min(number_of_classes(labels), MOST_KNOWN)
    known = known[labels < n]
    numbers = [k for k in range(n, n + max(3, n // 2)) if 4 * k <= len(known)]
    if n < 3 or len(numbers) < 2:
        return REPEATABLE
    found = repeatability(known, numbers, seed=seed)
    return (found[n] + max(found[k] for k in numbers[1:])) / 2


def together(groups: Tensor, other: Tensor, k: int) -> float:
    """Mean over `groups` of the share of their pairs that are pairs in `other` too; groups of one image count as 0."""
    table = torch.bincount(groups * k + other, minlength=k * k).view(k, k).double()
    sizes = table.sum(1)
    pairs = (table * (table - 1)).sum(1) / (sizes * (sizes - 1)).clamp(min=1)
    return pairs.mean().item()


def next_highest_peak(curve: dict[int, float]) -> int | None:
    """The number at the second highest local maximum of a curve; None where there is one peak only."""
    numbers = sorted(curve)
    values = [-torch.inf, *(curve[k] for k in numbers), -torch.inf]
    peaks = [k for i, k in enumerate(numbers, 1) if values[i - 1] < values[i] >= values[i + 1]]
    peaks.sort(key=lambda k: curve[k], reverse=True)
    return peaks[1] if len(peaks) > 1 else None
