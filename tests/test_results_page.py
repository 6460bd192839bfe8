"""docs/results.md says what results/ holds."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "benchmarks" / "results_page.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(page: ModuleType) -> None:
    text = (ROOT / "docs" / "results.md").read_text()
    assert page.render(text, page.read_rows(ROOT / "results")) == text, "run python benchmarks/results_page.py"


def test_seeds_of_one_run_are_one_row(page: ModuleType) -> None:
    run = {"benchmark": "cifar10", "recipe": "best", "preset": "fast", "commit": "abc", "device": "cuda: X"}
    rows = [
        run | {"seed": s, "run": f"fast-seed{s}", "acc_new": a, "wall_seconds": 10} for s, a in enumerate([0.9, 0.94])
    ]
    rows.append(run | {"seed": 0, "run": "fast-seed0", "acc_new": 0.5, "commit": "def"})
    rows.append(run | {"seed": 2, "run": "fast-seed2", "acc_new": 0.6, "changed": ["joint.epochs=7"]})
    lines = page.runs_table(rows).splitlines()[2:]
    deviation = 100 * math.sqrt((0.02**2 + 0.02**2) / (2 - 1))
    assert len(lines) == 3
    assert f"| 92.0 ± {deviation:.1f} | 2 |" in lines[0]
    assert "| 10 ± 0 | X | abc |" in lines[0]
    assert "| 50.0 | 1 |" in lines[1]
    assert "with `joint.epochs=7`" in lines[2]


def test_the_kindest_rule_that_all_have_is_shown_and_named(page: ModuleType) -> None:
    run = {"recipe": "best", "acc_new": 0.5}
    fixed, both = {"old": 0.1, "new": 0.2, "all": 0.3}, {"old": 0.4, "new": 0.5, "all": 0.6}
    assert "| 40.0 / 50.0 / 60.0 |" in page.runs_table([run | {"test": {"fixed": fixed, "separate": both}}])
    assert "| 10.0 / 20.0 / 30.0 (fixed) |" in page.runs_table([run | {"pile": {"fixed": fixed}}])
    assert "| – |" in page.runs_table([run | {"test": None}])


def test_errors_of_an_estimate_are_counted_by_hand(page: ModuleType) -> None:
    found = [(8, [6, 9], 9), (4, None, 6), (3, [3, 3], 5)]
    rows = [{"n_true": t, "estimates": {"tree": {"n_new": n, "interval": i}}} for n, i, t in found]
    assert "| `tree` | 3 | 1.67 | 1 of 2 |" in page.estimates_table(rows)


def test_alphabets_with_the_same_settings_are_one_table_until_one_repeats(page: ModuleType) -> None:
    row = {"acc_true": 0.9, "acc_estimated": 0.8, "estimator": "text", "seed": 0, "device": "X", "commit": "abc"}
    row |= {"n_true": 5, "estimates": {"text": {"n_new": 3, "interval": [2, 6]}}, "epochs": [1, 1, 1]}
    long = row | {"kmeans": {"pretrain": 0.7, "supervised": 0.6}}
    short = row | {"kmeans": {"pretrain": 0.8}, "epochs": [1, 0, 1], "acc_estimated": None}
    rows = [long | {"alphabet": "A"}, short | {"alphabet": "A"}, long | {"alphabet": "B", "commit": "def"}]
    rows += [
        long | {"alphabet": "B", "commit": "ghi", "acc_true": 0.5},
        short | {"alphabet": "B", "acc_estimated": 0.7},
    ]
    first, again, last = page.alphabets_table(rows).split(" alphabets, seed 0, X, commit ")[1:]
    assert first.startswith("abc, def;")
    assert "| k-means after `supervised` | 60.0 ± 0.0 |" in first
    assert "| `text` | 2 | 2.00 | 2 of 2 |" in first
    assert again.startswith("ghi;")
    assert "| true number given | 50.0 |" in again
    assert "supervised" not in last
    assert "| number estimated (`text`), 1 alphabets | 70.0 |" in last


def test_the_best_price_of_new_classes_is_that_of_the_mean(page: ModuleType) -> None:
    def curve(*everything: float) -> dict:
        points = [{"shift": float(i), "old": 0.9, "new": 0.1 * i, "all": a} for i, a in enumerate(everything)]
        return {"recipe": "cifar10", "acc_new": 0.9, "commit": "abc", "curve": points}

    rows = [curve(0.5, 0.7, 0.6) | {"run": "seed0"}, curve(0.5, 0.7, 0.9) | {"run": "seed1"}]
    [line] = page.curves_table(rows).splitlines()[2:]
    assert "| 2 | 90.0 ± 0.0 / 0.0 ± 0.0 / 50.0 ± 0.0 | 90.0 ± 0.0 / 20.0 ± 0.0 / 75.0 ± 21.2 | 2 | abc |" in line


def test_rows_that_share_their_conditions_share_a_line(page: ModuleType) -> None:
    rows = [{"recipe": "best", "note": "shared", "commit": "abc", "run": f"run-{letter}"} for letter in "abcd"]
    assert page.notes(rows) == "- 4 rows, abc: shared"
    assert page.notes(rows[:2]).count("run-") == 2
    assert page.notes([*rows, rows[0] | {"note": "alone"}]).splitlines()[1].endswith("abc: alone")


def test_the_text_around_the_tables_stays(page: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.jsonl").write_text(json.dumps({"recipe": "best", "acc_new": 0.5}) + "\n\n")
    (tmp_path / "page.md").write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.main(["--results", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old\n" not in text
    assert "| `best` | 50.0 | 1 |" in text


def test_a_page_without_a_place_for_tables_is_refused(page: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no place for the tables"):
        page.render("nothing", {})
