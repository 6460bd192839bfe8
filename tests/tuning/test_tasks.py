"""Known classes as tasks with a known answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.tuning.tasks import choose_splits, hide, how_many_to_hide


def images(labels: list[int], names: str = "abcd") -> ImageSet:
    pixels = np.arange(len(labels), dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 1), np.uint8)
    ids = tuple(map(str, range(len(labels))))
    return ImageSet(pixels, np.array(labels), ids, tuple(names))


def test_labels_of_hidden_classes_are_gone_and_the_others_numbered_anew() -> None:
    data = images([0, 1, 2, 3, -1, 1, 3])
    task = hide(data, [1, 2])
    assert task.data.ids == ("0", "1", "2", "3", "5", "6")  # without the pile
    assert task.data.labels.tolist() == [0, -1, -1, 1, -1, 1]
    assert task.data.class_names == ("a", "d")
    assert task.probe.tolist() == [False, True, True, False, True, False]
    assert (task.classes.tolist(), task.n_new, task.hidden) == ([1, 2, 1], 2, ("b", "c"))


def test_the_pile_may_stay_and_is_not_scored() -> None:
    task = hide(images([0, 1, 2, 3, -1, 1, 3]), [1, 2], pile=5)
    assert task.n_new == 7
    assert len(task.data) == 7
    assert task.accuracy(np.array([6, 2, 0, 6])) == 1.0  # the third of the unlabelled is the pile's
    assert task.accuracy(np.array([6, 2, 6, 6])) == 1.0


def test_a_hidden_image_taken_for_a_known_class_is_wrong() -> None:
    task = hide(images([0, 1, 2, 3, 1, 2]), [1, 2])
    assert task.accuracy(np.array([0, 1, 0, 1])) == 1.0
    assert task.accuracy(np.array([0, -1, 0, -1])) == 0.5
    assert task.accuracy(np.array([0, 1, -1, 1])) == 0.75
    assert task.accuracy(np.array([-1, -2, -1, -1])) == 0.0


@given(st.integers(4, 40), st.integers(2, 20), st.integers(1, 12), st.integers(0, 9))
def test_splits_differ_and_take_turns(n_known: int, n_hidden: int, splits: int, seed: int) -> None:
    if n_known - n_hidden < 2:
        with pytest.raises(InputError, match="two must stay known"):
            choose_splits(n_known, n_hidden, splits, seed)
        return
    found = choose_splits(n_known, n_hidden, splits, seed)
    assert len(found) == len(set(found)) <= splits
    assert all(len(set(chosen)) == n_hidden and max(chosen) < n_known for chosen in found)
    first = [c for chosen in found[: n_known // n_hidden] for c in chosen]
    assert len(first) == len(set(first))  # nothing twice before everything once
    assert found == choose_splits(n_known, n_hidden, splits, seed)


def test_there_are_no_more_splits_than_sets_of_classes() -> None:
    assert len(choose_splits(4, 2, 100, 0)) == 6


@given(st.integers(4, 200), st.one_of(st.none(), st.integers(2, 200)))
def test_enough_classes_stay_known(n_known: int, n_new: int | None) -> None:
    hidden = how_many_to_hide(n_known, n_new)
    assert 2 <= hidden <= n_known - 2
    assert n_new is None or hidden <= n_new
