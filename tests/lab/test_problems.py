"""Known classes taken for new ones, and the table of what was found."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import main, semi_supervised

from tests.lab.conftest import Script

LABELS = np.repeat(np.arange(8), 15)
POINTS = (6 * np.eye(8)[LABELS] + np.random.default_rng(0).normal(size=(120, 8))).astype(np.float32)


def test_labelled_points_stay_with_their_class_and_new_ones_are_found() -> None:
    points, labels, shown = torch.from_numpy(POINTS), torch.from_numpy(LABELS), torch.from_numpy(LABELS % 15 < 3)
    shown[:3] = False  # old images in the pile
    unit = points / points.norm(dim=1, keepdim=True)
    found = semi_supervised(unit[shown], labels[shown], unit[~shown], 5, 3)
    assert found[:3].tolist() == [0, 0, 0]
    groups = found[3:].reshape(5, 15)
    assert (groups == groups[:, :1]).all()
    assert sorted(groups[:, 0].tolist()) == [3, 4, 5, 6, 7]


def test_a_table_by_kind_of_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "few.npz", features=POINTS, labels=LABELS, known=np.ones(120, bool))
    words = [str(tmp_path / "few.npz"), "--draws", "2", "--results", str(tmp_path / "rows.jsonl")]
    main([*words, "--kinds", "few known", "many"])
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["n_known"], row["n_true"]) for row in rows] == [("few known", 3, 5)] * 2
    assert all(row["acc"]["k-means"] == 1 for row in rows)
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| few few known | 2 |")]
    worst = min(row["acc"]["autonovel"] for row in rows)
    assert f"({100 * worst:.1f})" in line


def test_a_source_with_too_few_classes_is_said(script: Script, tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", features=POINTS, labels=LABELS % 3, known=np.ones(120, bool))
    done = script("problems.py", tmp_path / "few.npz", "--draws", 1)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "No source has enough classes.")
