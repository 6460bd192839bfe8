"""The script that compares settings on OmniGlot's known alphabets."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from autonovel.data.benchmarks.splits import load_benchmark
from tests.small_data import write_small_omniglot

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import tune_omniglot


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    known = {"Latin": 3, "Greek": 4, "Cyrillic": 3}
    return write_small_omniglot(tmp_path_factory.mktemp("omniglot"), background=known, drawings=10)


def test_an_alphabet_as_the_pile_keeps_its_drawings_and_the_labels_of_all_others(root: Path) -> None:
    images, _ = load_benchmark("omniglot", root, unverified=True)
    latin = [number for number, name in enumerate(images.class_names) if name.startswith("Latin/")]
    data, truth = tune_omniglot.as_pile(images, latin)
    assert data.n_known == 7
    assert not any(name.startswith("Latin/") for name in data.class_names)
    was = np.array([images.class_names[label] if label >= 0 else "" for label in images.labels])
    is_there = np.array([bool(name) for name in was])
    assert [truth.class_names[label] for label in truth.labels] == was[is_there].tolist()
    assert np.array_equal(data.is_labelled, [not name.startswith("Latin/") for name in was[is_there]])


def test_each_setting_is_tried_on_each_alphabet(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    places = ["--root", str(root), "--unverified", "--work", str(tmp_path / "runs"), "--out", str(out)]
    small = ["--device", "cpu", "--together", "1", "--epochs", "1", "0", "1", "--alphabets", "Latin", "Cyrillic"]
    narrow = ["--base", "pretrain.ways=2", "pretrain.episodes=1", "model.width=4"]
    tune_omniglot.main([*places, *small, *narrow, "--set", "joint.top_k=3,5"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    tried = [(row["settings"]["joint.top_k"], row["alphabet"]) for row in rows]
    assert tried == [(3, "Latin"), (3, "Cyrillic"), (5, "Latin"), (5, "Cyrillic")]
    assert all(sum(row["cluster_sizes"]) == 30 for row in rows)
    mean = (rows[0]["acc_new"] + rows[1]["acc_new"]) / 2
    assert f"ACC mean {mean:.3f}" in capsys.readouterr().out


def test_first_stages_are_compared_by_kmeans(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    places = ["--root", str(root), "--unverified", "--work", str(tmp_path / "runs"), "--out", str(out)]
    small = ["--device", "cpu", "--together", "1", "--epochs", "1", "0", "1", "--alphabets", "Latin", "Cyrillic"]
    narrow = ["--base", "pretrain.ways=2", "pretrain.episodes=1", "model.width=4"]
    tune_omniglot.main([*places, *small, *narrow, "--first-stage", "--set", "pretrain.turns=False,True"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["settings"]["pretrain.turns"] for row in rows] == [False, True]
    for row in rows:
        each = [acc for accs in row["kmeans_by_alphabet"].values() for acc in accs]
        assert list(row["kmeans_by_alphabet"]) == ["Latin", "Cyrillic"]
        assert len(each) == 10
        assert row["kmeans"] == pytest.approx(np.mean(each))
        assert 1 / 3 <= min(each) <= max(each) <= 1
        assert row["groups"] == pytest.approx(np.mean(list(row["groups_by_alphabet"].values())))
        assert 1 / 3 <= row["groups"] <= 1
