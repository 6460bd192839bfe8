"""What was measured lies in lines of results; a cell finds its value by its plan."""

import json
from pathlib import Path

import pytest

from autonovel.paper.cells import Plan, Row, table
from autonovel.paper.earlier import EARLIER
from autonovel.paper.measured import FILE, Measured, Results, about, as_line, read
from autonovel.paper.tables import CURVES, NUMBER_OMNIGLOT, TABLES

HERE = Path(__file__).parent
PLAN = Plan("cifar10", "cifar10")


def run(plan, value, seed=0, scale="paper", **more):
    return Measured(about(plan), scale, seed, {plan.score: value}, **more)


def shown(results, plan=PLAN, scale="paper", unit="%"):
    found = results.shown(plan, scale, unit)
    return None if found is None else (round(found.mean, 6), len(found.values))


def test_a_cell_is_the_mean_over_seeds_of_the_newest_run_of_each():
    results = Results([run(PLAN, 0.5), run(PLAN, 0.7), run(PLAN, 0.9, seed=1)])
    assert shown(results) == (80.0, 2)
    assert results.shown(PLAN, "paper", "%").spread == pytest.approx(14.142, abs=1e-3)
    assert Results([run(PLAN, 0.5)]).shown(PLAN, "paper", "%").spread is None


def test_seeds_of_the_first_stages_count_as_runs_of_their_own():
    results = Results([run(PLAN, 0.5), run(PLAN, 0.7, start_seed=1)])
    assert shown(results) == (60.0, 2)


def test_a_run_of_another_plan_or_scale_does_not_count():
    assert shown(Results([run(Plan("cifar10", "cifar10", {"incremental": True}), 0.5)])) is None
    assert shown(Results([run(PLAN, 0.5, scale="fast")])) is None


def test_a_failed_run_has_no_value_and_says_why():
    results = Results([run(PLAN, 0.5), Measured(about(PLAN), "paper", 0, {}, failed="out of memory")])
    assert shown(results) == (50.0, 1)
    assert results.failed(PLAN, "paper") == "out of memory"


def test_a_mean_over_parts_waits_for_all_of_them():
    plan = Plan("imagenet:*", "imagenet")
    some = [run(part, value) for part, value in zip(plan.parts(), (0.2, 0.4, 0.9), strict=True)]
    assert shown(Results(some[:2]), plan) is None
    assert shown(Results(some), plan) == (50.0, 1)


def test_one_run_gives_every_score_that_it_has():
    scores = {"test.separate.old": 0.9, "test.separate.new": 0.8}
    results = Results([Measured(about(PLAN), "paper", 0, scores)])
    assert shown(results, Plan("cifar10", "cifar10", score="test.separate.new")) == (80.0, 1)


def test_the_mean_error_of_counts_is_over_all_alphabets():
    plans = [cell.way for cell in NUMBER_OMNIGLOT.cells if cell.column == "full" and isinstance(cell.way, Plan)]
    paper = [cell.paper.mean for cell in NUMBER_OMNIGLOT.cells if cell.column == "full" and isinstance(cell.way, Plan)]
    runs = [run(plan, value) for plan, value in zip(plans, paper, strict=True)]
    cell = NUMBER_OMNIGLOT.cell("error", "full")
    assert Results(runs).cell(NUMBER_OMNIGLOT, cell).mean == pytest.approx(4.6)
    assert Results(runs[1:]).cell(NUMBER_OMNIGLOT, cell) is None


def test_lines_come_back_as_they_were_written_and_a_line_that_a_kill_cut_off_is_left_out(tmp_path):
    line = run(PLAN, 0.5, where={"commit": "abc"}, seconds={"joint": 3.0}, key="k")
    (tmp_path / FILE).write_text(as_line(line) + "\n" + as_line(line)[:40])
    assert read(tmp_path) == [line]


def test_lines_of_earlier_experiments_are_shown_with_their_commit(tmp_path):
    row = {"run": "paper-cifar10-seed0", "commit": "eb9c91d", "seed": 0, "acc_new": 0.91444, "device": "cuda"}
    row |= {"kmeans": {"supervised_features": 0.7}, "seconds": {"joint": 100.0}}
    (tmp_path / "cifar.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"commit": "other"}) + "\n")
    results = Results(read(tmp_path, EARLIER))
    full, kmeans = TABLES["ablation"].cell("full", "cifar10"), TABLES["comparison"].cell("kmeans-ss", "cifar10")
    found = results.cell(TABLES["ablation"], full)
    assert (found.values, found.told("commit")) == ((pytest.approx(91.444),), ["eb9c91d"])
    assert results.cell(TABLES["comparison"], kmeans).mean == pytest.approx(70)


def test_every_earlier_line_belongs_to_a_cell():
    tables = [*TABLES.values(), *CURVES.values()]
    planned = {
        about(part) for t in tables for cell in t.cells if isinstance(cell.way, Plan) for part in cell.way.parts()
    }
    assert [entry for entry in EARLIER if about(entry.plan) not in planned] == []


def test_a_row_with_too_few_figures_is_refused():
    with pytest.raises(ValueError, match="1 figures for 2 columns"):
        table("t", "t", "t", {"a": "A", "b": "B"}, {"r": Row("row", "1.0", lambda column: PLAN)})
