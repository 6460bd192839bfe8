"""What a run leaves in its folder."""

import json
import math
from pathlib import Path

import numpy as np
import torch

from autonovel.answers.judge import Answers
from autonovel.api.run import Run
from autonovel.data.images import ImageSet
from autonovel.discovery.finish import plain, write_outcome
from tests.runs.made import SUMMARY


def test_numbers_that_json_does_not_have_are_null() -> None:
    kept = plain({"a": math.nan, "b": [math.inf, (1.5, -math.inf)], "c": "nan", "d": 3})
    assert json.loads(json.dumps(kept, allow_nan=False)) == {"a": None, "b": [None, [1.5, None]], "c": "nan", "d": 3}


def written_features(folder: Path, features: torch.Tensor) -> Run:
    n = len(features)
    data = ImageSet.from_arrays(np.zeros((n, 4, 4, 3), np.uint8), np.full(n, -1))
    some = np.full((n, 2), 0.5, np.float32)
    answers = Answers(np.arange(n) % 2, some[:, 0], some, np.zeros(n, np.bool_))
    run = Run(folder)
    run.write_json("config.json", {"run": {"data": {"class_names": []}}})
    write_outcome(run, data, features, answers, SUMMARY | {"n_known": 0, "n_new": 2})
    return run


def test_features_beyond_the_numbers_of_float16_stay_finite(tmp_path: Path) -> None:
    usual, large = torch.randn(6, 3), torch.tensor([[0.1, -70_000.0, 1e30]]).repeat(6, 1)
    assert written_features(tmp_path / "usual", usual).features.dtype == np.float16
    for features in (large, torch.full((6, 3), 65_519.0), torch.full((6, 3), 65_520.0), torch.full((6, 3), -65_520.0)):
        found = written_features(tmp_path / "large", features).features
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, features.numpy(), rtol=1e-3)


def test_a_run_without_labelled_images_has_features_of_none(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_features("features-labelled.npy", np.zeros((0, 3), np.float32))
    assert run.labelled_features is not None
    assert run.labelled_features.shape == (0, 3)
