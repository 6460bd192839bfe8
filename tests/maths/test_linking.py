"""Groups of different sizes from links between neighbours, against slow loops and planted classes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths.grouping import group_pile
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import unit
from autonovel.maths.linking import leaving, link_groups, neighbours
from autonovel.maths.metrics import cluster_accuracy


def planted(sizes: list[int], length: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Round classes of these sizes, of which the first is drawn out to this length."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(len(sizes), 24, generator=generator)
    truth = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    points = centres[truth] + 0.3 * torch.randn(len(truth), 24, generator=generator)
    points[truth == 0] += length * (torch.rand(sizes[0], 1, generator=generator) - 0.5) * unit(torch.ones(1, 24))
    return points, truth


NOTHING = torch.zeros(0, 24), torch.zeros(0, dtype=torch.int64)


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 1000))
def test_leaving_against_a_loop(n: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points, groups = unit(torch.randn(n, 3, generator=generator)), torch.randint(k, (n,), generator=generator)
    near = neighbours(points)
    assert near.shape == (n, min(10, n - 1))
    shares = []
    for group in range(k):
        ends = [(int(groups[i]), int(groups[j])) for i in range(n) for j in near[i].tolist()]
        touching = [(a, b) for a, b in ends + [(b, a) for a, b in ends] if a == group]
        shares.append(sum(a != b for a, b in touching) / len(touching) if touching else 1.0)
    assert leaving(near, groups, k) == pytest.approx(sum(shares) / k)


@given(st.integers(2, 6), st.integers(20, 120), st.integers(0, 1000))
def test_whatever_the_points_all_groups_are_there(k: int, n: int, seed: int) -> None:
    points = unit(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)))
    found = link_groups(points, neighbours(points), k)
    if found is not None:
        assert found.unique().tolist() == list(range(k))
        assert torch.equal(found, link_groups(points, neighbours(points), k))


def test_a_small_class_is_found_that_k_means_gives_away_for_half_of_a_large_one() -> None:
    points, truth = planted([900, 150, 100], length=12.0)
    by_kmeans = cluster_accuracy(truth.numpy(), kmeans(points, 3, restarts=10).labels.numpy())
    found = group_pile(*NOTHING, points, 3)
    assert by_kmeans < 0.8
    assert found.way == "neighbours"
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.97
    assert torch.equal(found.votes.argmax(1), found.labels)


def test_classes_of_one_size_are_left_to_k_means() -> None:
    points, truth = planted([200] * 4)
    found = group_pile(*NOTHING, points, 4)
    assert found.way != "neighbours"
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.95


def test_strays_are_no_class() -> None:
    points, truth = planted([300, 300, 6])
    found = link_groups(unit(points), neighbours(unit(points)), 2)
    assert found is not None
    assert cluster_accuracy(truth[:600].numpy(), found[:600].numpy()) > 0.97


def test_parts_without_any_link_are_joined_with_the_closest() -> None:
    far = torch.eye(24)
    generator = torch.Generator().manual_seed(0)
    middles = [far[0], far[1] + 0.7 * far[2], far[1] - 0.7 * far[2], far[3]]
    points = unit(torch.cat([m + 0.01 * torch.randn(60, 24, generator=generator) for m in middles]))
    found = link_groups(points, neighbours(points), 3)
    assert found is not None
    assert [found[60 * part : 60 * part + 60].unique().numel() for part in range(4)] == [1] * 4
    assert found[60] == found[120]  # whatever the order of the images
    assert len({int(found[0]), int(found[60]), int(found[180])}) == 3


@pytest.mark.parametrize(("n", "k"), [(12, 12), (9, 1), (30, 2)])
def test_few_images_and_copies(n: int, k: int) -> None:
    points = torch.randn(n, 24, generator=torch.Generator().manual_seed(0))
    assert group_pile(*NOTHING, points, k).labels.unique().tolist() == list(range(k))
    copies = points[:1].expand(n, 24)
    assert group_pile(*NOTHING, copies, min(k, 2)).labels.shape == (n,)
