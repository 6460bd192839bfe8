"""Which numbers of classes to try, which of them wins, and which one comes second."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

Ties: TypeAlias = Literal["smallest", "largest"]
Rounding: TypeAlias = Literal["nearest", "ceil"]

COARSE_STEP = 8
"""Of the first pass over the numbers, which are all looked at only near the best of these."""

SILHOUETTE_SAMPLE = 10_000
"""Points over which a silhouette is averaged; exact where there are no more."""

PROMINENCE = 0.1
"""A peak must rise above the valley towards a higher one by this share of the curve's range; less is taken for noise."""


def passes(
    largest: int, indices: Sequence[dict[int, float]], *, smallest: int = 0, ties: Ties = "smallest"
) -> Iterator[list[int]]:
    """The numbers to look at: few of them all; of many a coarse grid, and then the neighbours of its best.

    The caller enters the scores of one pass into `indices`, one dictionary for each index, before it asks for the next.
    """
    everything = range(smallest, largest + 1)
    if len(everything) <= COARSE_STEP:
        yield list(everything)
        return
    yield sorted({*everything[::COARSE_STEP], largest})
    near: set[int] = set()
    for scores in indices:
        best = argmax(scores, ties)
        near |= set(range(best - COARSE_STEP + 1, best + COARSE_STEP))
    fine = sorted((near & set(everything)) - set(indices[0]))
    if fine:
        yield fine


def argmax(scores: Mapping[int, float], ties: Ties = "smallest") -> int:
    """The number with the highest score, of equals the smallest or the largest; NaN never wins unless there is nothing else."""
    finite = {k: v for k, v in scores.items() if not math.isnan(v)} or dict.fromkeys(scores, 0.0)
    # Scores a rounding error apart are equal.
    best = [k for k, v in finite.items() if v >= max(finite.values()) - 1e-9]
    return max(best) if ties == "largest" else min(best)


def to_whole(value: float, rounding: Rounding) -> int:
    """A mean of numbers of classes as a whole number: the nearest, or the next above ('ceil')."""
    return math.ceil(value - 1e-9) if rounding == "ceil" else math.floor(value + 0.5)


def second_peak(scores: Mapping[int, float], chosen: int) -> int | None:
    """The number at the highest peak of a curve other than the peak nearest to `chosen`; None where there is no other.

    NaN stands for numbers that were not looked at. See `PROMINENCE` for what counts as a peak.
    """
    ks = sorted(k for k, v in scores.items() if not math.isnan(v))
    values = [scores[k] for k in ks]
    if len(ks) < 3:
        return None
    least = PROMINENCE * (max(values) - min(values))
    peaks = [i for i in range(len(ks)) if _is_peak(values, i) and _prominence(values, i) >= max(least, 1e-12)]
    if len(peaks) < 2:
        return None
    first = min(peaks, key=lambda i: (abs(ks[i] - chosen), -values[i]))
    return ks[max((i for i in peaks if i != first), key=lambda i: values[i])]


def _is_peak(values: Sequence[float], i: int) -> bool:
    """Whether a value is higher than the one before it and no lower than the one after; the ends may be peaks."""
    return (i == 0 or values[i] > values[i - 1]) and (i == len(values) - 1 or values[i] >= values[i + 1])


def _prominence(values: Sequence[float], i: int) -> float:
    """How far one must descend from a peak to reach higher ground; from the highest one, to reach its lowest side."""
    falls = []
    for side in (values[i + 1 :], values[:i][::-1]):
        deepest = values[i]
        for value in side:
            if value > values[i]:
                falls.append(values[i] - deepest)
                break
            deepest = min(deepest, value)
    return min(falls) if falls else values[i] - min(values)
