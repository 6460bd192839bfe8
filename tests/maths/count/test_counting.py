"""The number of new classes from features, and what to do about a wrong one."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.count.counting import (
    REPEATABLE,
    count_classes,
    next_highest_peak,
    repeatability,
    repeatable_enough,
    together,
)
from autonovel.maths.count.wrong_number import merge_groups, number_notes, separation, widest_groups
from autonovel.maths.known_space import find_groups, unit
from autonovel.maths.metrics import cluster_accuracy


def classes(n: int, per_class: int = 40, distance: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n).repeat_interleave(per_class)
    centres = distance * torch.randn(n, 16, generator=generator)
    return unit(centres[labels] + torch.randn(len(labels), 16, generator=generator)), labels


@pytest.mark.parametrize(("n_known", "n_new"), [(2, 3), (5, 4), (9, 7)])
def test_planted_classes_are_counted(n_known: int, n_new: int) -> None:
    points, labels = classes(n_known + n_new)
    known = labels < n_known
    count = count_classes(points[known], labels[known], points[~known], max_new=20)
    assert abs(count.n_new - n_new) <= 1
    assert len(count.curve["k"]) == len(count.curve["silhouette"]) == len(count.curve["repeatability"])
    if n_known < 8:
        assert count.interval is None
        assert "no interval" in count.notes[0]
        differ = len(set(count.answers.values())) > 1
        assert ("second peak" in count.notes[0]) == (differ and count.second is not None)
    else:
        assert count.interval is not None
        assert count.interval[0] <= count.n_new <= count.interval[1]
    assert ("tree" in count.answers) == (n_known >= 4)


def test_where_the_judges_differ_the_second_peak_is_named() -> None:
    generator = torch.Generator().manual_seed(0)
    labelled = torch.eye(3, 6).repeat_interleave(30, 0) + 0.2 * torch.randn(90, 6, generator=generator)
    pile = torch.randn(200, 6, generator=generator)  # no classes at all: each judge sees something else
    count = count_classes(labelled, torch.arange(3).repeat_interleave(30), pile, max_new=20)
    assert len(set(count.answers.values())) > 1
    assert count.second is not None
    assert f"second peak at {count.second}." in count.notes[0]


def test_a_handful_of_images_is_one_class() -> None:
    points, labels = classes(3, 10)
    count = count_classes(points, labels, points[:5])
    assert count.n_new == 1
    assert "too few" in count.notes[0]


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


def test_twice_as_many_groups_are_merged_back() -> None:
    points, labels = classes(5)
    groups = find_groups(points, 10)
    to = merge_groups(points, groups, 10, 5)
    assert cluster_accuracy(labels.numpy(), to[groups].numpy()) > 0.97
    assert len(set(to.tolist())) == 5
    assert all(to[g] <= g for g in range(10))


def test_merging_into_more_groups_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be merged"):
        merge_groups(torch.randn(9, 3), torch.arange(9) % 3, 3, 4)


def test_the_group_that_holds_two_classes_is_named() -> None:
    points, labels = classes(5)
    groups = labels.clone()
    groups[groups == 4] = 2
    assert widest_groups(points, groups, 4, 1) == [2]
    assert number_notes(points, groups, 4, 6) == [
        "The images look like 6 new classes rather than 4: clusters "
        + _numbers(widest_groups(points, groups, 4, 2))
        + " may hold two each."
    ]


def _numbers(groups: list[int]) -> str:
    return ", ".join(map(str, sorted(groups)))


def test_notes_on_too_many_groups() -> None:
    points, labels = classes(3, per_class=60)
    groups = 2 * labels + (torch.arange(180) % 2)
    (note,) = number_notes(points, groups, 6, 3)
    assert (
        note
        == "The images look like 3 new classes rather than 6: clusters 0 and 1; 2 and 3; 4 and 5 may be parts of one class."
    )
    assert number_notes(points, labels, 3, 3) == []
    (note,) = number_notes(points, groups, 6, 3, found="clusters")
    assert note.startswith("The images look like 3 clusters rather than 6: ")


def test_separation_is_counted_in_deviations() -> None:
    points = torch.cat([torch.randn(4000, 3), torch.randn(4000, 3) + torch.tensor([5.0, 0, 0])])
    assert separation(points, torch.arange(8000) // 4000) == pytest.approx(5, abs=0.2)
    assert separation(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])) == 0
    assert separation(torch.zeros(4, 2), torch.zeros(4)) == 0


def test_known_classes_set_what_is_repeatable_enough() -> None:
    points, labels = classes(6)
    enough = repeatable_enough(points, labels)
    found = repeatability(points, [6, 7, 8])
    assert max(found[7], found[8]) < enough < found[6]
    assert repeatable_enough(points[labels < 2], labels[labels < 2]) == REPEATABLE
    assert repeatable_enough(points[:0], labels[:0]) == REPEATABLE
