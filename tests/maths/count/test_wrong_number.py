"""What to say and to do about a wrong number of groups."""

import pytest
import torch

from autonovel.base.errors import InputError
from autonovel.maths.count.wrong_number import merge_groups, number_notes, separation, widest_groups
from autonovel.maths.known_space import find_groups
from autonovel.maths.metrics import cluster_accuracy
from tests.maths.count.test_judges import classes


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
    (note,) = number_notes(points, groups, 6, 3, kind="clusters")
    assert note.startswith("The images look like 3 clusters rather than 6: ")


def test_separation_is_counted_in_deviations() -> None:
    points = torch.cat([torch.randn(4000, 3), torch.randn(4000, 3) + torch.tensor([5.0, 0, 0])])
    assert separation(points, torch.arange(8000) // 4000) == pytest.approx(5, abs=0.2)
    assert separation(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])) == 0
    assert separation(torch.zeros(4, 2), torch.zeros(4)) == 0
