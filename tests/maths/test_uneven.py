"""Groups of different sizes by a tree, against slow loops and planted classes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths.grouping import group_pile
from autonovel.maths.known_space import unit
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.uneven import LEAST, average_tree, cut, groups_of, mixture, sample_tree, uneven_groups


def planted(sizes: list[int], noise: float = 0.3, seed: int = 0, dimensions: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = unit(torch.randn(len(sizes), dimensions, generator=generator))
    truth = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return unit(centres[truth] + noise * torch.randn(len(truth), dimensions, generator=generator)), truth


def states_of(points: Tensor) -> list[list[set[int]]]:
    """All states of average linkage, by a loop over all pairs of groups."""
    x = points.double().numpy()
    groups = [{i} for i in range(len(x))]
    states = [[set(group) for group in groups]]
    while len(groups) > 1:
        gaps = {
            (a, b): np.mean([np.square(x[i] - x[j]).sum() for i in groups[a] for j in groups[b]])
            for a in range(len(groups))
            for b in range(a + 1, len(groups))
        }
        a, b = min(gaps, key=lambda pair: gaps[pair])
        groups[a] |= groups.pop(b)
        states.append([set(group) for group in groups])
    return states


@given(st.integers(2, 14), st.integers(1, 5), st.floats(1, 4), st.integers(0, 1000))
def test_the_cut_is_the_last_state_with_enough_large_groups(n: int, k: int, least: float, seed: int) -> None:
    points = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed))
    wanted = [state for state in states_of(points) if sum(len(group) >= least for group in state) >= k]
    found = cut(average_tree(points), k, least)
    if not wanted:
        assert found is None
        return
    assert found is not None
    sizes = sorted(map(len, wanted[-1]), reverse=True)[:k]
    assert np.bincount(found[found >= 0]).tolist() == sizes
    for number in range(k):
        assert any(set(np.flatnonzero(found == number).tolist()) == group for group in wanted[-1])


def test_sizes_of_a_mixture_are_free_where_those_of_the_nearest_mean_are_not() -> None:
    points, truth = planted([400, 20], noise=0.3, seed=3)
    means = torch.stack([unit(points[truth == c].mean(0)[None])[0] for c in range(2)])
    nearest = (points @ means.T).argmax(1)
    found = mixture(points, means, torch.tensor([20 / 21, 1 / 21]))
    assert (found == truth).float().mean() > (nearest == truth).float().mean()


def test_a_dozen_images_are_a_group_beside_hundreds() -> None:
    points, truth = planted([300, 150, 70, 30, 12], noise=0.2)
    found = uneven_groups(points, 5)
    assert found is not None
    assert cluster_accuracy(truth.numpy(), found.numpy()) > 0.98


@given(st.integers(1, 6), st.integers(3, 60), st.integers(0, 1000))
def test_whatever_the_points_all_groups_are_there(k: int, n: int, seed: int) -> None:
    points = unit(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)))
    found = uneven_groups(points, k)
    if found is not None:
        assert found.unique().tolist() == list(range(k))
        assert torch.equal(found, uneven_groups(points, k))


def test_of_a_large_pile_a_sample_makes_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autonovel.maths.uneven.POINTS", 150)
    points, truth = planted([300, 150, 70, 30], noise=0.2)
    sample = sample_tree(points)
    assert len(sample.rows) == len(sample.tree.sizes) + 1 == 150
    found = groups_of(sample, points, 4)
    assert found is not None
    assert cluster_accuracy(truth.numpy(), found.numpy()) > 0.95


def test_a_group_smaller_than_strays_is_none() -> None:
    points, _ = planted([100, 100, 2], noise=0.05)
    assert LEAST * 202 / 3 > 2
    found = cut(average_tree(points), 3, LEAST * 202 / 3)
    assert found is None or np.bincount(found[found >= 0]).min() > 2


def test_the_pile_decides_between_a_tree_and_k_means() -> None:
    none = torch.zeros(0, 24), torch.zeros(0, dtype=torch.int64)
    uneven, truth = planted([400, 160, 60, 25, 12], noise=0.3, seed=1)
    found = group_pile(*none, uneven, 5)
    assert found.way != "k-means"
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.95
    assert torch.equal(found.votes.argmax(1), found.labels)
    even, _ = planted([100] * 5, noise=0.3)
    assert group_pile(*none, even, 5).way == "k-means"
