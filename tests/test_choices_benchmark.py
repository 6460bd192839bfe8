"""The script that measures the paper's alternatives, and the page that shows what it measured."""

import json
import sys
from pathlib import Path

import pytest

from autonovel.settings.recipes import get_recipe

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import choices
import choosing_page as page
from results_page import ROOT, read_rows

TINY = (
    "model.width=4 model.size=8 pretrain.epochs=1 pretrain.batch=64 supervised.epochs=1 joint.epochs=1 joint.batch=64"
)


def measure(root: Path, folder: Path, *arguments: str) -> list[dict]:
    places = [
        "--root",
        str(root),
        "--unverified",
        "--results",
        str(folder / "out.jsonl"),
        "--work",
        str(folder / "runs"),
    ]
    choices.main([*arguments, *places, "--device", "cpu", "--set", *TINY.split()])
    file = folder / "out.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_rows_share_their_first_stages_and_the_same_command_continues(
    small_cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        measure(small_cifar, tmp_path, "pairs", "--only", "rank", "--prepare") == []
    )  # trains what is shared, writes no line
    first = measure(small_cifar, tmp_path, "pairs", "--only", "rank", "nearest")
    assert [row["row"] for row in first] == ["rank", "nearest"]
    assert first[0]["seconds"]["pretrain"] == first[1]["seconds"]["pretrain"]  # the same training, taken over
    assert first[0]["seconds"]["supervised"] == first[1]["seconds"]["supervised"]
    both = measure(small_cifar, tmp_path, "pairs", "depth", "--only", "nearest", "heads")
    assert [row["run"] for row in both] == ["pairs rank", "pairs nearest", "depth heads"]
    assert both[2]["seconds"]["pretrain"] == first[0]["seconds"]["pretrain"]
    assert "pairs nearest: in " in capsys.readouterr().out
    lines = page.measured("pairs", both).splitlines()
    assert f"| `rank` | 90.4 | {100 * both[0]['acc_new']:.1f} | 1 |" in "\n".join(lines)
    assert "| `kmeans-batch` | 42.9 | – | 0 | – |" in lines
    assert lines[-1].startswith("Measured: preset `fast` on cpu")
    assert lines[-1].endswith("yet: `cosine`, `soft-15`, `soft-5`, `kmeans-all`, `kmeans-batch`.")


def test_a_row_of_pre_training_has_raw_features_and_speed_and_a_failure_leaves_the_others_alone(
    small_cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "start-rotation-fast-seed0").write_text("in the way")
    with pytest.raises(SystemExit):
        measure(small_cifar, tmp_path, "pretraining", "--only", "rotation", "simclr")
    assert "FAILED pretraining rotation" in capsys.readouterr().out
    [row] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (row["row"], row["paper"], row["paper_raw"]) == ("simclr", 89.0, 84.7)
    assert 0.2 <= row["acc_raw"] <= 1
    assert row["images_per_second"] > 0
    assert f"| {100 * row['acc_raw']:.1f} | {row['images_per_second']} |" in page.measured("pretraining", [row])


def test_a_row_of_two_tables_is_trained_once(
    small_cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(small_cifar, tmp_path, "pretraining", "--only", "rotation", "--commit", "first")
    for _ in range(2):  # the second time there is nothing to do
        rows = measure(small_cifar, tmp_path, "depth", "--only", "layer4", "--commit", "later")
        assert [row["run"] for row in rows] == ["pretraining rotation", "depth layer4"]
    same = ("acc_new", "wall_seconds", "commit", "cluster_sizes", "seconds")
    assert [rows[1][name] for name in same] == [rows[0][name] for name in same]
    assert (rows[1]["same_run_as"], rows[1]["table"], rows[1]["paper"]) == ("pretraining rotation", "depth", 90.4)
    assert "acc_raw" in rows[0]
    assert "acc_raw" not in rows[1]
    assert not (tmp_path / "runs" / "depth-layer4-fast-seed0").exists()


def test_each_row_changes_what_it_is_named_for() -> None:
    base = get_recipe("cifar10", "fast")
    soft = choices.recipe_of("pairs", "soft-15", base).joint
    assert (soft.pairs, soft.top_k) == ("soft", 15)
    assert choices.recipe_of("pairs", "kmeans-all", base).joint.pairs == "kmeans-all"
    assert choices.recipe_of("pairs", "rank", base) == choices.recipe_of("pretraining", "rotation", base) == base
    assert choices.recipe_of("depth", "layer4", base) == base
    deep = choices.recipe_of("depth-moco-v2", "all", base)
    assert (deep.pretrain.method, deep.pretrain.batch) == ("moco-v2", 512)
    assert deep.supervised.train_from == deep.joint.train_from == "all"


def test_a_row_that_there_is_not_is_refused(small_cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        measure(small_cifar, tmp_path, "pairs", "--only", "ranks")


def test_the_page_is_current() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text()
    rows = read_rows(ROOT / "results").get("choices", [])
    assert page.render(text, rows) == text, "run python benchmarks/choosing_page.py"


def test_seeds_are_one_line_and_other_conditions_another() -> None:
    row = {"table": "depth", "row": "all", "preset": "fast", "commit": "abc", "device": "cuda: X"}
    seeds = [row | {"seed": s, "acc_new": acc, "seconds": {"joint": 5, "total": 9}} for s, acc in enumerate((0.8, 0.9))]
    text = page.measured("depth", [*seeds, seeds[0] | {"commit": "def", "acc_new": 0.5}])
    assert "| `all` | 88.9 | 85.0 ± 7.1 | 2 | 5 ± 0 |" in text
    assert "| `all` | 88.9 | 50.0 | 1 | 5 |" in text
    assert "preset `fast` on X, commit abc; preset `fast` on X, commit def." in text


def test_the_papers_figures_are_those_of_its_tables() -> None:
    assert page.PAPER["pairs"] == {
        "rank": 90.4, "soft-5": 62.2, "soft-15": 89.7, "cosine": 90.1, "nearest": 90.2, "kmeans-batch": 42.9,
        "kmeans-all": 62.2,
    }  # fmt: skip
    for table, values in page.PAPER.items():  # the same run stands in two tables
        if table.startswith("depth"):
            assert values["layer4"] == page.PAPER["pretraining"][table.partition("-")[2] or "rotation"]
