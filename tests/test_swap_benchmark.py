"""The script that compares variants of swapped prediction."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from autonovel.base.errors import InputError
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.runs.folder import load
from autonovel.runs.merging import read_merging

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import swap
from common import combinations

TINY = (
    "model.width=4 supervised.batch=32 joint.batch=64 joint.swap.hidden=16 joint.swap.projection=8 joint.swap.heads=2"
)


def lines_of(root: Path, folder: Path, *arguments: str) -> list[dict]:
    places = ["--root", str(root), "--unverified", "--out", str(folder / "out.jsonl"), "--work", str(folder / "runs")]
    swap.main([*places, "--device", "cpu", "--epochs", "0", "1", "1", *arguments])
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_each_variant_is_a_line_and_the_first_stages_are_shared(small_cifar: Path, tmp_path: Path) -> None:
    more = f"{TINY} joint.swap.divergence=0.2 joint.swap.divergence_bound=-8"
    plain, apart, wrong = lines_of(small_cifar, tmp_path, "--variant", TINY, more, "joint.swap.by_class=2")
    assert "divergence" not in plain["losses"]
    assert apart["losses"]["divergence"] < 0
    assert plain["seconds"]["supervised"] == apart["seconds"]["supervised"]  # the same training, taken over
    assert wrong["error"].startswith("recipe.joint.swap.by_class is 2")
    for row in (plain, apart):
        table = np.array(row["confusion"])
        assert table.shape == (5, 5)
        assert table.sum() == sum(row["sizes"]) == 50
        assert row["acc"] == pytest.approx(np.trace(table) / 50)
        assert row["recall"] == pytest.approx(np.diag(table) / 10)
        assert set(row["leaving"]) == {"answer", *row["acc_others"]}


def test_links_leave_clusters_that_cut_a_class() -> None:
    generator = torch.manual_seed(0)
    classes = torch.arange(4).repeat_interleave(30)
    points = 10 * torch.eye(4, 8)[classes] + torch.randn(120, 8, generator=generator)
    known, pile = classes < 2, classes >= 2
    nothing = torch.empty(0)
    said = swap.Said({}, nothing, nothing, points[pile], points[known], classes[known].numpy(), nothing, nothing)
    right = classes[pile] - 2
    answers = {"right": right, "with a gap": 5 * right, "cut": torch.arange(60) % 2, "one": torch.zeros_like(right)}
    shares = swap.leaving_links(said, answers, 2, seed=0)
    assert shares["right"] == shares["with a gap"] == shares["one"] == 0
    assert shares["cut"] == pytest.approx(0.5, abs=0.1)


def test_a_value_in_brackets_is_one() -> None:
    assert combinations(["a=1,2", "b=(0.1,0.4)"]) == [{"a": 1, "b": (0.1, 0.4)}, {"a": 2, "b": (0.1, 0.4)}]


def test_uneven_sizes_and_hidden_known_classes(small_cifar: Path, tmp_path: Path) -> None:
    [uneven] = lines_of(small_cifar, tmp_path / "a", "--variant", TINY, "--sizes", "10,8,6,4,2")
    assert [sum(row) for row in uneven["confusion"]] == [10, 8, 6, 4, 2]
    [hidden] = lines_of(small_cifar, tmp_path / "b", "--variant", TINY, "--hide", "2,3")
    assert len(hidden["sizes"]) == 7
    assert sum(hidden["sizes"]) == 70
    assert np.array(hidden["confusion"]).sum() == 20  # only the hidden known classes are scored
    few = ["--known", "0,1,2,4", "--hide", "4,2", "--alone"]
    [chosen] = lines_of(small_cifar, tmp_path / "d", "--variant", TINY, *few)
    assert (len(chosen["sizes"]), sum(chosen["sizes"])) == (2, 20)
    assert load(chosen["run"]).summary["n_known"] == 2
    assert (chosen["known"], chosen["hidden"]) == ([0, 1, 2, 4], [4, 2])
    [cut] = lines_of(small_cifar, tmp_path / "f", "--variant", TINY, *few, "--sizes", "3,10")
    assert [sum(row) for row in cut["confusion"]] == [10, 3]  # the 4, which is named first, has three images
    with pytest.raises(InputError, match="--sizes gives 3 sizes for 2 classes"):
        lines_of(small_cifar, tmp_path / "g", *few, "--sizes", "3,10,4")
    with pytest.raises(InputError, match="--hide names 3, which is not among"):
        lines_of(small_cifar, tmp_path / "e", "--known", "1,2,4", "--hide", "3,4")
    with pytest.raises(InputError, match="All classes of mnist are known; hide some"):
        lines_of(small_cifar, tmp_path / "e", "--data", "mnist", "--hide", "3,4")


def test_some_known_classes_are_left_out_with_their_images_alone(small_cifar: Path) -> None:
    data, truth = load_benchmark("cifar10", small_cifar, unverified=True)
    kept, hidden = swap.only(data, [4, 1, 3], [3, 4])
    assert kept.class_names == tuple(data.class_names[c] for c in (1, 3, 4))
    assert hidden == [1, 2]
    was = [data.class_names[label] for label in data.labels[np.isin(data.labels, [1, 3, 4])]]
    assert [kept.class_names[label] for label in kept.labels if label >= 0] == was
    assert (kept.labels < 0).sum() == (data.labels < 0).sum()


def test_another_number_of_clusters_and_what_is_kept(small_cifar: Path, tmp_path: Path) -> None:
    [row] = lines_of(small_cifar, tmp_path, "--variant", TINY, "--n-new", "8", "--keep", str(tmp_path / "kept"))
    assert (row["asked"], len(row["sizes"]), len(row["acc_by_head"])) == (8, 8, 2)
    right = [name for name in row["numbers"] if name.endswith("right_number")]
    assert right
    assert all(row["numbers"][name] <= 5 for name in right)
    assert row["numbers"]["merged"] <= row["numbers"]["kmeans"] <= 8
    assert all(0.2 <= acc <= 1 for acc in row["acc_others"].values())
    assert {kind: [len(head) for head in heads] for kind, heads in row["between"].items()} == {
        "new": [7, 7],
        "over": [23, 23],
    }
    said = read_merging(load(row["run"]))
    assert said is not None
    assert len(said.order) == 7
    assert said.n_new == row["n_new_by_heads"] == load(row["run"]).summary["n_new_by_heads"]
    [file] = (tmp_path / "kept").iterdir()
    with np.load(file) as kept:
        shapes = {name: kept[name].shape for name in ("new", "over", "probabilities", "alike", "features", "before")}
        assert shapes == {
            "new": (2, 50),
            "over": (2, 50),
            "probabilities": (50, 8),
            "alike": (2 * 8 + 2 * 24, 2 * 8 + 2 * 24),
            "features": (50, 32),
            "before": (50, 32),
        }
        assert kept["alike"].diagonal() == pytest.approx(1, abs=1e-3)
        assert (kept["probabilities"].argmax(1) == kept["new"][kept["losses"].argmin()]).all()
        assert sorted(kept["classes"].tolist()) == np.repeat(range(5, 10), 10).tolist()
        assert len(kept["labelled"]) == len(kept["labels"]) == 50
