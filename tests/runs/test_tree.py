"""Ward's tree against SciPy's, and groups of known shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.metrics import adjusted_rand_score

from autonovel.runs import tree


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 1000))
def test_ward_is_scipys(n: int, width: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)
    theirs = linkage(points.astype(np.float64), "ward")
    merges = tree.ward(points, np.ones(n))
    # SciPy's heights are the root of twice the growth of the squared distances
    np.testing.assert_allclose(sorted(np.sqrt(2 * np.array([m[0] for m in merges]))), theirs[:, 2], rtol=1e-5)
    for k in {1, 2, n // 2 or 1, n}:
        assert adjusted_rand_score(fcluster(theirs, k, "maxclust"), tree.cut(n, merges, k)) == 1
        assert len(set(tree.cut(n, merges, k).tolist())) == k


def test_a_point_of_weight_three_is_three_points() -> None:
    points = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    sizes = np.array([1, 3] * 6)
    weighted = tree.ward(points, sizes.astype(float))
    repeated = tree.ward(points.repeat(sizes, 0), np.ones(sizes.sum()))
    np.testing.assert_allclose(sorted(m[0] for m in weighted), sorted(m[0] for m in repeated)[-11:], rtol=1e-6)


@pytest.mark.parametrize("n", [1, 7])
def test_points_that_are_all_alike(n: int) -> None:
    merges = tree.ward(np.zeros((n, 2), dtype=np.float32), np.ones(n))
    assert len(merges) == n - 1
    assert len(set(tree.cut(n, merges, min(n, 3)).tolist())) == min(n, 3)


@pytest.mark.parametrize("exact", [1000, 200])
def test_groups_that_lie_apart_are_found(exact: int) -> None:
    chance = np.random.default_rng(0)
    truth = chance.choice(5, 700, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    features = (chance.normal(size=(5, 20)) * 6)[truth] + chance.normal(size=(700, 20))
    found = tree.divide_by_tree(features.astype(np.float16), 5, exact=exact)
    assert adjusted_rand_score(truth, found) == 1
    assert (np.diff(np.bincount(found)) <= 0).all()  # the largest first
    assert adjusted_rand_score(truth, tree.divide(features, 5)) == 1


def test_fewer_different_images_than_groups() -> None:
    assert set(tree.divide(np.array([[0.0, 0], [0, 0], [1, 1]]), 3).tolist()) == {0, 1}


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=30))
def test_largest_first(groups: list[int]) -> None:
    found = tree.largest_first(np.array(groups))
    assert [groups[i] == groups[0] for i in range(len(groups))] == (found == found[0]).tolist()
    counts = np.bincount(found)
    assert (np.diff(counts) <= 0).all()
    assert len(counts) == len(set(groups))
