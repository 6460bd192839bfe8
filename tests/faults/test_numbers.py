"""Numbers that are none: found, said, and the last good state kept."""

from pathlib import Path

import numpy as np
import pytest

import autonovel as an
from autonovel.base.errors import AutonovelWarning, InputError, TrainingError
from autonovel.runs.files import RunFiles
from autonovel.settings.recipes import get_recipe, with_fields

SMALL = {"model.backbone": "small", "model.width": 4, "model.networks": 1, "model.size": 16, "model.head": "linear"}
LABELS = np.repeat([0, 1], 15)


def discover(images: np.ndarray, out: Path, **more: object) -> an.Run:
    chosen = {"method": "autonovel", **SMALL, **{name.replace("__", "."): value for name, value in more.items()}}
    recipe = with_fields(get_recipe("digits", "fast"), chosen)
    return an.discover((images[:30], LABELS), images[30:], n_new=2, out=out, recipe=recipe, device="cpu", report=False)


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)


def test_training_that_explodes_is_said_and_leaves_no_answer(images: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not finite.*lower"):
        discover(images, tmp_path / "run", supervised__lr=1e30, joint__lr=1e30)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_an_epoch_whose_record_cannot_be_kept_is_done_again(
    images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = discover(images, tmp_path / "whole", supervised__epochs=3).metrics
    really, calls = RunFiles.append_metrics, []

    def full(run: RunFiles, entry: dict) -> None:
        calls.append(entry)
        if len(calls) == 2:
            raise TrainingError("There is no room.")
        really(run, entry)

    monkeypatch.setattr(RunFiles, "append_metrics", full)
    with pytest.raises(TrainingError, match="no room"):
        discover(images, tmp_path / "full", supervised__epochs=3)
    found = discover(images, tmp_path / "full", supervised__epochs=3).metrics
    assert [entry | {"seconds": 0} for entry in found] == [entry | {"seconds": 0} for entry in wanted]


def test_images_that_are_all_the_same_are_refused(images: np.ndarray, tmp_path: Path) -> None:
    images[30:] = 7
    with pytest.raises(InputError, match="All 30 unlabelled images are the same"):
        discover(images, tmp_path / "run")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named(value: float) -> None:
    features = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    features[40, 2] = value
    with pytest.raises(InputError, match=r"Unlabelled features hold NaN or infinite values \(first in row 10\)"):
        an.estimate_classes(features[:30], LABELS, features[30:], max_new=5)


def test_features_that_are_all_the_same_give_an_answer() -> None:
    features = np.ones((60, 8), dtype=np.float32)
    with pytest.warns(AutonovelWarning, match="too few"):
        assert an.estimate_classes(features[:30], LABELS, features[30:], max_new=5).n_new >= 1
