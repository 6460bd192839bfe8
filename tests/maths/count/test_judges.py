"""Three judges count the classes of a pile, and say what they rest on."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.judges import REPEATABLE, next_highest_peak, repeatability, repeatable_enough, together
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import unit


def classes(n: int, per_class: int = 40, distance: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n).repeat_interleave(per_class)
    centres = distance * torch.randn(n, 16, generator=generator)
    return unit(centres[labels] + torch.randn(len(labels), 16, generator=generator)), labels


def count_classes(labelled: Tensor, labels: Tensor, pile: Tensor, max_new: int = 100) -> ClassEstimate:
    return estimate_classes(labelled, labels, pile, method="judges", max_new=max_new)


@pytest.mark.parametrize(("n_known", "n_new"), [(2, 3), (5, 4), (9, 7)])
def test_planted_classes_are_counted(n_known: int, n_new: int) -> None:
    points, labels = classes(n_known + n_new)
    known = labels < n_known
    count = count_classes(points[known], labels[known], points[~known], max_new=20)
    assert abs(count.n_new - n_new) <= 1
    assert len(count.curve["k"]) == len(count.curve["silhouette"]) == len(count.curve["repeatability"])
    if n_known < 8:
        assert count.interval is None
        assert "no interval" in count.note
        differ = len(set(count.answers)) > 1
        assert ("second peak" in count.note) == (differ and count.second is not None)
    else:
        assert count.interval is not None
        assert count.interval[0] <= count.n_new <= count.interval[1]
    assert len(count.answers) == (3 if n_known >= 4 else 2)


def test_where_the_judges_differ_the_second_peak_is_named() -> None:
    generator = torch.Generator().manual_seed(0)
    labelled = torch.eye(3, 6).repeat_interleave(30, 0) + 0.2 * torch.randn(90, 6, generator=generator)
    pile = torch.randn(200, 6, generator=generator)  # no classes at all: each judge sees something else
    count = count_classes(labelled, torch.arange(3).repeat_interleave(30), pile, max_new=20)
    assert len(set(count.answers)) > 1
    assert count.second is not None
    assert f"second peak at {count.second}." in count.note


def test_a_handful_of_images_is_one_class() -> None:
    points, labels = classes(3, 10)
    for images in (5, 0):  # none is left where all the images of a pile are old
        count = count_classes(points, labels, points[:images])
        assert (count.n_new, count.interval, count.answers) == (1, None, [])
        assert f"{images} images are too few" in count.note


def test_pairs_that_stay_together_are_those_of_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    groups, other = torch.randint(4, (30,), generator=generator), torch.randint(4, (30,), generator=generator)
    shares = []
    for group in range(4):
        pairs = list(combinations([i for i in range(30) if groups[i] == group], 2))
        shares.append(sum(bool(other[i] == other[j]) for i, j in pairs) / len(pairs))
    assert together(groups, other, 4) == pytest.approx(sum(shares) / 4)


def test_the_true_number_repeats_itself() -> None:
    points, _ = classes(5)
    found = repeatability(points, [5, 12])
    assert found[5] > 0.95
    assert found[12] < found[5] - 0.05


def test_next_highest_peak() -> None:
    assert next_highest_peak({2: 0.1, 3: 0.5, 4: 0.2, 5: 0.4, 6: 0.3}) == 5
    assert next_highest_peak({2: 0.3, 3: 0.2, 4: 0.1}) is None
    assert next_highest_peak({}) is None


def test_known_classes_set_what_is_repeatable_enough() -> None:
    points, labels = classes(6)
    enough = repeatable_enough(points, labels)
    found = repeatability(points, [6, 7, 8])
    assert max(found[7], found[8]) < enough < found[6]
    assert repeatable_enough(points[labels < 2], labels[labels < 2]) == REPEATABLE
    assert repeatable_enough(points[:0], labels[:0]) == REPEATABLE
