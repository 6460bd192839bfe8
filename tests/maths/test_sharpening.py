"""DTC's assignments, targets and averages, and KCL's loss, against plain loops; empty clusters; which side learns."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autonovel.maths.losses import kcl_loss, pair_loss
from autonovel.maths.sharpening import (
    divergence_from,
    moved_average,
    principal_axes,
    sharpened,
    student_scores,
    unbiased,
)

SEEDS = st.integers(0, 2**31)
SIZES = st.tuples(st.integers(1, 9), st.integers(2, 6))


def drawn(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_kcl(p, same, mask, margin):
    terms = []
    for i in range(len(p)):
        for j in range(len(p)):
            if mask[i] and mask[j]:
                kl = sum(
                    (a + 1e-7) * (math.log(a + 1e-7) - math.log(b + 1e-7)) for a, b in zip(p[i], p[j], strict=True)
                )
                terms.append(same[i][j] * kl + (1 - same[i][j]) * max(0.0, margin - kl))
    return sum(terms) / len(terms) if terms else 0.0


@given(SEEDS, SIZES)
def test_kcl_is_its_formula_pair_by_pair(seed, sizes):
    n, c = sizes
    p = (8 * drawn(seed, n, c)).softmax(1)
    same, mask = (drawn(seed + 1, n, n) > 0.5).double(), drawn(seed + 2, n) > 0.3
    expected = slow_kcl(p.tolist(), same.tolist(), mask.tolist(), 2.0)
    assert kcl_loss(p, same, mask).item() == pytest.approx(expected, abs=1e-9)


def test_the_target_of_a_pair_in_kcl_gets_no_gradient():
    """With one ordered pair counted, only the second image learns: the derivative is that of its own side alone."""
    p = torch.tensor([[0.7, 0.3], [0.4, 0.6]], dtype=torch.float64, requires_grad=True)
    same = torch.ones(2, 2, dtype=torch.float64)
    kcl_loss(p, same, torch.tensor([True, True])).backward()
    q = p.detach() + 1e-7
    by_hand = (
        torch.stack([-q[1] / q[0] - 1, -q[0] / q[1] - 1]) / 4
    )  # each image is the second of the pair with itself too
    torch.testing.assert_close(p.grad, by_hand)


def test_uniform_outputs_give_kcl_nothing_to_learn_from_unlike_pairs():
    scores = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    kcl_loss(scores.softmax(1), torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.bool)).backward()
    assert scores.grad.abs().max() < 1e-12


def test_kcl_and_mcl_are_different_losses():
    p, same = drawn(3, 5, 4).softmax(1), torch.eye(5, dtype=torch.float64)
    mask = torch.ones(5, dtype=torch.bool)
    assert kcl_loss(p, same, mask).item() != pytest.approx(pair_loss(p, p, same, mask).item(), abs=0.1)


@given(SEEDS, SIZES)
def test_students_t_is_one_over_one_plus_the_squared_distance(seed, sizes):
    n, k = sizes
    points, centres = 4 * drawn(seed, n, 3), 4 * drawn(seed + 1, k, 3)
    q = student_scores(points, centres).softmax(1)
    for i in range(n):
        parts = [
            1 / (1 + sum((a - b) ** 2 for a, b in zip(points[i].tolist(), c, strict=True))) for c in centres.tolist()
        ]
        assert q[i].tolist() == pytest.approx([part / sum(parts) for part in parts])


@given(SEEDS, SIZES)
def test_sharpened_targets_are_their_formula(seed, sizes):
    n, k = sizes
    q = (3 * drawn(seed, n, k)).softmax(1)
    rows = q.tolist()
    mass = [sum(row[j] for row in rows) for j in range(k)]
    for i, row in enumerate(sharpened(q).tolist()):
        parts = [rows[i][j] ** 2 / mass[j] for j in range(k)]
        assert row == pytest.approx([part / sum(parts) for part in parts])


def test_an_empty_cluster_gets_no_target_and_no_nan():
    q = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0]])
    p = sharpened(q)
    assert p[:, 2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(p.sum(1), torch.ones(2))
    scores = q.clamp(min=1e-30).log().requires_grad_()
    divergence_from(p, scores, torch.tensor([True, True])).backward()
    assert torch.isfinite(scores.grad).all()


def test_sharpening_makes_the_sure_surer():
    q = torch.tensor([[0.7, 0.3], [0.3, 0.7]])
    assert sharpened(q)[0, 0] > 0.7


@given(SEEDS, SIZES)
def test_the_divergence_from_targets_is_a_mean_over_images_and_clusters(seed, sizes):
    n, k = sizes
    p, scores = drawn(seed, n, k).softmax(1), 5 * drawn(seed + 1, n, k)
    mask, q = drawn(seed + 2, n) > 0.4, scores.softmax(1)
    terms = [
        p[i, j].item() * (math.log(p[i, j].item()) - math.log(q[i, j].item()))
        for i in range(n)
        for j in range(k)
        if mask[i]
    ]
    expected = sum(terms) / len(terms) if terms else 0.0
    assert divergence_from(p, scores, mask).item() == pytest.approx(expected, abs=1e-9)


def test_a_running_average_of_equal_values_is_that_value_from_the_first_step():
    value, average = torch.tensor([0.2, 0.8]), torch.zeros(2)
    for step in range(1, 6):
        average = moved_average(average, value, 0.6)
        torch.testing.assert_close(unbiased(average, 0.6, step), value)


def test_principal_axes_keep_distances_where_nothing_is_left_out_and_order_by_spread():
    points = drawn(5, 40, 3) * torch.tensor([1.0, 9.0, 3.0], dtype=torch.float64)
    found = principal_axes(points, 3)
    torch.testing.assert_close(torch.cdist(found, found), torch.cdist(points, points), rtol=1e-6, atol=1e-5)
    spread = found.var(0)
    assert spread[0] > spread[1] > spread[2]
    assert principal_axes(points, 2).shape == (40, 2)
