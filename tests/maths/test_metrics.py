"""Scores against brute force over all matchings, loops and scikit-learn."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from autonovel.base.errors import InputError
from autonovel.maths.metrics import (
    cluster_accuracy,
    clustering_scores,
    contingency,
    joint_scores,
    match,
    matched_confusion,
    right_answers,
)


def best_share(truth: list[int], predicted: list[int]) -> float:
    """The largest share of agreement over all one-to-one renamings of the predicted classes."""
    names = sorted(set(truth) | set(predicted))
    best = 0
    for order in permutations(names):
        rename = dict(zip(names, order, strict=True))
        best = max(best, sum(rename[p] == t for t, p in zip(truth, predicted, strict=True)))
    return best / len(truth)


def label_pairs(classes: int, most: int = 30) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), min_size=1, max_size=most)


def split(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, dtype=np.int64)
    return array[:, 0], array[:, 1]


@settings(max_examples=60, deadline=None)
@given(pairs=label_pairs(5))
def test_accuracy_agrees_with_brute_force(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = split(pairs)
    expected = best_share(truth.tolist(), predicted.tolist())
    assert cluster_accuracy(truth, predicted) == pytest.approx(expected)
    # names of classes do not matter, nor does their kind
    assert cluster_accuracy([f"class {t}" for t in truth], predicted * 100 - 7) == pytest.approx(expected)
    assert cluster_accuracy(predicted, truth) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(pairs=label_pairs(6))
def test_scores_agree_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = split(pairs)
    scores = clustering_scores(truth, predicted)
    assert scores.keys() == {"acc", "nmi", "ari"}
    assert scores["acc"] == cluster_accuracy(truth, predicted)
    assert scores["nmi"] == pytest.approx(normalized_mutual_info_score(truth, predicted))
    assert scores["ari"] == pytest.approx(adjusted_rand_score(truth, predicted))


def test_more_clusters_than_classes_and_fewer() -> None:
    assert cluster_accuracy([0, 0, 0, 0], [0, 1, 2, 3]) == 0.25
    assert cluster_accuracy([0, 1, 2, 3], [5, 5, 5, 5]) == 0.25
    assert cluster_accuracy([3], [9]) == 1.0


@pytest.mark.parametrize(("truth", "predicted"), [([], []), ([0, 1], [0]), ([[0, 1]], [[0, 1]])])
def test_labels_that_do_not_belong_together_are_refused(truth: list, predicted: list) -> None:
    with pytest.raises(InputError, match="two label vectors of one length"):
        cluster_accuracy(truth, predicted)
    with pytest.raises(InputError, match="two label vectors of one length"):
        clustering_scores(truth, predicted)


@settings(max_examples=40, deadline=None)
@given(pairs=label_pairs(5))
def test_matching_is_one_to_one_and_the_best(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = split(pairs)
    mapping = match(truth, predicted)
    assert set(mapping) >= set(predicted.tolist())
    assert len(set(mapping.values())) == len(mapping)
    agreed = np.mean([mapping[p] == t for t, p in pairs])
    assert agreed == pytest.approx(best_share(truth.tolist(), predicted.tolist()))


@settings(max_examples=40, deadline=None)
@given(pairs=label_pairs(5))
def test_confusion_after_matching(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = split(pairs)
    table, mapping = matched_confusion(truth, predicted)
    size = max(truth.max(), predicted.max()) + 1
    slow = np.zeros((size, size), dtype=int)
    for t, p in pairs:
        slow[t, mapping[p]] += 1
    np.testing.assert_array_equal(table, slow)
    assert table.trace() / len(pairs) == pytest.approx(cluster_accuracy(truth, predicted))
    np.testing.assert_array_equal(contingency(truth, predicted).sum(1), table.sum(1))


def slow_joint_scores(truth: list[int], predicted: list[int], n_known: int, n_all: int) -> dict[str, dict[str, float]]:
    pairs = list(zip(truth, predicted, strict=True))
    parts = {"old": lambda t: t < n_known, "new": lambda t: t >= n_known, "all": lambda t: True}

    def share(rename: dict[int, int], part: str) -> float:
        hits = [rename[p] == t for t, p in pairs if parts[part](t)]
        return sum(hits) / len(hits) if hits else math.nan

    separate = {}
    for part, inside in parts.items():
        chosen = [(t, p) for t, p in pairs if inside(t)]
        separate[part] = best_share([t for t, _ in chosen], [p for _, p in chosen]) if chosen else math.nan
    # among all matchings with the same number of hits, any may be taken; the shares of parts are compared as sets
    names = range(n_all)
    singles = [dict(zip(names, order, strict=True)) for order in permutations(names)]
    most = max(sum(rename[p] == t for t, p in pairs) for rename in singles)
    single = [
        {part: share(rename, part) for part in parts}
        for rename in singles
        if sum(rename[p] == t for t, p in pairs) == most
    ]
    new = range(n_known, n_all)
    fixed = []
    for order in permutations(new):
        rename = {k: k for k in range(n_known)} | dict(zip(new, order, strict=True))
        fixed.append({part: share(rename, part) for part in parts})
    best = max((f["new"] for f in fixed), key=lambda value: -1 if math.isnan(value) else value)
    fixed = [f for f in fixed if f["new"] == best or math.isnan(best)]
    return {"separate": separate, "single": single, "fixed": fixed}


@settings(max_examples=60, deadline=None)
@given(pairs=label_pairs(5, most=20), n_known=st.integers(1, 4))
def test_joint_scores_agree_with_loops_under_every_rule(pairs: list[tuple[int, int]], n_known: int) -> None:
    truth, predicted = split(pairs)
    scores = joint_scores(truth, predicted, n_known)
    expected = slow_joint_scores(truth.tolist(), predicted.tolist(), n_known, 5)
    assert scores.keys() == expected.keys()
    assert scores["separate"] == pytest.approx(expected["separate"], nan_ok=True)
    for rule in ("single", "fixed"):
        assert any(scores[rule] == pytest.approx(choice, nan_ok=True) for choice in expected[rule]), rule


def test_the_three_rules_differ_as_they_should() -> None:
    # known classes 0, 1 come out exchanged; new classes 2, 3 come out as 3, 2 but for one that is called 0
    truth = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    predicted = np.array([1, 1, 0, 0, 3, 3, 2, 0])
    scores = joint_scores(truth, predicted, 2)
    assert scores["separate"] == {"old": 1.0, "new": 0.75, "all": 0.875}
    assert scores["single"] == {"old": 1.0, "new": 0.75, "all": 0.875}
    assert scores["fixed"] == {"old": 0.0, "new": 0.75, "all": 0.375}


def test_separate_matching_hides_what_one_matching_shows() -> None:
    # old and new images all end in cluster 0: each part alone is perfect
    scores = joint_scores(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0]), 1)
    assert scores["separate"] == {"old": 1.0, "new": 1.0, "all": 0.5}
    assert sorted(scores["single"].values()) == [0.0, 0.5, 1.0]
    assert scores["fixed"] == {"old": 1.0, "new": 0.0, "all": 0.5}


def test_parts_without_images_have_no_score() -> None:
    scores = joint_scores(np.array([0, 1]), np.array([0, 1]), 2)
    for rule in scores.values():
        assert rule["old"] == rule["all"] == 1.0
        assert math.isnan(rule["new"])


@settings(max_examples=60, deadline=None)
@given(pairs=label_pairs(5, most=12))
def test_right_answers_are_those_of_a_loop(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = split(pairs)
    found = right_answers(truth, predicted, 2)
    for (t, p), right in zip(pairs, found.tolist(), strict=True):
        if p < 2:
            assert right == (t == p)
    called_new = [(t, p) for t, p in pairs if p >= 2]
    hits = sum(right for (_, p), right in zip(pairs, found.tolist(), strict=True) if p >= 2)
    if called_new:
        assert hits == round(best_share([t for t, _ in called_new], [p for _, p in called_new]) * len(called_new))
    assert found.dtype == bool
