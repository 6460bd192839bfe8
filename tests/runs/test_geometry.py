"""Typicality, neighbours and maps against slow versions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.runs import geometry


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 5), st.booleans())
def test_neighbours(n: int, width: int, seed: int, alike: bool) -> None:
    chance = np.random.default_rng(seed)
    features = chance.integers(0, 3 if alike else 1000, (n, width)).astype(np.float16)
    row = int(chance.integers(n))
    distance = [float(np.square(features[row].astype(float) - f.astype(float)).sum()) for f in features]
    slow = sorted((i for i in range(n) if i != row), key=lambda i: (distance[i], i))[:5]
    found = geometry.neighbours(features, row, 5)
    assert row not in found
    assert len(set(found.tolist())) == len(slow)
    assert [distance[i] for i in found] == [distance[i] for i in slow]  # equally near ones may differ


def test_neighbours_over_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float16)
    whole = geometry.neighbours(features, 7, 12)
    monkeypatch.setattr(geometry, "CHUNK", 9)
    assert geometry.neighbours(features, 7, 12).tolist() == whole.tolist()


def test_typicality() -> None:
    chance = np.random.default_rng(0)
    features = chance.normal(size=(60, 4)).astype(np.float16)
    group = chance.integers(-2, 3, 60)
    group[5] = 9  # alone in its cluster
    found = geometry.typicality(features, group)
    assert found.dtype == np.float32
    assert found[5] == 1
    for number in set(group.tolist()):
        members = [i for i in range(60) if group[i] == number]
        centre = np.mean([features[i].astype(float) for i in members], axis=0)
        distance = [float(np.linalg.norm(features[i] - centre)) for i in members]
        assert found[members].max() == 1
        by_distance = [members[i] for i in np.argsort(distance)]
        by_typicality = [members[i] for i in np.argsort(-found[members], kind="stable")]
        assert by_distance == by_typicality
    far = np.zeros((9, 2), dtype=np.float16)
    far[3] = 100
    assert geometry.typicality(far, np.zeros(9, dtype=np.int64)).argmin() == 3
    assert (geometry.typicality(np.zeros((4, 2), dtype=np.float16), np.zeros(4, dtype=np.int64)) == 1).all()


def test_reduced_is_pca(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.decomposition import PCA

    features = np.random.default_rng(0).normal(size=(200, 8)) * np.arange(1, 9) + 5
    ours, theirs = geometry.reduced(features, 3), PCA(3).fit_transform(features)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-3)
    monkeypatch.setattr(geometry, "CHUNK", 13)
    np.testing.assert_allclose(geometry.reduced(features, 3), ours, atol=1e-3)


@pytest.mark.parametrize("n", [0, 1, 2, 4, 5, 6])
def test_maps_of_few_images(n: int) -> None:
    features = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float16)
    for points in (features, np.zeros_like(features), features[:, :1]):
        found = geometry.draw_map(points)
        assert found.shape == (n, 2)
        assert np.isfinite(found).all()
        assert (np.abs(found) <= 1).all()


def test_a_map_by_landmarks_keeps_groups_together_and_is_the_same_each_time() -> None:
    chance = np.random.default_rng(0)
    group = chance.integers(0, 4, 600)
    features = (chance.normal(size=(4, 10)) * 8)[group] + chance.normal(size=(600, 10))
    found = geometry.draw_map(features, exact=100, landmarks=90)
    assert found.shape == (600, 2)
    centres = np.stack([found[group == g].mean(0) for g in range(4)])
    assert (np.linalg.norm(found[:, None] - centres, axis=2).argmin(1) == group).mean() > 0.98
    np.testing.assert_array_equal(found, geometry.draw_map(features, exact=100, landmarks=90))


def test_of_many_features_the_directions_are_those_of_pca() -> None:
    from sklearn.decomposition import PCA

    random = np.random.default_rng(0)
    strength = np.exp(-np.arange(1200) / 10)
    features = (random.normal(size=(300, 1200)) * strength + 3).astype(np.float32)
    assert features.shape[1] > geometry.EXACT
    ours, theirs = geometry.reduced(features, 5), PCA(5).fit_transform(features)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=2e-3)
