"""The tables of evidence say what lab/rows holds."""

import json
import math
from pathlib import Path

import pages
import pytest

from tests.lab.conftest import Script


@pytest.mark.parametrize("page", sorted((pages.ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_page_is_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert pages.render(text) == text, "run python lab/pages.py"


def test_the_text_around_a_table_stays(script: Script, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"recipe": "best", "acc_new": 0.5}) + "\n\n")
    (tmp_path / "page.md").write_text("before\n<!-- table: a -->\nold\n<!-- end -->\nafter\n")
    done = script("pages.py", "--rows", tmp_path, tmp_path / "page.md")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("before\n<!-- table: a -->\n\n| run |")
    assert text.endswith("\n\n<!-- end -->\nafter\n")
    assert "old\n" not in text
    assert "| `best` | 50.0 | 1 |" in text


def test_a_table_without_an_end_or_of_another_name_is_refused(script: Script, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: cifar -->\n")
    done = script("pages.py", page)
    assert (done.returncode, "has no end" in done.stderr) == (1, True)
    page.write_text("<!-- table: sifar -->\n<!-- end -->\n")
    done = script("pages.py", page)
    assert (done.returncode, "There are no rows 'sifar'; choose among choices, cifar" in done.stderr) == (1, True)


def test_seeds_of_one_run_are_one_row() -> None:
    run = {"benchmark": "cifar10", "recipe": "best", "preset": "fast", "commit": "abc", "device": "cuda: X"}
    rows = [
        run | {"seed": s, "run": f"fast-seed{s}", "acc_new": a, "wall_seconds": 10} for s, a in enumerate([0.9, 0.94])
    ]
    rows.append(run | {"seed": 0, "run": "fast-seed0", "acc_new": 0.5, "commit": "def"})
    rows.append(run | {"seed": 2, "run": "fast-seed2", "acc_new": 0.6, "changed": ["joint.epochs=7"]})
    lines = pages.runs_table(rows).splitlines()[2:]
    deviation = 100 * math.sqrt((0.02**2 + 0.02**2) / (2 - 1))
    assert len(lines) == 3
    assert f"| 92.0 ± {deviation:.1f} | 2 |" in lines[0]
    assert "| 10 ± 0 | X | abc |" in lines[0]
    assert "| 50.0 | 1 |" in lines[1]
    assert "with `joint.epochs=7`" in lines[2]


def test_the_kindest_rule_that_all_have_is_shown_and_named() -> None:
    run = {"recipe": "best", "acc_new": 0.5}
    fixed, both = {"old": 0.1, "new": 0.2, "all": 0.3}, {"old": 0.4, "new": 0.5, "all": 0.6}
    assert "| 40.0 / 50.0 / 60.0 |" in pages.runs_table([run | {"test": {"fixed": fixed, "separate": both}}])
    assert "| 10.0 / 20.0 / 30.0 (fixed) |" in pages.runs_table([run | {"pile": {"fixed": fixed}}])
    assert "| – |" in pages.runs_table([run | {"test": None}])


def test_errors_of_an_estimate_are_counted_by_hand() -> None:
    found = [(8, [6, 9], 9), (4, None, 6), (3, [3, 3], 5)]
    rows = [{"n_true": t, "estimates": {"tree": {"n_new": n, "interval": i}}} for n, i, t in found]
    assert "| `tree` | 3 | 1.67 | 1 of 2 |" in pages.estimates_table(rows)


def test_problems_are_a_line_for_each_kind_with_mean_and_worst() -> None:
    common = {
        "source": "birds",
        "kind": "even",
        "features": "x",
        "commit": "abc",
        "n_true": 10,
        "calibration_error": 0.02,
        "reliability": [{"probability": 0.95, "right": 0.9, "images": 3}],
    }
    found = [(0.9, 8, [6, 9]), (0.7, 10, [9, 12])]
    rows = [
        common | {"acc": {"k-means": 0.5, "autonovel": a}, "counted": n, "interval": i, "seconds": {"counted": 2.0}}
        for a, n, i in found
    ]
    last = {"reliability": [{"probability": p, "right": 1.0, "images": 1} for p in (0.96, 0.5)]}
    rows.append(common | last | {"acc": {"k-means": 0.2, "autonovel": 0.8}, "seconds": {}})
    # 6 x (0.90 - 0.95) + 1 x (1 - 0.96) in one part, 1 x (1 - 0.5) in another, of 8 images
    pooled = (0.3 - 0.04 + 0.5) / 8
    start = "| birds even | 3 | 40.0 (20.0) | 80.0 (70.0) | 10 (20) | 1 of 2 | 1 | 0.020 (0.020)"
    line = f"{start} | {pooled:.3f} | 2.0 (2.0) | x, abc |"
    assert pages.whole_file(rows).splitlines()[-1] == line


def test_rows_of_settings_that_are_gone_are_only_in_the_file() -> None:
    run = {"recipe": "best", "acc_new": 0.5}
    gone = [run | {"changed": ["joint.queue_of_targets=3"]}, run | {"recipe": "cluster-contrast"}]
    shown = pages.whole_file([run, run | {"changed": ["joint.regroups=9"]}, *gone])
    assert len([line for line in shown.splitlines() if line.startswith("| `best`")]) == 2
    assert shown.endswith("Only in the file, of other versions or of settings that are gone: 2.")


@pytest.mark.parametrize("file", sorted(pages.ROWS.glob("*.json*")), ids=lambda file: file.name)
def test_every_row_can_be_read(file: Path) -> None:
    if file.suffix == ".json":
        assert json.loads(file.read_text())
    else:
        assert all(isinstance(row, dict) for row in pages.read_rows(file))


def test_of_a_run_that_several_versions_made_the_one_with_most_seeds_is_shown() -> None:
    run = {"recipe": "best", "run": "fast", "acc_new": 0.9}
    rows = [run | {"commit": "abc", "seed": s} for s in (0, 1)] + [
        run | {"commit": "def"},
        run | {"run": "other", "commit": "abc"},
    ]
    assert pages.firmest(rows) == [*rows[:2], rows[3]]
    assert pages.firmest([rows[2], run | {"commit": "ghi"}]) == [run | {"commit": "ghi"}]
    assert "Only in the file, of other versions or of settings that are gone: 1." in pages.whole_file(rows)
