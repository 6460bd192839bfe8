"""The verbs: what they do to the clusters, and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.runs.edits import Conflict
from autonovel.runs.verbs import Merge, Name
from tests.runs.made import make_run

GROUPS = [0, 0, 1, -1, 2, 2, 2, -2, 1, 0]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", GROUPS)


def sizes(run: Run) -> dict[int, int]:
    return {cluster.number: len(cluster.members) for cluster in run.clusters}


def test_a_name_shows_everywhere_and_the_machines_answers_stay(run: Run) -> None:
    before = (run.path / "predictions.csv").read_bytes()
    run.name(np.int64(2), "  grey heron ")
    for seen in (run, load(run.path)):
        assert seen.names == {2: "grey heron"}
        assert seen.classes == ("cat", "dog", "new 0", "new 1", "grey heron")
        assert [p.name for p in seen.predictions if p.cluster == 2] == ["grey heron"] * 3
    assert json.loads((run.path / "names.json").read_text()) == {"2": "grey heron"}
    assert (run.path / "predictions.csv").read_bytes() == before
    run.name(2, "new 2")  # back to having none
    assert run.names == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "The name of cluster 0 is empty"),
        (" \t ", "The name of cluster 0 is empty"),
        ("\u200b", "The name of cluster 0 is empty"),
        (None, "must be text, not None"),
        (7, "must be text, not 7"),
        (b"heron", "must be text, not b'heron'"),
        ("heron", "Cluster 1 is called 'heron' already; merge the two or choose another name"),
        (" heron", "Cluster 1 is called 'heron' already"),
        ("he\u0301ron", "Cluster 2 is called 'héron' already"),
        ("cat", "'cat' is a known class; if cluster 0 is that class, mark it as 'cat'"),
        ("not a class", "if cluster 0 is none, mark it"),
        ("new 2", "'new 2' is what a cluster is called while it has no name"),
        ("new 77", "is what a cluster is called"),
        ("a\nb", "has control characters"),
        ("a\x00b", "has control characters"),
        ("a\ud800", "has control characters"),
        ("a\u202eb", "has control characters"),
        ("x" * 201, "has 201 letters; use 200 at most"),
    ],
)
def test_names_that_cannot_be_are_refused(run: Run, name: object, why: str) -> None:
    run.name(1, "heron").name(2, "h\u00e9ron")
    with pytest.raises(InputError, match=why):
        run.name(0, name)  # type: ignore[arg-type]
    assert len(run.edits) == 2
    run.name(1, "heron")  # its own name is no other cluster's


def test_clusters_that_are_not_there_are_refused(run: Run) -> None:
    with pytest.raises(InputError, match="There is no cluster 3; this run has clusters 0 to 2."):
        run.name(3, "heron")
    with pytest.raises(InputError, match="There is no cluster -1"):
        run.name(-1, "heron")
    run.merge(0, 1)
    with pytest.raises(InputError, match="There is no cluster 1; this run has clusters 0 and 2."):
        run.mark(1, "cat")
    run.split(2, 3)
    with pytest.raises(InputError, match="this run has clusters 0 and 2 to 4."):
        run.mark(1, "cat")
    for odd in ("0", 0.0, None, True, [0], np.array([0])):
        with pytest.raises(InputError, match="The number of a cluster must be a whole number"):
            run.name(odd, "heron")  # type: ignore[arg-type]


def test_merge_and_split(run: Run) -> None:
    run.name(1, "heron").merge(0, np.int32(1))
    assert sizes(run) == {0: 5, 2: 3, -1: 1, -2: 1}
    assert run.names == {0: "heron"}
    run.split(0)  # features know better: the two come apart again
    assert sizes(run) == {0: 3, 2: 3, 3: 2, -1: 1, -2: 1}
    assert run.clusters[2].members.tolist() == [2, 8]
    assert run.edits[-1]["parts"] == {"3": [2, 8]}
    with pytest.raises(InputError, match="A cluster cannot be merged with itself"):
        run.merge(0, 0)
    with pytest.raises(InputError, match="4 parts are too many: cluster 2 has 3 images"):
        run.split(2, 4)
    with pytest.raises(InputError, match="The number of parts must be at least 2, not 1"):
        run.split(2, 1)
    run.write_array("features.npy", np.zeros((10, 6), dtype=np.float16))
    with pytest.raises(InputError, match="Cluster 2 cannot be split into 2: only 1 of its images differ"):
        run.split(2)


def test_a_split_does_not_depend_on_the_features_later(run: Run) -> None:
    run.merge(0, 1).split(0)
    before = run.labels.tolist()
    (run.path / "features.npy").unlink()
    assert load(run.path).labels.tolist() == before


def test_images_that_get_a_cluster_of_their_own(run: Run) -> None:
    number = run.state.next_number
    before = run.state
    run.move([1, 4], "new")
    assert run.state.members[number].tolist() == [1, 4]
    assert run.state.called(number) == f"new {number}"
    assert run.state.moved[[1, 4]].all()
    run.name(number, "heron").move([5], "heron").move([6], None)
    assert run.state.members[number].tolist() == [1, 4, 5]
    assert run.state.members[number + 1].tolist() == [6]
    run.undo()
    assert number + 1 not in run.state.marks
    run.redo()
    run.merge(number, number + 1)
    assert run.state.members[number].tolist() == [1, 4, 5, 6]
    run.move([7], "new")
    assert run.state.members[number + 2].tolist() == [7]  # numbers are not given again
    for _ in range(6):
        run.undo()
    assert np.array_equal(run.state.group, before.group)
    run.name(0, "new").move([1], "new")  # which is a name like any other
    assert 1 in run.state.members[0]
    run.move([1], None)
    assert run.state.members[max(run.state.marks)].tolist() == [1]


def test_move_by_id_and_row(run: Run) -> None:
    run.move(["4.png", np.int64(2)], 2)
    assert run.clusters[2].members.tolist() == [0, 2, 4, 5, 6]
    run.move("7.png", "cat").move(4, "dog")
    assert [p.name for p in run.predictions][3:5] == ["cat", "dog"]
    assert run.predictions[4][1:] == (None, "dog", pytest.approx(0.7), True, False)
    run.name(0, "heron").move(np.array([4, 5]), "heron")
    assert run.clusters[0].members.tolist() == [1, 4, 5, 9]
    with pytest.raises(InputError, match="There is no unlabelled image '0.png' in this run"):
        run.move(["0.png"], 1)
    with pytest.raises(InputError, match="There is no row 10; this run has rows 0 to 9"):
        run.move([10], 1)
    with pytest.raises(InputError, match="There is no class 'owl'"):
        run.move([1], "owl")
    with pytest.raises(InputError, match="There are no images to move"):
        run.move([], 1)


def test_mark(run: Run) -> None:
    run.mark(0, "not a class").mark(1, "dog")
    assert run.labels.tolist() == [-1, -1, 1, 0, 2, 2, 2, 1, 1, -1]
    assert run.classes == ("cat", "dog", "new 2")
    assert run.predictions[0][1:3] == (0, "not a class")
    assert run.predictions[2][1:] == (None, "dog", 0.6, True, False)
    assert [(c.number, c.kind) for c in run.clusters][:3] == [(0, "not a class"), (1, "known"), (2, "new")]
    with pytest.raises(
        InputError, match=r"A cluster can be 'new', 'not a class' or a known class \(cat, dog\), not 'owl'"
    ):
        run.mark(0, "owl")
    assert run.mark(0, "new").mark(1, "new").labels.tolist() == [2, 2, 3, 0, 4, 4, 4, 1, 3, 2]


def test_undo_and_redo_are_entries_too(run: Run) -> None:
    with pytest.raises(InputError, match="There is nothing to undo"):
        run.undo()
    run.name(0, "heron").merge(0, 1).undo().undo().redo()
    assert run.names == {0: "heron"}
    assert sizes(run)[1] == 2
    assert [entry["do"] for entry in run.edits] == ["name", "merge", "undo", "undo", "redo"]
    run.name(1, "stork")
    with pytest.raises(InputError, match="There is nothing to redo"):
        run.redo()
    assert run.undo().names == {0: "heron"}


def test_the_bare_name_of_a_file_does_where_only_one_is_called_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1, 0])
    ids = ["pile/a.jpg", "pile/deep/b.jpg", "pile/b.jpg"]
    run.write_predictions(p._replace(image=image) for p, image in zip(run.predictions, ids, strict=True))
    run = load(run.path).move("a.jpg", 1).move("deep/b.jpg", 2)
    assert run.state.group.tolist() == [1, 2, 0]
    with pytest.raises(InputError, match=r"2 images are called 'b.jpg'; say which: 'pile/deep/b.jpg', 'pile/b.jpg'\."):
        run.move("b.jpg", 1)
    with pytest.raises(InputError, match=r"There is no unlabelled image '.jpg'"):
        run.move(".jpg", 1)


def test_the_images_of_a_dissolved_cluster_go_to_the_class_that_is_nearest(run: Run) -> None:
    run.name(1, "heron").name(2, "stork").mark(0, "not a class").move(3, 2).move([2], None)
    run.write_features("features.npy", np.random.default_rng(3).normal(size=(10, 6)).astype(np.float32))
    before = run.state
    run.dissolve(2)
    features, members = run.features.astype(float), before.members
    for row in members[2]:
        apart = {n: np.linalg.norm(features[row] - features[members[n]].mean(0)) for n in (1, 3, -2)}
        assert run.state.group[row] == min(apart, key=lambda n: apart[n])
    others = before.group != 2
    assert np.array_equal(run.state.group[others], before.group[others])
    assert run.names == {1: "heron"}
    assert not run.state.moved[3]  # nobody put it where it is now
    with pytest.raises(InputError, match=r"There is no cluster 2; this run has clusters 0 to 1 and 3\."):
        run.dissolve(2)
    (run.path / "features.npy").unlink()
    assert load(run.path).undo().state.group.tolist() == before.group.tolist()


def test_the_last_class_cannot_be_dissolved(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 0, 1], known=(), labelled=0, n_new=2).mark(1, "not a class")
    with pytest.raises(InputError, match="There is no class beside cluster 0 that its images could go to"):
        run.dissolve(0)
    run.mark(1, "new").dissolve(0)
    assert sizes(run) == {1: 3}


def test_two_people_do_not_overwrite_each_other(run: Run) -> None:
    other = load(run.path)
    seen = len(other.edits)
    run.edit(Name(0, "heron"), after=seen)
    with pytest.raises(Conflict, match=r"was edited meanwhile \(1 edits, not 0\)") as caught:
        other.edit(Merge(0, 1), after=seen)
    assert caught.value.edits == 1
    assert other.names == {0: "heron"}  # looks again
    other.edit(Merge(0, 1), after=1)
    assert sizes(run) == {0: 5, 2: 3, -1: 1, -2: 1}


def test_regrouping_into_the_run_s_own_number_changes_nothing(tmp_path: Path) -> None:
    groups = [0] * 4 + [1] * 3 + [3] * 5 + [-1] * 2  # 2 is empty; the features of a cluster are given to no other
    run = make_run(tmp_path / "run", [groups[i] for i in np.random.default_rng(0).permutation(14)], n_new=4)
    run.write_features("features.npy", np.random.default_rng(1).normal(size=(14, 6)).astype(np.float32))
    run.name(1, "heron")
    before = run.state
    for k in (4, 3):
        run.regroup(k)
        assert np.array_equal(run.state.group, before.group)
        assert {n: c.name for n, c in enumerate(run.clusters) if len(c.members)} == {
            n: c.name for n, c in enumerate(run.clusters) if len(c.members)
        }
    assert run.names == {1: "heron"}
    run.merge(0, 1).regroup(3)  # also where clusters were put together meanwhile
    assert sorted(map(len, run.state.members.values())) == sorted(map(len, before.members.values()))


def test_regroup(tmp_path: Path) -> None:
    groups = [0] * 40 + [1] * 30 + [2] * 20 + [3] * 10 + [-1] * 5
    run = make_run(tmp_path / "run", groups, n_new=4)
    run.name(0, "heron").name(3, "stork").mark(2, "not a class").merge(0, 3)
    run.move([1], 1)  # from the first cluster into the second
    run.regroup(3)
    assert sizes(run) == {0: 39, 1: 31, 2: 20, 3: 10, -1: 5}  # 2 and the known class are left as they were
    assert run.names == {0: "heron"}  # 3 is another cluster now than the one that was called stork
    assert run.predictions[1].cluster == 1  # where it was put, although its features say otherwise
    run.regroup(2)
    assert run.labels[:105].tolist() == run.labels.tolist()
    assert sum(cluster.kind == "new" for cluster in run.clusters) == 2
    assert run.predictions[1].name == run.predictions[45].name
    run.undo().undo()
    assert sizes(run) == {0: 49, 1: 31, 2: 20, -1: 5}
    with pytest.raises(InputError, match="81 clusters are too many: there are 80 images in new classes"):
        run.regroup(81)
    with pytest.raises(InputError, match="The number of clusters must be at least 1, not 0"):
        run.regroup(0)
