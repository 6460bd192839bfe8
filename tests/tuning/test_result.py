"""The order of candidates, who goes on, and what is said about it."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autonovel.settings.recipe import Recipe
from autonovel.tuning.result import Candidate, Tuned, better_half, how_far_to_trust, rank


def candidate(k: int, *accuracies: float, left: str = "", own: bool = False) -> Candidate:
    return Candidate({"joint.top_k": k}, accuracies, 1.25, left, own)


def test_those_tried_to_the_end_come_first() -> None:
    early = candidate(1, 0.99, left="left out after 1 of 2")
    good, poor, failed = candidate(3, 0.8, 0.9), candidate(5, 0.7, 0.7), candidate(9, left="it broke")
    assert rank([failed, early, poor, good]) == [good, poor, early, failed]


@given(st.dictionaries(st.integers(0, 50), st.floats(0, 1), min_size=1, max_size=20))
def test_the_better_half_goes_on(means: dict[int, float]) -> None:
    kept = better_half(means)
    assert len(kept) >= min(len(means), max(2, -(-len(means) // 2)))
    dropped = set(means) - set(kept)
    assert all(means[a] >= means[b] for a in kept for b in dropped)
    assert all(means[b] < max(means.values()) - 0.01 for b in dropped)


def test_half_goes_on_where_the_others_are_clearly_behind() -> None:
    assert better_half({0: 0.5, 1: 0.9, 2: 0.4, 3: 0.7, 4: 0.6}) == [1, 3, 4]
    assert better_half({0: 0.5, 1: 0.9, 2: 0.4}) == [0, 1]
    assert better_half({0: 0.9, 1: 0.9, 2: 0.899, 3: 0.9}) == [0, 1, 2, 3]
    assert better_half({}) == []


def test_the_table_shows_means_spreads_and_why_one_was_left() -> None:
    shown = [
        candidate(3, 0.8, 0.9, own=True),
        candidate(15, 0.5, left="left out after 1 of 2"),
        candidate(1, left="broke"),
    ]
    tuned = Tuned(Path("x"), Recipe(), tuple(shown), "Trust it.")
    assert tuned.best == {"joint.top_k": 3}
    assert str(tuned).splitlines() == [
        "joint.top_k  ACC         trials  s/trial",
        "3            85.0 ± 7.1  2       1.2      the recipe's own",
        "15           50.0        1       1.2      left out after 1 of 2",
        "1            –           0       –        broke",
        "Trust it.",
    ]
    assert tuned.to_dict()["candidates"][1]["mean"] == 0.5


def test_a_lead_within_the_spread_is_called_equal() -> None:
    close = [candidate(3, 0.80, 0.90, 0.70), candidate(5, 0.70, 0.70, 0.90)]
    said = how_far_to_trust(close, 20, 5)
    assert said == (
        "joint.top_k=3 is ahead of joint.top_k=5 by 3.3 points, less than the 20.8 by which that lead varies between the 3 "
        "trials: take them for equal."
    )
    clear = [candidate(3, 0.80, 0.90, 0.70), candidate(5, 0.69, 0.80, 0.60)]
    assert how_far_to_trust(clear, 20, 5).endswith("by 10.3 points, and that lead varies by 0.6 between the 3 trials.")


def test_few_classes_and_few_trials_are_said() -> None:
    assert "Only 5 classes are known and 2 of them are hidden" in how_far_to_trust(
        [candidate(3, 0.8), candidate(5, 0.7)], 5, 2
    )
    assert "in a single trial" in how_far_to_trust([candidate(3, 0.8), candidate(5, 0.7)], 20, 2)
    alone = [candidate(3, 0.8), candidate(5, 0.7, left="left out after 1 of 4")]
    assert how_far_to_trust(alone, 20, 2).startswith("Only joint.top_k=3 was tried to the end")
    same = [candidate(3, 0.8, 0.7), candidate(5, 0.8, 0.7)]
    assert "does not depend on these fields" in how_far_to_trust(same, 20, 2)
