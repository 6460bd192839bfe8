"""Rare classes among the points that fit no class."""

import pytest
import torch

from autonovel.maths.known_space import unit
from autonovel.maths.rare import rare_groups

WIDTH, USUAL, LEAST = 128, 0.6, 0.4


def strangers(classes: int, each: int, outliers: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Points of rare classes and outliers of ten others, the middles of these, and those of the rare ones."""
    chance = torch.Generator().manual_seed(seed)
    middles = unit(torch.randn(10 + classes, WIDTH, generator=chance))
    kind = torch.cat(
        [torch.arange(classes).repeat_interleave(each) + 10, torch.randint(0, 10, (outliers,), generator=chance)]
    )
    similar = torch.where(kind >= 10, USUAL, 0.2)[:, None]
    noise = torch.randn(len(kind), WIDTH, generator=chance)
    noise = unit(noise - (noise * middles[kind]).sum(1, keepdim=True) * middles[kind])
    points = similar * middles[kind] + (1 - similar**2).sqrt() * noise
    fits = (points @ middles[:10].T).amax(1) >= LEAST
    return points[~fits], middles[:10], middles[10:]


@pytest.mark.parametrize("seed", range(3))
def test_rare_classes_are_found_among_outliers(seed: int) -> None:
    points, centres, rare = strangers(3, 40, 2000, seed)
    found = rare_groups(points, centres)
    assert found.shape == (3, WIDTH)
    assert (unit(found) @ rare.T).amax(0).min() > 0.9


@pytest.mark.parametrize(("outliers", "each"), [(2000, 0), (5, 3), (0, 0), (30, 6)])
def test_outliers_alone_are_no_class(outliers: int, each: int) -> None:
    points, centres, _ = strangers(1 if each else 0, each, outliers, 1)
    assert len(rare_groups(points, centres)) == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_class_among_classes_that_are_wide_and_near_takes_its_own_images(seed: int) -> None:
    """As in features of photographs: the rare images are no outliers, and the cell of their middle would hold many others."""
    chance = torch.Generator().manual_seed(seed)
    shared, middles = torch.randn(1, WIDTH, generator=chance), torch.randn(13, WIDTH, generator=chance)
    kind = torch.cat([torch.arange(12).repeat_interleave(400), torch.full((20,), 12)])
    width = torch.where(kind == 12, 0.3, 0.5 + 2.5 * torch.rand(len(kind), generator=chance))[:, None]
    points = unit(middles[kind] + shared + width * torch.randn(len(kind), WIDTH, generator=chance))
    centres = unit(torch.stack([points[kind == k].mean(0) for k in range(12)]))
    fits = (points @ centres.T).amax(1)
    assert fits[kind == 12].median() > fits[kind < 12].quantile(0.05)  # they fit a class as well as others do
    [found] = rare_groups(points, centres)
    taken = points @ found > fits
    assert taken[kind == 12].all()
    assert not taken[kind < 12].any()


def test_a_class_that_is_there_is_not_found_again() -> None:
    points, centres, rare = strangers(1, 60, 2000, 0)
    assert len(rare_groups(points, torch.cat([centres, rare]))) == 0
