"""The script that compares settings of clustering without labels."""

import json
import sys
from pathlib import Path

import pytest
import torch

from autonovel.settings.recipes import get_recipe, with_fields
from tests.small_data import write_small_cifar100

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import tune_cluster

from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.models.net import build

TINY = [f"--set={axis}" for axis in "model.width=4 joint.epochs=1 joint.batch=16".split()]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_cifar100(tmp_path_factory.mktemp("cifar100"), per_class=4)


def test_every_draw_is_a_line(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    places = ["--root", str(root), "--unverified", "--starts", str(tmp_path / "starts"), "--out", str(out)]
    tune_cluster.main(
        [*places, "--device", "cpu", "--classes", "3", "--draws", "0", "1", *TINY, "--set=pretrain.epochs=1"]
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["draw"] for row in rows) == [0, 1]
    assert all(sum(row["cluster_sizes"]) == 12 for row in rows)
    mean = sum(row["acc_new"] for row in rows) / 2
    assert f"ACC mean {mean:.3f}" in capsys.readouterr().out


def test_a_fresh_block_is_drawn_again_and_the_others_stay(root: Path) -> None:
    data, _ = load_benchmark("cifar100", root, unverified=True)
    recipe = with_fields(get_recipe("cifar100"), {"model.width": 4})
    torch.manual_seed(1)
    state = build(recipe.model, channels=3, size=32).state_dict()
    fresh = tune_cluster.with_fresh_block(state, "layer4", recipe, data, seed=0)
    assert fresh.keys() == state.keys()
    for name, value in state.items():
        is_drawn = "layer4" in name and value.ndim == 4  # batch-norm starts alike every time
        assert torch.equal(fresh[name], value) != is_drawn, name
    with pytest.raises(SystemExit, match="no block layer9"):
        tune_cluster.with_fresh_block(state, "layer9", recipe, data, seed=0)
