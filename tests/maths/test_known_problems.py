"""Known classes treated as new ones: which problems are made of them, and when plain k-means wins."""

import pytest
import torch

from autonovel.maths.known_problems import _clearly_better, _orders


def test_plain_k_means_is_taken_where_it_is_clearly_better() -> None:
    assert _clearly_better([0.9, 0.92, 0.91, 0.9], [0.8, 0.83, 0.8, 0.81])
    assert not _clearly_better([0.9, 0.7, 0.91, 0.7], [0.8, 0.78, 0.8, 0.8])  # chance
    assert not _clearly_better([0.9, 0.9, 0.9, 0.9], [0.895, 0.895, 0.895, 0.895])  # less than a point


@pytest.mark.parametrize(("n_known", "n_probes", "expected"), [(3, 2, 3), (5, 3, 10), (9, 4, 10)])
def test_known_problems_differ(n_known: int, n_probes: int, expected: int) -> None:
    orders = _orders(n_known, n_probes, torch.Generator().manual_seed(0))
    assert len({frozenset(order[-n_probes:].tolist()) for order in orders}) == len(orders) == expected
