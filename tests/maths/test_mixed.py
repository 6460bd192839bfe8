"""Old images are told from new ones, and a pile of new ones is not taken for a mixed one."""

import pytest
import torch
from torch import Tensor

from autonovel.maths.known_space import unit, whitening
from autonovel.maths.mixed import _cut, _Draw, _draw, _share, find_old, least_similar


def pile(
    n_known: int, n_new: int, hidden: int, distance: float = 3.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """80 labelled images of each known class, `hidden` more and 80 of each new class in the pile; and which are old."""
    generator = torch.Generator().manual_seed(seed)
    centres = distance * torch.randn(n_known + n_new, 12, generator=generator)

    def draw(classes: Tensor) -> Tensor:
        return unit(centres[classes] + torch.randn(len(classes), 12, generator=generator))

    labels = torch.arange(n_known).repeat_interleave(80)
    old = torch.arange(n_known).repeat_interleave(hidden)
    new = torch.arange(n_known, n_known + n_new).repeat_interleave(80)
    return draw(labels), labels, draw(torch.cat([old, new])), torch.arange(len(old) + len(new)) < len(old)


@pytest.mark.parametrize("hidden", [20, 60])
def test_old_images_are_found(hidden: int) -> None:
    labelled, labels, free, is_old = pile(5, 4, hidden)
    found = find_old(labelled, labels, free)
    assert found.mixed
    assert found.share == pytest.approx(is_old.float().mean().item(), abs=0.1)
    assert found.is_old[is_old].float().mean() > 0.9
    assert found.is_old[~is_old].float().mean() < 0.1
    truth = torch.arange(5).repeat_interleave(hidden)
    labels_found = found.labels()[is_old]
    assert (labels_found[labels_found >= 0] == truth[labels_found >= 0]).float().mean() > 0.98
    assert torch.equal(found.labels() >= 0, found.is_old)
    assert "known classes are expected in it too" in found.sentence()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("distance", [0.8, 1.2, 3.0])
def test_how_often_the_two_are_confused_is_known_beforehand(distance: float, seed: int) -> None:
    labelled, labels, free, is_old = pile(12, 6, 60, distance=distance, seed=seed)
    found = find_old(labelled, labels, free, seed=seed)
    called = found.is_old
    assert found.sure_old == pytest.approx(is_old[called].float().mean().item(), abs=0.12)
    assert found.sure_new == pytest.approx((~is_old[~called]).float().mean().item(), abs=0.12)
    assert (found.sure_old > 0.99) == (distance == 3.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("distance", [1.2, 3.0])
def test_new_classes_are_not_taken_for_old(seed: int, distance: float) -> None:
    found = find_old(*pile(5, 4, 0, distance=distance, seed=seed)[:3], seed=seed)
    assert not found.mixed
    assert "only new classes are expected" in found.sentence()


def test_a_new_class_that_resembles_a_known_one_is_still_new() -> None:
    generator = torch.Generator().manual_seed(0)
    labelled, labels, free, _ = pile(5, 3, 0)
    shift = torch.zeros(12)
    shift[torch.randperm(12, generator=generator)[:2]] = (
        0.35  # more than an image of the class strays in that direction
    )
    twin = unit(labelled[labels == 0] + shift)
    assert not find_old(labelled, labels, torch.cat([free, twin])).mixed


def test_a_pile_of_known_classes_alone_is_mixed() -> None:
    labelled, labels, free, is_old = pile(4, 1, 80)
    found = find_old(labelled, labels, free[is_old])
    assert found.mixed
    assert found.share > 0.8
    assert found.is_old.float().mean() > 0.8


def test_two_known_classes_have_no_leak() -> None:
    assert find_old(*pile(2, 2, 0)[:3]).leak is None


def test_single_images_do_not_break_it() -> None:
    points = unit(torch.randn(20, 6, generator=torch.Generator().manual_seed(0)))
    found = find_old(points[:4], torch.arange(4), points[4:])
    assert torch.isfinite(found.probability).all()


def test_votes_are_those_of_a_loop_over_neighbours() -> None:
    labelled, labels, free, _ = pile(4, 2, 10, distance=1.0)
    draw = _draw(labelled, labels, free, torch.Generator().manual_seed(3), n_probes=0)
    generator = torch.Generator().manual_seed(3)
    known = torch.ones(len(labels), dtype=torch.bool)
    for label in torch.randperm(4, generator=generator).tolist():
        members = (labels == label).nonzero()[:, 0]
        known[members[torch.randperm(80, generator=generator)[:16]]] = False
    points = torch.cat([labelled[known], labelled[~known], free])
    groups = torch.cat([labels[known], torch.full((len(points) - int(known.sum()),), -1)])
    points = unit(points @ whitening(points, groups))
    for row in range(0, len(free), 7):
        place = len(points) - len(free) + row
        near = (points @ points[place]).argsort(descending=True).tolist()
        around = [int(groups[other]) for other in near if other != place][:20]
        assert draw.votes[row].tolist() == [around.count(c) for c in range(4)]


def test_share_counts_twice_what_lies_above_the_middle() -> None:
    none = torch.zeros(0)
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
    planted = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 8.0, 9.0, 9.0, 9.0])
    draw = _Draw(planted, none, none, labels, none, none, none)
    scores, votes = torch.tensor([3.0, 5.0, 6.0, 3.0]), torch.eye(3)[[0, 1, 1, 2]]
    assert _share(scores, votes, draw, False) == 1.0  # two above 4, the lower middle of all
    # one above 2 of class 0, none above 8 of class 1, none above 4, since class 2 has too few planted images of its own
    assert _share(scores, votes, draw, True) == 0.5
    assert _share(scores[1:], votes[1:], draw, True) == 0.0


def test_known_classes_of_which_most_are_missing_in_the_pile_are_seen() -> None:
    labelled, labels, free, is_old = pile(8, 8, 40)
    kept = torch.cat([free[~is_old], free[is_old][: 3 * 40]])
    found = find_old(labelled, labels, kept)
    assert found.mixed
    assert found.is_old[-3 * 40 :].float().mean() > 0.9


def test_the_cut_has_the_least_sum_of_errors() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(4000, generator=generator) + 2, torch.randn(6000, generator=generator) - 2
    mixture = torch.cat([torch.randn(2000, generator=generator) + 2, new])
    assert _cut(old, mixture, 0.25) == pytest.approx(0.0, abs=0.4)


def test_one_held_out_image_in_a_hundred_is_below_the_limit() -> None:
    labelled, labels, _, _ = pile(5, 1, 0)
    limit = least_similar(labelled, labels)
    means = torch.stack([unit(labelled[labels == c].mean(0)[None])[0] for c in range(5)])
    below = (labelled @ means.T).amax(1) < limit
    assert 0 < below.float().mean() < 0.03
    stranger = unit(torch.randn(50, 12, generator=torch.Generator().manual_seed(5)))
    assert ((stranger @ means.T).amax(1) < limit).float().mean() > 0.5


@pytest.mark.parametrize(("old", "mixed"), [(1, False), (2, False), (5, True)])
def test_a_handful_of_images_is_not_mixed_because_one_or_two_look_old(old: int, mixed: bool) -> None:
    labelled, labels, free, is_old = pile(5, 4, 20)
    few = torch.cat([free[is_old][:old], free[~is_old][: 5 - old]])
    found = find_old(labelled, labels, few)
    assert found.mixed == mixed
    assert "5 images can hardly tell" in found.sentence()
