"""The runner-up of a curve, against a search in plain loops."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.maths.count.search import second_peak


def slow_second_peak(scores: dict[int, float], chosen: int) -> int | None:
    """A peak is a number from which every way to a higher one leads down by a tenth of the range; of equals, the first."""
    ks = sorted(k for k in scores if not math.isnan(scores[k]))
    span = max(scores[k] for k in ks) - min(scores[k] for k in ks)
    peaks = []
    for k in ks:
        left, right = [j for j in ks if j < k], [j for j in ks if j > k]
        if (left and scores[left[-1]] >= scores[k]) or (right and scores[right[0]] > scores[k]):
            continue
        depths = []
        for higher in [j for j in ks if scores[j] > scores[k]]:
            between = [scores[j] for j in ks if min(higher, k) <= j <= max(higher, k)]
            depths.append(scores[k] - min(between))
        depth = min(depths) if depths else span
        if depth >= 0.1 * span and depth > 0:
            peaks.append(k)
    if len(peaks) < 2:
        return None
    peaks.remove(min(peaks, key=lambda k: (abs(k - chosen), -scores[k])))
    return max(peaks, key=lambda k: scores[k])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.15, 0.4, 0.7, 0.72, 1.0, math.nan]), min_size=4, max_size=14), st.data())
def test_the_second_peak_as_in_plain_loops(values: list[float], data: st.DataObject) -> None:
    scores = dict(enumerate(values))
    chosen = data.draw(st.integers(0, len(values)))
    if sum(not math.isnan(v) for v in values) >= 3:
        assert second_peak(scores, chosen) == slow_second_peak(scores, chosen)
