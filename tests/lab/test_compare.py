"""Task x variant x seed gives a row, once, and a part that fails is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from compare import by_kind, main

from tests.lab.conftest import Script

START = "model.width=4 model.size=8 pretrain.epochs=1 pretrain.batch=64"
TINY = f"{START} supervised.epochs=1 joint.epochs=1 joint.batch=64"


class Bench:
    """The command with its files in one place."""

    def __init__(self, root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.results, self.capsys = folder, folder / "rows.jsonl", capsys
        self.places = ["--root", root, "--unverified", "--work", folder / "work", "--results", self.results]

    def words(self, *words: object, tiny: str = TINY) -> list[str]:
        return [*map(str, (*words, *self.places)), "--device", "cpu", "--set", *tiny.split()]

    def __call__(self, *words: object, tiny: str = TINY) -> str:
        """What it says."""
        main(self.words(*words, tiny=tiny))
        return self.capsys.readouterr().out

    @property
    def rows(self) -> list[dict]:
        return [json.loads(line) for line in self.results.read_text().splitlines()]


@pytest.fixture
def bench(small_cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(small_cifar, tmp_path, capsys)


def test_rows_share_their_first_stages_are_made_once_and_a_twin_is_not_trained(bench: Bench) -> None:
    variants = ["--variants", "joint.pairs=rank", "joint.pairs=nearest"]
    done = bench("--tasks", "cifar10", "--recipe", "cifar10:fast", *variants, "--commit", "a")
    first, second = bench.rows
    assert [(row["row"], row["task"]) for row in bench.rows] == [(variant, "cifar10") for variant in variants[1:]]
    for stage in ("pretrain", "supervised"):
        assert first["seconds"][stage] == second["seconds"][stage]  # the same training, taken over
    assert not (bench.folder / "work" / first["key"]).exists()
    assert f"| cifar10 | joint.pairs=rank | 1 | {100 * first['acc_new']:.1f} |" in done
    again = bench("--tasks", "cifar10", "--recipe", "cifar10:fast", *variants[:2], "", "--commit", "a")
    assert "joint.pairs=rank on cifar10 seed 0: in " in again
    assert len(bench.rows) == 3
    twin = bench.rows[2]
    assert (twin["row"], twin["same_run_as"]) == ("", "joint.pairs=rank")
    assert [twin[name] for name in ("acc_new", "cluster_sizes", "seconds")] == [
        first[name] for name in ("acc_new", "cluster_sizes", "seconds")
    ]


def test_a_row_that_fails_is_said_and_leaves_the_others_alone(script: Script, bench: Bench) -> None:
    variants = ["model.backbone=smal", "joint.lr=0.2"]
    words = ["--tasks", "cifar10 hide=2", "--recipe", "cifar10:fast", "--variants", *variants]
    done = script("compare.py", *bench.words(*words))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "1 of 2 rows failed; what went wrong stands above."
    assert "seed 0: There is no backbone 'smal'" in done.stdout
    [row] = bench.rows
    assert (row["changed"], row["n_true"], sum(row["cluster_sizes"])) == (["joint.lr=0.2"], 2, 20)


def test_piles_without_labels_and_parts_of_a_benchmark_are_measured(bench: Bench) -> None:
    bench("neighbours", "--only", "kmeans", "--tasks", "cifar10 unlabelled each=4", tiny=START)
    [row] = bench.rows
    assert (row["table"], row["row"], row["method"]) == ("neighbours", "kmeans", "kmeans")
    assert (row["n_known"], len(row["cluster_sizes"]), sum(row["cluster_sizes"])) == (0, 10, 40)


def test_several_draws_are_one_line_with_mean_and_worst(bench: Bench) -> None:
    task = "cifar10 hide=2 left=2"
    done = bench("--tasks", task, "--recipe", "cifar10:fast", "--draws", 2, "--start-seed", 0)
    assert [row["task"] for row in bench.rows] == [f"{task} draw=0", f"{task} draw=1"]
    [line] = [line for line in done.splitlines() if line.startswith(f"| {task} |")]
    accuracies = [row["acc_new"] for row in bench.rows]
    cells = line.split(" | ")
    assert (cells[1], cells[2], cells[4]) == ("as it is", "2", f"{100 * min(accuracies):.1f}")
    assert cells[3].startswith(f"{100 * np.mean(accuracies):.1f} ± ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pairs", "there is no study 'pairs'; choose among demo, mixed"),
        ("sizes --only balance", "there is no row 'balance' in sizes"),
        ("", "name studies (demo, mixed, best, "),
        ("demo --number few", "--number is 'few'; give true, auto or a number"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_the_number_and_its_interval_are_held_against_the_truth() -> None:
    common = {"table": "", "row": "", "acc_new": 0.5, "wall_seconds": 2.0}
    found = [(8, [6, 9], 10), (12, [10, 13], 10)]
    rows = [
        common | {"task": f"a draw={i}", "n_new_estimated": n, "n_new_interval": interval, "n_true": true}
        for i, (n, interval, true) in enumerate(found)
    ]
    assert (
        by_kind(rows).splitlines()[-1] == "| a | as it is | 2 | 50.0 ± 0.0 | 50.0 | – | 20 ± 0 | 1 of 2 | – | 2 ± 0 |"
    )
