"""A result against the truth, where the pile is not what it seemed."""

import numpy as np
import pytest
import torch

from autonovel.answers.network import Trained
from autonovel.data.images import ImageSet, Truth
from autonovel.discovery.score import score
from autonovel.machine.device import Mode
from autonovel.models.net import build
from autonovel.settings.recipe import Model


def scored(truth: list[int], places: list[int]) -> dict[str, object]:
    """Two known classes, 0 and 1, each with one labelled image before the pile."""
    labels = np.array([0, 1, *truth])
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 8, 8, 1), dtype=np.uint8)
    data = ImageSet.from_arrays(images, [0, 1, *([-1] * len(truth))])
    trained = Trained(build(Model(backbone="small", width=4), channels=1, size=8), Mode.of("cpu"), 0)
    sure = np.full(len(places), 0.5, dtype=np.float32)
    names = tuple("abcd")
    return score(
        data, Truth(labels, names), np.array(places), sure, {"features": torch.randn(len(truth), 3)}, trained, 0
    )


def test_new_classes_are_matched() -> None:
    found = scored([2, 2, 2, 3, 3, 3], [3, 3, 3, 2, 2, 3])
    assert found["acc_new"] == pytest.approx(5 / 6)
    assert found["matched"] == {"0": ("d", 2), "1": ("c", 3)}
    assert "pile" not in found


def test_images_of_known_classes_do_not_count_as_discovered() -> None:
    found = scored([0, 0, 1, 2, 2, 3, 3], [0, 0, 2, 2, 2, 3, 3])
    assert found["acc_new"] == 1.0
    assert found["pile"]["fixed"]["old"] == pytest.approx(2 / 3)
    assert found["pile"]["fixed"]["new"] == 1.0


def test_new_images_that_are_called_by_a_known_name_are_not_discovered() -> None:
    found = scored([2, 2, 3, 3, 0, 0, 0], [0, 0, 3, 3, 0, 0, 0])
    assert found["pile"]["separate"]["new"] == 1.0  # matched alone, the known name is as good as any
    assert found["acc_new"] == found["pile"]["single"]["new"] == 0.5


def test_known_images_in_a_pile_that_was_taken_for_new_are_not_discovered_either() -> None:
    found = scored([0, 1, 2, 2, 3, 3], [2, 3, 2, 2, 3, 3])
    assert found["acc_new"] == 1.0
    assert found["pile"]["single"] == {"old": 0.0, "new": 1.0, "all": pytest.approx(4 / 6)}


def test_a_pile_that_holds_known_classes_alone() -> None:
    found = scored([0, 1, 0, 1], [0, 1, 0, 2])
    assert "acc_new" not in found
    assert found["pile"]["fixed"]["old"] == 0.75
    assert scored([0, 1, 0, 1], [0, 1, 0, 1])["matched"] == {}
