"""Probabilities say how often an answer is right."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths.confidence import (
    Calibration,
    expected_calibration_error,
    fit_calibration,
    majority_right,
    reliability,
)


def votes(n: int, k: int, seed: int = 0) -> Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).mul(3).softmax(1)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_error_is_that_of_a_loop(n: int, bins: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    probability = torch.rand(n, generator=generator)
    right = torch.rand(n, generator=generator) < 0.5
    expected = 0.0
    for b in range(bins):
        inside = [i for i in range(n) if min(bins - 1, int(probability[i] * bins)) == b]
        if inside:
            said = sum(float(probability[i]) for i in inside) / len(inside)
            was = sum(bool(right[i]) for i in inside) / len(inside)
            expected += len(inside) / n * abs(said - was)
    assert expected_calibration_error(probability, right, bins) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("power", "doubt"), [(0.5, 0.0), (1.0, 0.2), (2.0, 0.1)])
def test_what_was_planted_is_recovered(power: float, doubt: float) -> None:
    raw = votes(20_000, 4)
    top = Calibration(power, doubt).apply(raw).amax(1)
    right = torch.rand(len(top), generator=torch.Generator().manual_seed(1)) < top
    found = fit_calibration([(raw, right)])
    assert expected_calibration_error(found.apply(raw).amax(1), right) < 0.02
    assert found.power == pytest.approx(power, rel=0.5)


def test_calibration_keeps_answers_and_sums() -> None:
    raw = votes(200, 5)
    made = Calibration(0.5, 0.3).apply(raw)
    assert torch.equal(made.argmax(1), raw.argmax(1))
    torch.testing.assert_close(made.sum(1), torch.ones(200))


def test_sure_and_wrong_answers_raise_doubt() -> None:
    raw = torch.tensor([[1.0, 0.0]]).repeat(100, 1)
    right = torch.arange(100) < 70
    assert fit_calibration([(raw, right)]).apply(raw)[0, 0].item() == pytest.approx(0.7, abs=0.11)


def test_reliability_is_ready_for_json() -> None:
    import json

    report = reliability(torch.tensor([0.9, 0.9, 0.1]), torch.tensor([True, False, False]), "by hand", bins=2)
    assert json.loads(json.dumps(report)) == report
    assert report["images"] == 3
    assert report["curve"][1] == {"probability": 0.9, "right": 0.5, "images": 2}
    assert report["calibration_error"] == pytest.approx((2 * 0.4 + 0.1) / 3, abs=1e-3)


def test_majority() -> None:
    found, truth = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([2, 2, 0, 2, 2])
    assert majority_right(found, truth, 2).tolist() == [True, True, False, True, True]
