"""The script that weighs old classes against new ones."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from autonovel.maths.metrics import joint_scores

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import cifar
import trade_off


def test_a_curve_moves_from_old_to_new() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = np.repeat(np.arange(4), 50)
    scores = torch.randn(200, 4, generator=generator) + 2.0 * torch.eye(4)[torch.from_numpy(truth)]
    points = trade_off.curve(scores, truth, n_known=2)
    told = joint_scores(truth, scores.argmax(1).numpy(), 2)["separate"]
    here = next(point for point in points if point["shift"] == 0)
    assert {name: here[name] for name in told} == pytest.approx(told, abs=1e-4)
    assert points[-1]["old"] < here["old"] < points[0]["old"]
    assert points[-1]["new"] > here["new"] > points[0]["new"]


def test_a_run_is_a_line_whose_middle_is_its_own_score(small_cifar: Path, tmp_path: Path) -> None:
    common = ["--root", str(small_cifar), "--unverified", "--device", "cpu"]
    places = ["--work", str(tmp_path), "--results", str(tmp_path / "runs.jsonl")]
    tiny = ["--epochs", "0", "1", "1", "--set", "model.width=4"]
    cifar.main(["fast-cifar10", *common, *places, "--seeds", "0", "--incremental-seeds", "1", *tiny])
    [run] = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    out = tmp_path / "curve.jsonl"
    trade_off.main([str(tmp_path / run["run"]), *common, "--results", str(out)])
    [row] = [json.loads(line) for line in out.read_text().splitlines()]
    here = next(point for point in row["curve"] if point["shift"] == 0)
    told = run["test"]["separate"]
    assert {name: here[name] for name in told} == pytest.approx(told, abs=1e-4)
