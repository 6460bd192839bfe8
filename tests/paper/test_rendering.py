"""Tables as text: ours beside the paper's, signs for every hole, reasons for every large difference."""

import csv
import io
import json

import pytest

from autonovel.paper.cells import Plan
from autonovel.paper.measured import Measured, Results, about
from autonovel.paper.rendering import FAR, SIGNS, Page, reasons, rendered, whole_page
from autonovel.paper.tables import ABLATION, CLUSTERING, CURVES, PAIRS, TABLES

FULL = Plan("cifar10", "cifar10")


def page(*values, scale="paper", plan=FULL, scales=("paper", "fast")):
    where = {"commit": "abc1234", "device": "cuda: a GPU"}
    runs = [Measured(about(plan), scale, seed, {plan.score: v}, where=where) for seed, v in enumerate(values)]
    return Page(Results(runs), scales)


def test_a_cell_shows_ours_over_the_papers():
    assert page(0.91, 0.92).cell(ABLATION, "full", "cifar10") == "**91.5 ± 0.7 (2)**<br>90.4 ± 0.5"
    assert page(0.91).cell(ABLATION, "full", "cifar10") == "**91.0**<br>90.4 ± 0.5"
    assert page(0.9, scale="fast").cell(ABLATION, "full", "cifar10") == "**90.0** <sup>f</sup><br>90.4 ± 0.5"


def test_holes_have_signs():
    empty = page()
    assert empty.cell(ABLATION, "full", "cifar10").startswith("–<br>")
    assert empty.cell(ABLATION, "full", "svhn").startswith("d<br>")
    assert empty.cell(CLUSTERING, "dec", "cifar10-both").startswith("<sup>q</sup><br>30.1")
    assert {"q", "d", "–", "f", "s", "b", "r"} == set(SIGNS)


def test_the_longer_schedule_counts_where_both_were_run():
    runs = [Measured(about(FULL), scale, 0, {"acc_new": v}) for scale, v in (("fast", 0.8), ("paper", 0.9))]
    shown = Page(Results(runs)).shown(ABLATION, ABLATION.cell("full", "cifar10"))
    assert (shown.mean, shown.scale) == (90.0, "paper")


def test_a_difference_is_named_with_its_reason():
    plan = PAIRS.cell("soft-5", "cifar10").way
    text = page(0.914, plan=plan).far(PAIRS)
    assert "soft ranking, k = 5, CIFAR-10: +29.2. Not confirmed" in text
    assert page(0.90 + FAR / 200).far(PAIRS) == ""


def test_scale_small_calls_digits_digits():
    plan = Plan("digits-split", "digits-split")
    own = page(0.6, scale="small", plan=plan, scales=("small",))
    text = rendered(own, [ABLATION], "md")
    assert "|Ours full|60.0|" in text
    assert not any(word in text for word in ("CIFAR", "90.4"))
    assert "it shows that the machinery works and not that the paper is right" in text
    curve = own.markdown(CURVES["figure-k"])
    assert "|digits|–|–|–|60.0|" in curve
    assert "CIFAR-100" not in curve


def test_the_page_shows_digits_apart_where_they_were_measured():
    assert "On digits" not in whole_page(page(0.9))
    text = whole_page(page(0.6, scale="small", plan=Plan("digits-split", "digits-split")))
    before, _, after = text.partition("## On digits")
    assert "60.0" not in before
    assert "|Ours full|60.0|" in after


def test_k_means_on_the_pixels_stands_beside_what_was_learned_from_digits():
    plan = Plan("digits-split", "digits-split")
    run = Measured(about(plan), "small", 0, {"acc_new": 0.6, "kmeans.pixels": 0.867})
    assert "|k-means on the pixels|86.7|" in Page(Results([run]), ("small",)).markdown(ABLATION)


def test_every_reason_belongs_to_a_cell():
    strangers = [
        (table, row, column)
        for table, rows in reasons().items()
        for row, columns in rows.items()
        for column in columns
        if table not in TABLES or row not in TABLES[table].rows or column not in ("*", *TABLES[table].columns)
    ]
    assert strangers == []


def test_conditions_say_machine_and_commit():
    assert page(0.9).conditions(ABLATION) == "Ours on a GPU; commits abc1234; the paper's figures are means of 10 runs."


def test_cells_are_counted_by_what_is_known_of_them():
    failed = Measured(about(Plan("cifar10", "cifar10", {"incremental": True})), "paper", 0, {}, failed="out of memory")
    runs = [Measured(about(FULL), "paper", 0, {"acc_new": 0.9}), failed]
    own = Page(Results(runs))
    assert own.counted(ABLATION) == {"done": 1, "missing": 16, "failed": 1, "quoted": 0}
    assert own.state(ABLATION, ABLATION.cell("incremental", "cifar10")) == "failed: out of memory"
    assert own.counted(CLUSTERING)["quoted"] == 12


@pytest.mark.parametrize("form", ["md", "latex", "csv", "json"])
def test_every_form_has_every_table(form):
    tables = [*TABLES.values(), *CURVES.values()]
    text = rendered(page(0.9), tables, form)
    cells = sum(len(table.cells) for table in tables)
    if form == "json":
        assert len(json.loads(text)) == cells
    elif form == "csv":
        assert len(list(csv.DictReader(io.StringIO(text)))) == cells
    elif form == "latex":
        assert text.count(r"\begin{tabular}") == len(tables)
        assert r"90.0 (90.4 $\pm$ 0.5)" in text
    else:
        assert text.count("### ") == len(tables)


def test_the_page_has_every_table_and_curve():
    text = whole_page(page(0.9))
    assert all(f"(`{name}`)" in text for name in (*TABLES, *CURVES))
