"""Probabilities say how often an answer is right."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths.confidence import (
    Calibration,
    KnownProblem,
    calibrate,
    expected_calibration_error,
    fit_calibration,
    log_odds,
    majority_right,
    power_for,
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


@given(st.floats(0.4, 0.99), st.integers(2, 8), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_the_power_gives_the_mean_that_is_wanted(wanted: float, k: int, seed: int) -> None:
    raw = votes(300, k, seed)
    sure = Calibration(power_for(log_odds(wanted), raw)).apply(raw).amax(1).mean().item()
    reachable = [Calibration(power).apply(raw).amax(1).mean().item() for power in (0.02, 8.0)]
    assert sure == pytest.approx(min(max(wanted, reachable[0]), reachable[1]), abs=0.01)


def problem(accuracy: float, agreement: float, seed: int = 0) -> KnownProblem:
    """Votes that know nothing of which answers are right."""
    raw = votes(400, 3, seed)
    right = torch.rand(400, generator=torch.Generator().manual_seed(seed + 1)) < accuracy
    return KnownProblem(raw, right, accuracy, agreement)


def test_the_mean_probability_lies_between_what_votes_and_agreement_say() -> None:
    problems = [problem(0.8, 0.9, 0), problem(0.7, 0.8, 1)]
    raw = votes(500, 4, 2)
    votes_say = fit_calibration([(p.votes, p.right) for p in problems]).apply(raw).amax(1).mean().item()

    def odds(p: float) -> float:
        return math.log(p / (1 - p))

    for agreement in (0.6, 0.95):
        shared = (odds(0.8) - odds(0.9) + odds(0.7) - odds(0.8)) / 2
        expected = (odds(votes_say) + odds(agreement) + shared) / 2
        got = calibrate(problems, raw, agreement).apply(raw).amax(1).mean().item()
        assert odds(got) == pytest.approx(expected, abs=0.02)


def test_new_classes_that_are_easier_than_the_known_are_answered_more_surely() -> None:
    problems = [problem(0.7, 0.8, seed) for seed in range(3)]
    raw = votes(500, 3, 9)
    sure = [calibrate(problems, raw, agreement).apply(raw).amax(1).mean().item() for agreement in (0.6, 0.8, 0.97, 1.0)]
    assert sure == sorted(sure)
    assert sure[3] - sure[0] > 0.15


def test_perfect_problems_stay_finite() -> None:
    sharp = torch.eye(3)[torch.arange(30) % 3]
    perfect = KnownProblem(sharp, torch.ones(30, dtype=torch.bool), 1.0, 1.0)
    found = calibrate([perfect], sharp, 1.0).apply(sharp)
    assert found.isfinite().all()
    assert found.amax(1).min() > 0.98
