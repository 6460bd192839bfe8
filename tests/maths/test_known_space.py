"""The space that known classes teach: against loop-written versions, on planted classes and odd input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.grouping import compose, group_pile, matched
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import (
    Sums,
    find_groups,
    group_means,
    nearest,
    principal_axes,
    smooth,
    unit,
    whitening,
    within_scatter,
    without_empty,
)
from autonovel.maths.metrics import cluster_accuracy


def planted(
    n_classes: int, per_class: int, dim: int = 20, distance: float = 4.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Classes with unit noise, and in every class a wide direction that says nothing about it."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_classes).repeat_interleave(per_class)
    centres = distance * unit(torch.randn(n_classes, dim, generator=generator))
    centres[:, 0] = 0
    noise = torch.randn(len(labels), dim, generator=generator)
    noise[:, 0] *= 6
    return centres[labels] + noise, labels


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_scatter_is_that_of_a_loop(n: int, n_groups: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, 3, generator=generator)
    groups = torch.randint(-1, n_groups, (n,), generator=generator)
    groups[0] = 0
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for point, group in zip(points, groups, strict=True):
        if group >= 0:
            rest = point.double() - points[groups == group].double().mean(0)
            expected += torch.outer(rest, rest)
    torch.testing.assert_close(within_scatter(points, groups), expected / int((groups >= 0).sum()))


def test_whitening_makes_the_scatter_round() -> None:
    points, labels = planted(4, 50)
    points = points @ whitening(points, labels, shrink=0.0)
    torch.testing.assert_close(within_scatter(points, labels), torch.eye(20, dtype=torch.float64), atol=1e-4, rtol=0)


def test_whitening_bears_identical_points() -> None:
    assert torch.isfinite(whitening(torch.ones(6, 4), torch.tensor([0, 0, 0, 1, 1, 1]))).all()


@pytest.mark.parametrize(("n", "dim"), [(40, 6), (6, 40)])
def test_axes_keep_distances_and_hold_the_most_variance(n: int, dim: int) -> None:
    points = unit(torch.randn(n, dim, generator=torch.Generator().manual_seed(1)))
    axes = principal_axes(points, 40)
    placed = (points - axes.mean) @ axes.matrix
    torch.testing.assert_close(torch.cdist(placed, placed), torch.cdist(points, points), atol=1e-3, rtol=1e-3)
    few = principal_axes(points, 3)
    kept = ((points - few.mean) @ few.matrix).square().sum()
    largest = torch.linalg.svdvals((points - points.mean(0)).double())[:3].square().sum()
    torch.testing.assert_close(kept.double(), largest, atol=1e-4, rtol=1e-3)


@given(st.integers(8, 25), st.integers(1, 5), st.integers(0, 2), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_smoothing_is_that_of_a_loop(n: int, count: int, passes: int, seed: int) -> None:
    points = unit(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)))
    count_used = min(count, n // 4)
    linked = [[i == j for j in range(n)] for i in range(n)]
    for i in range(n):
        others = sorted((j for j in range(n) if j != i), key=lambda j: -float(points[i] @ points[j]))
        for j in others[:count_used]:
            linked[i][j] = linked[j][i] = True
    degree = [sum(row) for row in linked]
    expected = points.double()
    for _ in range(passes):
        expected = torch.stack(
            [
                sum((expected[j] / math.sqrt(degree[i] * degree[j]) for j in range(n) if linked[i][j]), torch.zeros(4))
                for i in range(n)
            ]
        )
    torch.testing.assert_close(smooth(points, count, passes), unit(expected).float(), atol=1e-5, rtol=1e-4)


def test_few_points_are_left_as_they_are() -> None:
    points = unit(torch.randn(3, 4))
    assert smooth(points) is points


def test_nearest_is_that_of_a_sort() -> None:
    points = unit(torch.randn(30, 5, generator=torch.Generator().manual_seed(0)))
    similarity = points @ points.T - 9 * torch.eye(30)
    assert torch.equal(nearest(points, 4), similarity.argsort(1, descending=True)[:, :4])
    assert torch.equal(nearest(points[:7], 1, points)[:, 0], torch.arange(7))


def test_known_classes_teach_what_to_overlook() -> None:
    points, labels = planted(8, 60, distance=5.0)
    axes = principal_axes(points)
    placed = (unit(points) - axes.mean) @ axes.matrix
    known = labels < 4
    truth = (labels[~known] - 4).numpy()
    plain = cluster_accuracy(truth, kmeans(placed[~known], 4).labels.numpy())
    found = group_pile(placed[known], labels[known], placed[~known], 4)
    assert cluster_accuracy(truth, found.labels.numpy()) > max(0.9, plain + 0.1)
    torch.testing.assert_close(found.votes.sum(1), torch.ones(240))
    assert torch.equal(found.votes.argmax(1), found.labels)
    assert found.stability > 0.9
    space = compose(axes, found.matrix)
    torch.testing.assert_close(space.transform(points), unit(placed @ found.matrix), atol=1e-4, rtol=1e-3)


def test_plain_groups_are_those_of_k_means() -> None:
    points, labels = planted(4, 40, distance=30.0)
    found = group_pile(points[:0], labels[:0], points, 4, plain=True)
    assert cluster_accuracy(found.labels.numpy(), kmeans(points, 4).labels.numpy()) == 1
    assert torch.equal(found.matrix, torch.eye(20))


def test_a_large_class_is_not_cut_to_fill_a_small_one() -> None:
    points, labels = planted(8, 200, distance=6.0)
    known = labels < 4
    keep = known.clone()
    for label, size in zip(range(4, 8), (200, 80, 40, 20), strict=True):
        keep[(labels == label).nonzero()[:size, 0]] = True
    points, labels, known = points[keep], labels[keep], known[keep]
    found = group_pile(points[known], labels[known], points[~known], 4)
    assert cluster_accuracy(labels[~known].numpy(), found.labels.numpy()) > 0.95


def test_matched_undoes_a_renumbering() -> None:
    groups = torch.randint(5, (60,), generator=torch.Generator().manual_seed(0))
    order = torch.randperm(5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(matched(groups, order[groups], 5)[order[groups]], groups)


def test_group_means_have_length_one_and_empty_groups_none() -> None:
    means = group_means(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), 2)
    torch.testing.assert_close(means, torch.tensor([[math.sqrt(0.5), math.sqrt(0.5)], [0.0, 0.0]]))


@st.composite
def tiny_piles(draw: st.DrawFn) -> tuple[Tensor, int]:
    """A few points, all different although they may lie close together, and nearly as many groups to put them into."""
    seed, dim = draw(st.integers(0, 10_000)), draw(st.integers(2, 5))
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(draw(st.integers(2, 24)), dim, generator=generator)
    close = draw(st.sampled_from([1.0, 0.1, 1e-3]))  # how far the second point of a pair lies from the first
    if draw(st.booleans()):
        points = points[torch.arange(len(points)) // 2] + close * points
    n = len(points)
    return points, max(1, n - draw(st.integers(0, n // 2)))


@settings(max_examples=80, deadline=None)
@given(tiny_piles(), st.booleans(), st.integers(0, 2))
def test_every_group_of_a_tiny_pile_has_an_image(pile: tuple[Tensor, int], plain: bool, n_known: int) -> None:
    points, k = pile
    labels = torch.arange(n_known).repeat_interleave(3)
    known = torch.randn(len(labels), points.shape[1], generator=torch.Generator().manual_seed(k))
    assert find_groups(unit(points), k, plain=plain).unique().tolist() == list(range(k))
    found = group_pile(known, labels, points, k, plain=plain)
    assert found.labels.unique().tolist() == list(range(k))
    assert torch.equal(found.votes.argmax(1), found.labels)
    torch.testing.assert_close(found.votes.sum(1), torch.ones(len(points)))


def test_an_empty_group_takes_the_point_that_fits_its_own_least() -> None:
    points = unit(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.9], [0.0, 1.0]]))
    assert without_empty(points, torch.tensor([0, 0, 0, 1]), 3).tolist() == [0, 0, 2, 1]
    assert without_empty(points, torch.tensor([0, 0, 1, 1]), 2).tolist() == [0, 0, 1, 1]
    assert sorted(without_empty(points[:1].expand(3, 2), torch.zeros(3, dtype=torch.int64), 3).tolist()) == [0, 1, 2]


@pytest.mark.parametrize("k", [0, 7])
def test_a_number_of_groups_that_cannot_be_is_refused(k: int) -> None:
    with pytest.raises(InputError, match="cannot be put into"):
        find_groups(torch.randn(6, 3), k)


def test_axes_of_many_features_hold_what_exact_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.randn(400, 300, generator=torch.Generator().manual_seed(0)) * torch.linspace(1, 0.05, 300) + 1
    exact = principal_axes(features, 40)
    monkeypatch.setattr("autonovel.maths.known_space.EXACT", 100)
    found = principal_axes(features, 40)
    held, most = ((unit(features) - axes.mean) @ axes.matrix for axes in (found, exact))
    assert held.var(0).sum() > 0.995 * most.var(0).sum()
    torch.testing.assert_close(found.matrix.T @ found.matrix, torch.eye(40), atol=1e-5, rtol=0)
    assert torch.equal(found.matrix, principal_axes(features, 40).matrix)


@pytest.mark.parametrize(("n", "width"), [(200, 12), (30, 6), (7, 5)])
def test_axes_of_sums_over_parts_are_those_of_all_together(n: int, width: int) -> None:
    chance = torch.Generator().manual_seed(n)
    features = torch.randn(n, width, generator=chance) * torch.linspace(3, 1, width) + 1
    halves = Sums(width), Sums(width)
    for number, part in enumerate(features.split(11)):
        halves[number % 2].add(part)
    whole = Sums(width)
    for half in halves:
        whole += half
    ours, theirs = whole.axes(4), principal_axes(features, 4)
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close((ours.matrix.T @ theirs.matrix).abs(), torch.eye(4), atol=1e-4, rtol=0)
