"""Every pair rule against plain loops; ties, one image, one class, rows that do not take part, impossible k."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autonovel.base.errors import InputError
from autonovel.maths.pairs import (
    PAIR_RULES,
    PairInput,
    cluster_batch,
    cosine_pairs,
    nearest_pairs,
    rank_statistics,
    same_cluster,
    soft_rank_statistics,
    top_k_sets,
)

pytestmark = pytest.mark.usefixtures("flags_in_messages")


def slow_top_k(row: list[float], k: int) -> set[int]:
    """The places of the k largest values; of equal values the first counts."""
    return set(sorted(range(len(row)), key=lambda place: (-row[place], place))[:k])


def slow_labels(features: list[list[float]], k: int) -> list[list[float]]:
    sets = [slow_top_k(row, k) for row in features]
    return [[1.0 if a == b else 0.0 for b in sets] for a in sets]


def matrices(values: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    shape = st.tuples(st.integers(1, 8), st.integers(1, 7))
    return shape.flatmap(lambda s: hnp.arrays(np.float32, s, elements=values))


# few distinct values, so that ties are the rule
TIED = st.sampled_from([-1.0, 0.0, 0.5, 2.0])
ANY = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=150, deadline=None)
@given(features=st.one_of(matrices(TIED), matrices(ANY)), data=st.data())
def test_labels_agree_with_the_loop(features: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, features.shape[1]))
    rows = features.tolist()
    sets = top_k_sets(torch.from_numpy(features), k)
    assert [set(np.flatnonzero(row)) for row in sets.numpy()] == [slow_top_k(row, k) for row in rows]
    assert rank_statistics(torch.from_numpy(features), k).tolist() == slow_labels(rows, k)


def test_wide_features_agree_with_the_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(6, 512, generator=generator)
    features = (centres.repeat_interleave(8, 0) + 0.05 * torch.randn(48, 512, generator=generator)).relu()
    expected = slow_labels(features.tolist(), 5)
    assert rank_statistics(features, 5).tolist() == expected
    assert 48 < np.sum(expected) < 48 * 48  # neither trivial answer


def test_of_equal_values_the_first_counts() -> None:
    features = torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 1.0, 0.0], [0.0, 1.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    assert top_k_sets(features, 2).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0]]
    # the same with many columns, where a sort that is not stable does shuffle equal values
    assert top_k_sets(torch.zeros(3, 1000), 5).nonzero()[:, 1].tolist() == [0, 1, 2, 3, 4] * 3


def test_all_images_alike_and_one_image_alone() -> None:
    assert rank_statistics(torch.ones(7, 12), 5).tolist() == [[1.0] * 7] * 7
    assert rank_statistics(torch.randn(1, 12), 5).tolist() == [[1.0]]
    assert rank_statistics(torch.randn(0, 12), 5).shape == (0, 0)


def test_k_equal_to_the_dimension_puts_all_together() -> None:
    assert rank_statistics(torch.randn(5, 6), 6).tolist() == [[1.0] * 5] * 5


@pytest.mark.parametrize("k", [0, -1, 9, 10**6])
def test_impossible_k_is_refused_with_a_sentence(k: int) -> None:
    with pytest.raises(InputError, match=rf"top_k is {k}, but features have 8 components; .*\.$"):
        rank_statistics(torch.randn(4, 8), k)


def test_labels_ignore_scale_and_precision_but_not_order() -> None:
    features = torch.randn(20, 16, generator=torch.Generator().manual_seed(1))
    labels = rank_statistics(features, 3)
    assert torch.equal(rank_statistics(features * 7, 3), labels)
    assert torch.equal(rank_statistics(features.double(), 3), labels)
    assert labels.dtype == torch.float32
    assert torch.equal(labels, labels.T)
    assert not torch.equal(rank_statistics(-features, 3), labels) or labels.sum() == 20


# ---- soft ranks and cosines


@settings(max_examples=80, deadline=None)
@given(features=st.one_of(matrices(TIED), matrices(ANY)), data=st.data())
def test_soft_labels_are_the_share_of_common_components(features: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, features.shape[1]))
    sets = [slow_top_k(row, k) for row in features.tolist()]
    expected = [[len(a & b) / k for b in sets] for a in sets]
    np.testing.assert_allclose(soft_rank_statistics(torch.from_numpy(features), k).numpy(), expected, rtol=1e-6)


def slow_cosine(a: list[float], b: list[float]) -> float:
    length = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / length if length else 0.0


@settings(max_examples=60, deadline=None)
@given(features=matrices(st.floats(-9, 9, width=16)), threshold=st.sampled_from([-0.5, 0.0, 0.6, 0.85, 0.97]))
def test_cosine_labels_agree_with_the_loop(features: np.ndarray, threshold: float) -> None:
    found = cosine_pairs(torch.from_numpy(features), threshold)
    rows = features.tolist()
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            cosine = slow_cosine(a, b)
            if i == j:
                assert found[i, j] == 1  # also of an image without any feature
            elif abs(cosine - threshold) > 1e-5:
                assert bool(found[i, j]) == (cosine > threshold), (a, b)


# ---- nearest neighbours


def slow_nearest(features: list[list[float]], mask: list[bool]) -> list[list[float]]:
    """The paper's equation of first neighbours, word by word."""
    n = len(features)
    nearest: dict[int, int] = {}
    for i in range(n):
        others = [j for j in range(n) if mask[i] and mask[j] and j != i]
        if others:
            nearest[i] = max(others, key=lambda j: (slow_cosine(features[i], features[j]), -j))
    same = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            if mask[i] and mask[j]:
                together = nearest.get(i) == j or nearest.get(j) == i or (i in nearest and nearest[i] == nearest.get(j))
                same[i][j] = float(together or i == j)
    return same


SEEDS = st.integers(0, 2**31)


def draw(seed: int, n: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and a mask."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator)
    return features, torch.rand(n, generator=generator) < [0.0, 0.4, 0.8, 1.0][seed % 4]


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 12), d=st.integers(2, 6))
def test_nearest_neighbours_agree_with_the_loop(seed: int, n: int, d: int) -> None:
    features, mask = draw(seed, n, d)
    assert nearest_pairs(features, mask).tolist() == slow_nearest(features.tolist(), mask.tolist())


def test_of_equally_near_neighbours_the_first_counts() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    mask = torch.tensor([True, True, True, False, True])
    # 0 -> 2, 2 -> 0, 4 -> 0, and 1, whose like does not take part, is as far from all: -> 0
    assert nearest_pairs(features, mask).tolist() == slow_nearest(features.tolist(), mask.tolist())
    assert nearest_pairs(features, mask)[1].tolist() == [1, 1, 1, 0, 1]


def test_an_image_alone_is_paired_with_itself_only() -> None:
    mask = torch.tensor([False, True, False])
    found = nearest_pairs(torch.randn(3, 4), mask)
    assert found.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


# ---- clusters


def slow_k_means(points: list[list[float]], k: int, iterations: int) -> list[int]:
    """First centres as PAM builds its medoids, then rounds of Lloyd; an empty cluster keeps its centre."""

    def apart(a: list[float], b: list[float]) -> float:
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))

    centres: list[list[float]] = []
    for _ in range(k):
        cost = [sum(min(apart(p, c) for c in [*centres, q]) for p in points) for q in points]
        centres.append(points[cost.index(min(cost))])
    for _ in range(iterations):
        chosen = [min(range(k), key=lambda c: (apart(p, centres[c]), c)) for p in points]
        for c in range(k):
            members = [p for p, own in zip(points, chosen, strict=True) if own == c]
            if members:
                centres[c] = [sum(column) / len(members) for column in zip(*members, strict=True)]
    return [min(range(k), key=lambda c: (apart(p, centres[c]), c)) for p in points]


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 14), d=st.integers(1, 4), k=st.integers(1, 6), rounds=st.integers(0, 4))
def test_clusters_of_a_batch_agree_with_the_loop(seed: int, n: int, d: int, k: int, rounds: int) -> None:
    features, mask = draw(seed, n, d)
    features = features.double()
    found = cluster_batch(features, mask, k, rounds)
    assert (found[~mask] == -1).all()
    expected = slow_k_means(features[mask].tolist(), k, rounds) if mask.any() else []
    together = [[a == b for b in expected] for a in expected]
    assert same_cluster(found)[mask][:, mask].bool().tolist() == together


def test_clusters_that_lie_apart_are_found_and_settle() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(128) % 5
    features = 100 + 3 * torch.randn(5, 512, generator=generator)[truth] + torch.randn(128, 512, generator=generator)
    mask = torch.rand(128, generator=generator) < 0.5
    features[~mask] = 1e6  # a labelled image may lie anywhere
    found = cluster_batch(features, mask, 5)
    assert torch.equal(same_cluster(found)[mask][:, mask], same_cluster(truth)[mask][:, mask])
    assert torch.equal(found, cluster_batch(features, mask, 5, 30))


def test_fewer_images_than_clusters_and_images_all_alike() -> None:
    features, mask = torch.randn(6, 8), torch.tensor([True, False, True, False, False, True])
    found = cluster_batch(features, mask, 5)
    assert len(set(found[mask].tolist())) == 3
    alike = cluster_batch(torch.ones(6, 8), mask, 5)
    assert len(set(alike[mask].tolist())) == 1
    assert cluster_batch(features, torch.zeros(6, dtype=torch.bool), 5).tolist() == [-1] * 6


def test_images_of_one_cluster_are_pairs_and_those_of_none_are_not() -> None:
    found = same_cluster(torch.tensor([2, -1, 2, 0, -1]))
    assert found.tolist() == [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]


# ---- all rules


def batch(n: int = 10, d: int = 16) -> PairInput:
    """Images of three classes that are easy to tell apart, some of them labelled."""
    noise, mask = draw(6, n, d)
    truth = torch.arange(n) % 3
    features = torch.randn(3, d, generator=torch.Generator().manual_seed(0))[truth] + 0.02 * noise
    return PairInput(features, mask, truth, n_new=3)


@pytest.mark.parametrize("name", PAIR_RULES)
def test_every_rule_gives_a_symmetric_matrix_between_zero_and_one(name: str) -> None:
    x = batch()
    same = PAIR_RULES[name](x)
    assert same.shape == (10, 10)
    assert same.dtype == torch.float32
    assert bool(((same >= 0) & (same <= 1)).all())
    assert torch.equal(same, same.T)
    assert (same.diagonal()[x.mask] == 1).all()
    n = int(x.mask.sum())
    assert n < same[x.mask][:, x.mask].sum() < n * n  # neither trivial answer
    if name in ("cosine", "kmeans-batch", "kmeans-all"):
        assert torch.equal(same[x.mask][:, x.mask], same_cluster(x.clusters)[x.mask][:, x.mask])


@pytest.mark.parametrize("name", PAIR_RULES)
def test_every_rule_is_one_graph_without_a_look_at_values(name: str) -> None:
    rule: Callable[[PairInput], torch.Tensor] = torch.compile(
        PAIR_RULES[name], backend="eager", fullgraph=True, dynamic=False
    )
    for x in (batch(), batch(12)):
        assert torch.equal(rule(x), PAIR_RULES[name](x))
