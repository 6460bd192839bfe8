"""The paper as data: every figure as in its LaTeX, every cell with a way to get it, nothing that needs torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autonovel.paper.cells import Plan, Value
from autonovel.paper.tables import CURVES, PICTURES, TABLES
from tests.paper.read_tex import read_tables

HERE = Path(__file__).parent
PAPER = HERE.parents[2] / "shared" / "paper" / "autonovel.tex"
FIGURES = json.loads((HERE / "figures.json").read_text())


def as_typed(value: Value | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:g}" + ("" if value.spread is None else f"±{value.spread:g}")


def plain(figure: str) -> str:
    """Without zeros at the end, which numbers do not keep."""
    return "±".join(part if part == "-" else f"{float(part):g}" for part in figure.split("±"))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_figures_of_the_paper(name):
    table = TABLES[name]
    ours = [[as_typed(cell.paper) for cell in table.cells if cell.row == row] for row in table.rows]
    assert ours == [[plain(figure) for figure in row] for row in FIGURES[table.label]]


def test_every_table_of_the_paper_is_there():
    assert [table.label for table in TABLES.values()] == list(FIGURES)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not beside the repository")
def test_the_figures_that_tables_are_held_against_are_those_of_the_paper():
    assert read_tables(PAPER.read_text()) == FIGURES


def test_curves_have_a_cell_for_every_place_on_their_axis():
    for curve in CURVES.values():
        assert len(curve.cells) == len(curve.rows) * len(curve.columns)
        assert all(isinstance(cell.way, Plan) and cell.paper is None for cell in curve.cells)


def test_a_plan_over_a_whole_benchmark_has_a_run_for_each_part():
    plan = Plan("omniglot:*", "omniglot")
    assert len(plan.parts()) == 20
    assert plan.parts()[0].data == "omniglot:Angelic"
    assert Plan("cifar10", "cifar10").parts() == [Plan("cifar10", "cifar10")]


def test_runs_that_tables_share_are_planned_alike():
    """The ablation, the comparison and the studies all show the method itself: it is trained once."""
    full = TABLES["ablation"].cell("full", "cifar10").way
    others = [("comparison", "full", "cifar10"), ("pairs", "rank", "cifar10"), ("pretraining", "rotation", "cifar10")]
    others += [("depth", "rotation", "layer4")]
    assert all(TABLES[name].cell(row, column).way == full for name, row, column in others)
    assert CURVES["figure-k"].cell("cifar10", "5").way == full
    assert PICTURES["tsne"][1] == (full,)


def test_tables_are_there_without_torch():
    code = "import sys, autonovel.paper.tables; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
