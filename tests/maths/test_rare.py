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
    found = rare_groups(points, centres, least=LEAST, usual=USUAL)
    assert found.shape == (3, WIDTH)
    assert (found @ rare.T).amax(0).min() > 0.9


@pytest.mark.parametrize(("outliers", "each"), [(2000, 0), (5, 3), (0, 0), (30, 6)])
def test_outliers_alone_are_no_class(outliers: int, each: int) -> None:
    points, centres, _ = strangers(1 if each else 0, each, outliers, 1)
    assert len(rare_groups(points, centres, least=LEAST, usual=USUAL)) == 0


def test_without_any_class_the_first_ones_are_found() -> None:
    points, _, rare = strangers(2, 60, 0, 0)
    assert len(rare_groups(points, points.new_zeros(0, WIDTH), least=LEAST, usual=USUAL)) == len(rare)
