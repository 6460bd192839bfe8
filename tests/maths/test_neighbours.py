"""The loss of clustering by neighbours, told slowly."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths import known_space
from autonovel.maths.known_space import nearest, unit
from autonovel.maths.neighbours import neighbour_loss


def log_p(seed: int, heads: int, n: int, clusters: int, sharpness: float) -> Tensor:
    scores = torch.randn(heads, n, clusters, generator=torch.Generator().manual_seed(seed)) * sharpness
    return scores.log_softmax(2)


def slow_neighbour_loss(first: Tensor, second: Tensor, mask: Tensor) -> list[float]:
    found = []
    for p, q in zip(first.double().exp(), second.double().exp(), strict=True):
        rows = [-math.log(sum(float(a * b) for a, b in zip(p[i], q[i], strict=True))) for i in range(len(p)) if mask[i]]
        found.append(sum(rows) / len(rows) if rows else 0.0)
    return found


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 7), st.integers(2, 5), st.sampled_from([0.1, 2.0, 9.0])
)
def test_losses_are_those_of_loops(seed: int, heads: int, n: int, clusters: int, sharpness: float) -> None:
    plain, varied = log_p(seed, heads, n, clusters, sharpness), log_p(seed + 1, heads, n, clusters, sharpness)
    mask = torch.rand(n, generator=torch.Generator().manual_seed(seed)) < 0.7
    together = torch.tensor(slow_neighbour_loss(plain, varied, mask))
    torch.testing.assert_close(neighbour_loss(plain, varied, mask), together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("clusters", [2, 10])
def test_certain_answers_cost_nothing_where_they_agree_and_stay_finite_where_they_do_not(clusters: int) -> None:
    certain = (200 * torch.eye(clusters)).log_softmax(1)[None]
    everything, nothing = torch.ones(clusters, dtype=torch.bool), torch.zeros(clusters, dtype=torch.bool)
    assert float(neighbour_loss(certain, certain, everything)) == pytest.approx(0, abs=1e-6)
    against = certain.roll(1, 1).requires_grad_()
    loss = neighbour_loss(certain, against, everything)
    assert float(loss.detach()) == pytest.approx(200 - math.log(2), abs=0.01)
    loss.sum().backward()
    assert against.grad is not None
    assert against.grad.isfinite().all()
    assert float(neighbour_loss(certain, certain.roll(1, 1), nothing)) == 0


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_neighbours_found_in_blocks_are_those_of_a_sorted_row(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points = unit(torch.randn(13, 4, generator=torch.Generator().manual_seed(0)))
    monkeypatch.setattr(known_space, "_BLOCK", 13 * rows)
    found = nearest(points, 5).tolist()
    for i in range(13):
        others = sorted((j for j in range(13) if j != i), key=lambda j: -float(points[i] @ points[j]))
        assert found[i] == others[:5]
