"""Which runs cells need: breadth first, twins once, parts each, one run for all scores that are wanted of it."""

import pytest

from autonovel.base.errors import InputError
from autonovel.paper.cells import Plan, on_scale
from autonovel.paper.planned import find_tables, wanted
from autonovel.paper.tables import (
    ABLATION,
    CLUSTERING,
    COMPARISON,
    CURVES,
    INCREMENTAL,
    NUMBER_OMNIGLOT,
    SPLITS,
    TABLES,
)


def names(*tables, **more):
    return [job.name for job in wanted(tables, more.pop("scale", "paper"), more.pop("seeds", 1), **more)]


def test_every_cell_has_its_first_seed_before_one_has_its_second():
    found = names(ABLATION, seeds=2, columns=["cifar10"])
    assert [name[-2:] for name in found] == ["s0"] * 6 + ["s1"] * 6
    assert found[0] == "ablation.no-mse.cifar10.s0"


def test_twins_are_one_run_under_the_name_of_the_first_table():
    found = names(ABLATION, COMPARISON, columns=["cifar10"])
    assert len(found) == len(set(found)) == 6 + 8
    assert "comparison.full.cifar10.s0" not in found


def test_one_run_gives_old_new_and_all():
    jobs = wanted([INCREMENTAL], "paper", 1, rows=["incremental"], columns=["cifar10"])
    assert [job.name for job in jobs] == ["incremental.incremental.cifar10-old.s0"]
    assert jobs[0].scores == ("test.separate.old", "test.separate.new", "test.separate.all")


def test_a_benchmark_with_parts_has_a_run_for_each():
    found = names(TABLES["many-classes"], rows=["full"], columns=["omniglot"])
    assert len(found) == 20
    assert found[0] == "many-classes.full.omniglot.Angelic.s0"


def test_a_run_that_is_needed_whole_is_not_stopped_after_the_estimate():
    alone = wanted([NUMBER_OMNIGLOT], "paper", 1, rows=["Angelic"], columns=["full"])
    assert [job.plan.until for job in alone] == ["estimate"]
    both = wanted([NUMBER_OMNIGLOT, TABLES["unknown-number"]], "paper", 1, rows=["Angelic", "full"])
    angelic = [job for job in both if job.plan.data == "omniglot:Angelic" and job.plan.n_new == "auto"]
    assert [(job.plan.until, job.scores) for job in angelic] == [("", ("n_new_estimated", "acc_new"))]


def test_only_runs_on_some_data_may_be_wanted():
    found = wanted([ABLATION, CURVES["figure-k"], CLUSTERING], "fast", 1, data=["cifar10"])
    assert {job.plan.data for job in found} == {"cifar10"}
    assert len(found) == 6 + 8  # k = 5 is a row of the ablation


def test_counts_of_classes_need_no_seeds():
    assert len(names(SPLITS, seeds=3)) == 5


def test_scale_small_has_digits_in_place_of_cifar10_and_nothing_for_others():
    assert on_scale(Plan("cifar10", "cifar10"), "small").data == "digits-split"
    assert on_scale(Plan("svhn", "svhn"), "small") is None
    assert on_scale(Plan("svhn", "svhn"), "fast") == Plan("svhn", "svhn")
    assert {job.plan.data for job in wanted(TABLES.values(), "small", 1)} == {"digits-split"}


def test_quoted_cells_need_no_run():
    assert not any("dec" in name for name in names(CLUSTERING))


def test_tables_are_found_by_name_and_number():
    assert [table.name for table in find_tables(["table3", "figure-k"])] == ["comparison", "figure-k"]
    assert len(find_tables([])) == len(TABLES) + len(CURVES)
    with pytest.raises(InputError, match="did you mean"):
        find_tables(["tabel3"])
