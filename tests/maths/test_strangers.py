"""The share of a batch that belongs to no class, on planted classes."""

import pytest
import torch
from torch import Tensor

from autonovel.maths.known_space import unit
from autonovel.maths.strangers import FEWEST_IMAGES, Strangers, _held_out


def planted(n_classes: int, each: int, noise: float = 0.25, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = unit(torch.randn(n_classes, 24, generator=generator))
    labels = torch.arange(n_classes).repeat_interleave(each)
    return unit(centres[labels] + noise * torch.randn(len(labels), 24, generator=generator)), labels


def test_similarity_to_what_has_not_seen_it_against_a_loop() -> None:
    points, labels = planted(4, 6)
    fold = torch.arange(24) % 3
    found = _held_out(points, labels, 4, fold)
    for i in range(24):
        rest = [[points[j] for j in range(24) if fold[j] != fold[i] and labels[j] == c] for c in range(4)]
        means = [unit(torch.stack(of_class).sum(0)[None])[0] for of_class in rest if of_class]
        assert float(found[i]) == pytest.approx(max(float(points[i] @ mean) for mean in means), abs=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_the_share_of_a_batch_is_told(share: float) -> None:
    points, labels = planted(30, 60)
    seen = labels < 20
    first = torch.arange(len(points)) % 2 == 0
    known = Strangers.of(points[seen & first], labels[seen & first], 20)
    assert known is not None
    old, new = points[seen & ~first], points[~seen]
    n = 300
    batch = torch.cat([old[torch.randperm(len(old))[: round((1 - share) * n)]], new[: round(share * n)]])
    found = known.share(known.similar(batch))
    assert found is not None
    assert found[0] == pytest.approx(share, abs=max(0.12, 3 * found[1]))


def test_where_nothing_can_be_told() -> None:
    points, labels = planted(3, 20)
    assert Strangers.of(points, labels, 3) is None
    assert Strangers.of(points, labels, 10) is None  # classes without an image do not count
    none = torch.zeros(4, 24)
    same = Strangers(none, torch.linspace(0, 1, 101), torch.linspace(0, 1, 101))
    assert same.share(torch.rand(100)) is None
    apart = Strangers(none, torch.linspace(0.5, 1, 101), torch.linspace(0, 0.5, 101))
    assert apart.share(torch.rand(FEWEST_IMAGES - 1)) is None
    found = apart.share(torch.full((50,), 0.1))
    assert found is not None
    assert found[0] == 1.0


def test_classes_without_an_image_change_nothing() -> None:
    points, labels = planted(6, 10)
    gaps = Strangers.of(points, labels * 5, 30)
    whole = Strangers.of(points, labels, 6)
    assert gaps is not None
    assert whole is not None
    assert torch.allclose(gaps.seen, whole.seen)
    assert torch.allclose(gaps.unseen, whole.unseen)
