"""Pair labels against a loop over sorted components; ties, one image, one class, impossible k."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autonovel.errors import InputError
from autonovel.maths.pairs import PAIR_RULES, rank_statistics, top_k_sets


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


def test_every_rule_gives_values_between_zero_and_one() -> None:
    features = torch.randn(10, 16, generator=torch.Generator().manual_seed(2))
    for name, rule in PAIR_RULES.items():
        same = rule(features, 5)
        assert same.shape == (10, 10), name
        assert bool(((same >= 0) & (same <= 1)).all()), name
