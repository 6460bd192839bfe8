"""The benchmark for few images exchanges known and new classes, and runs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from autonovel.settings.recipes import get_recipe
from tests.small_data import class_images

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import scratch

LABELS = np.repeat([7, 2, 9, 4], 8)
KNOWN = np.isin(LABELS, (7, 9))


def test_labels_of_the_pile_are_hidden_and_numbered() -> None:
    data, truth = scratch.as_problem(class_images(LABELS % 5, 16), LABELS, ~KNOWN)
    assert data.labels[KNOWN].tolist() == [-1] * 16
    assert data.labels[~KNOWN].tolist() == [0] * 8 + [1] * 8
    assert truth.tolist() == [0] * 8 + [1] * 8


def test_settings_are_changed_by_name() -> None:
    recipe = scratch.changed(
        get_recipe("folder"), ["joint.epochs=3", "joint.contrast.augment.flip=false", "mirror=given"]
    )
    assert (recipe.joint.epochs, recipe.joint.contrast.augment.flip, recipe.mirror) == (3, False, "given")
    assert recipe.joint.contrast.augment.rotate == get_recipe("folder").joint.contrast.augment.rotate
    with pytest.raises(SystemExit, match=r"no setting 'joint\.colour'"):
        scratch.changed(recipe, ["joint.colour=1"])


def test_a_file_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "few.npz", images=class_images(LABELS % 5, 16), labels=LABELS, known=KNOWN)
    short = ["joint.epochs=1", "joint.warmup=0", "model.width=4"]
    scratch.main([str(tmp_path / "few.npz"), "--seeds", "3", "--device", "cpu", "--change", *short])
    found = json.loads(capsys.readouterr().out)
    assert found["seed"] == 3
    assert found["change"] == short
    assert 0.5 <= found["acc"] <= 1  # two classes
    assert 0.5 <= found["kmeans_on_its_features"] <= 1
