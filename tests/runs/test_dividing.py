"""Groups of known shape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from autonovel.runs.dividing import divide, largest_first


def test_groups_that_lie_apart_are_found_the_largest_first() -> None:
    chance = np.random.default_rng(0)
    truth = chance.choice(5, 700, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    features = (chance.normal(size=(5, 20)) * 6)[truth] + chance.normal(size=(700, 20))
    found = divide(features, 5)
    assert adjusted_rand_score(truth, found) == 1
    assert (np.diff(np.bincount(found)) <= 0).all()


def test_fewer_different_images_than_groups() -> None:
    assert set(divide(np.array([[0.0, 0], [0, 0], [1, 1]]), 3).tolist()) == {0, 1}


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=30))
def test_largest_first(groups: list[int]) -> None:
    found = largest_first(np.array(groups))
    assert [groups[i] == groups[0] for i in range(len(groups))] == (found == found[0]).tolist()
    counts = np.bincount(found)
    assert (np.diff(counts) <= 0).all()
    assert len(counts) == len(set(groups))
