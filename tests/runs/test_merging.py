"""What heads say about the number of clusters, and what becomes of it when a person edits the run."""

from pathlib import Path

import numpy as np
import pytest

from autonovel.api.run import Run
from autonovel.base.errors import InputError
from autonovel.report.clusters import shown_clusters
from autonovel.report.findings import find
from autonovel.runs.merging import MERGING, read_merging
from tests.runs.made import make_run

GROUPS = [0] * 6 + [1] * 5 + [2] * 4 + [3] * 6 + [4] * 5 + [-1] * 3
ORDER = [[1, 3, 0.5], [0, 4, 0.3], [0, 1, 0.02], [0, 2, 0.0]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = make_run(tmp_path / "run", GROUPS, n_new=5)
    run.write_json(MERGING, {"order": ORDER, "n_new": 3, "mixed": []})
    return run


def texts(run: Run) -> list[str]:
    return [finding.text for finding in find(run, shown_clusters(run))]


def test_all_of_it_is_one_edit_and_the_machine_keeps_its_word(run: Run) -> None:
    assert run.suggested == [[0, 4], [1, 3]]
    before = run.machine.group.copy()
    run.merge(suggested=True)
    assert [(c.number, len(c.members)) for c in run.clusters if c.number >= 0] == [(0, 11), (1, 11), (2, 4)]
    assert run.suggested == []
    assert (run.machine.group == before).all()
    assert len(run.edits) == 1
    run.undo()
    assert (run.state.group == before).all()
    assert run.suggested == [[0, 4], [1, 3]]


def test_names_marks_and_earlier_edits_are_respected(run: Run) -> None:
    run.name(4, "egret").name(1, "heron").name(3, "gull")
    assert run.suggested == [[4, 0]]  # two different names are a person's word
    run.mark(0, "not a class")
    assert run.suggested == []
    run.undo().merge(4, 0)
    assert run.suggested == []
    run.undo().merge(suggested=True)
    assert run.names == {4: "egret", 1: "heron", 3: "gull"}
    assert len(run.state.members[4]) == 11
    assert (run.state.group[np.array(GROUPS) == -1] == -1).all()


def test_a_cluster_that_was_taken_apart_is_left_alone(run: Run) -> None:
    rows = np.flatnonzero(run.machine.group == 3)
    run.move(rows[:3].tolist(), 2)
    assert run.suggested == [[0, 4]]


def test_where_nothing_is_suggested(tmp_path: Path, run: Run) -> None:
    bare = make_run(tmp_path / "bare", GROUPS, n_new=5)
    assert read_merging(bare) is None
    assert bare.suggested == []
    with pytest.raises(InputError, match="only objective swap does"):
        bare.merge(suggested=True)
    for number, why in ((None, "cannot tell classes apart"), (5, "tell 5 classes apart"), (9, "tell 9 classes apart")):
        run.write_json(MERGING, {"order": ORDER, "n_new": number, "mixed": []})
        assert run.suggested == []
        with pytest.raises(InputError, match=f"nothing to merge as suggested: .*{why}"):
            run.merge(suggested=True)
    assert not run.edits


def test_what_a_person_has_merged_counts(run: Run) -> None:
    run.merge(1, 3)
    assert run.suggested == [[0, 4]]
    run.undo().merge(2, 1)  # not what the heads would do, but four are left
    assert run.suggested == [[2, 3]]
    run.undo().regroup(3)
    assert run.suggested == []  # as many as the heads tell apart, however they came about


def test_names_keep_apart_only_what_bears_them(run: Run) -> None:
    run.write_json(MERGING, {"order": [[1, 3, 0.5], [2, 4, 0.3], [1, 2, 0.2], [0, 1, 0.0]], "n_new": 2, "mixed": []})
    assert run.suggested == [[1, 2, 3, 4]]
    run.name(1, "heron").name(2, "gull")
    assert run.suggested == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    "content", [{}, {"order": [[1]], "n_new": 2, "mixed": []}, {"order": 3, "n_new": 2, "mixed": []}]
)
def test_a_damaged_file_is_said_to_be(run: Run, content: dict[str, object]) -> None:
    run.write_json(MERGING, content)
    with pytest.raises(InputError, match=r"merging.json is damaged .*; put back a copy of it, or run again"):
        _ = run.suggested


def test_the_report_warns(run: Run) -> None:
    pairs = [text for text in texts(run) if "look like one class" in text]
    assert [text.partition(" look")[0] for text in pairs] == ["“new 0” and “new 4”", "“new 1” and “new 3”"]
    run.merge(suggested=True)
    assert not any("look like one class" in text for text in texts(run))
    run.undo()
    run.write_json(MERGING, {"order": ORDER, "n_new": 8, "mixed": [1, 2]})
    [mixed] = [text for text in texts(run) if "8 new classes" in text]
    assert "“new 1” and “new 2”" in mixed
    run.name(1, "heron").move([12], 1)  # cluster 2 has lost an image to cluster 1: these are other clusters now
    assert not any("8 new classes" in text for text in texts(run))
