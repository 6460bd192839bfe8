"""Which output of the network is which class, after any edits."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.runs.classes import Outputs, outputs_of
from tests.runs.made import make_run

GROUPS = [0, 0, 1, 1, 1, 2, 3, 3, -1, -2, 5, 5, 5, 5]
"""Cluster 4 is empty."""

edits = st.lists(
    st.one_of(
        st.tuples(st.just("merge"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("mark"), st.integers(0, 5), st.sampled_from(["new", "not a class", "cat", "dog"])),
        st.tuples(st.just("name"), st.integers(0, 5), st.sampled_from(["heron", "egret"])),
        st.tuples(st.just("undo")),
        st.tuples(st.just("redo")),
    ),
    max_size=12,
)


def named(outputs: Outputs, output: int) -> list[str]:
    """The classes that an output stands for."""
    return [outputs.classes[part.place].name for part in outputs.parts if part.output == output]


@given(edits)
@settings(max_examples=40, deadline=None)
def test_merges_marks_and_names_are_followed_exactly(sequence: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", GROUPS, n_new=6)
        for verb, *words in sequence:
            try:
                getattr(run, verb)(*words)
            except InputError:
                continue  # which makes no sense just then
        outputs = outputs_of(run)
        assert outputs.agreement == 1
        assert outputs.silent == []
        assert [c.name for c in outputs.classes][: len(run.classes)] == list(run.classes)
        # one by one: the machine's answer for an image leads to the class that the image has now
        for group, label in zip(GROUPS, run.labels.tolist(), strict=True):
            [place] = [part.place for part in outputs.parts if part.output == (-1 - group if group < 0 else 2 + group)]
            expected = "not a class" if label < 0 else run.classes[label]
            assert outputs.classes[place].name == expected
        assert [part.output for part in outputs.parts] == list(range(8))
        listed = sorted(cluster for c in outputs.classes for cluster in c.clusters)
        assert listed == list(range(6))


def test_moves_and_splits_lower_the_agreement(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0] * 36 + [1] * 4, n_new=2)
    run.move([0], 1)
    assert outputs_of(run).agreement == 39 / 40
    run.undo().split(1, 2)
    outputs = outputs_of(run)
    assert outputs.silent == []
    assert outputs.agreement == 1
    assert outputs.divided == {3: [3, 4]}
    middles = [run.features[run.state.members[number]].astype(np.float32).mean(0) for number in (1, 2)]
    np.testing.assert_allclose(outputs.middles[3:], middles, rtol=1e-3)


def test_a_class_whose_images_were_all_moved_has_no_output(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0] * 36 + [1] * 4, n_new=2)
    run.move(list(range(36, 40)), 0)
    outputs = outputs_of(run)
    assert [c.name for c in outputs.classes] == ["cat", "dog", "new 0"]
    assert [part.place for part in outputs.parts] == [0, 1, 2, 2]
    assert outputs.classes[2].clusters == (0, 1)
    assert outputs.agreement == 1
    run.move([0], 1)  # a single image that is no output's
    assert outputs_of(run).silent == ["new 1"]


def test_a_dissolved_cluster_is_answered_as_its_images_are(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0] * 9 + [1] * 9 + [2] * 9, n_new=4)
    features = np.concatenate([np.full((9, 2), 0.0), [[1, 1]] * 4 + [[8, 8]] * 5, np.full((9, 2), 9.0)])
    run.write_features("features.npy", features.astype(np.float32))
    run.dissolve(1).dissolve(3)  # one between the others, and an empty one
    outputs = outputs_of(run)
    assert [(part.output, part.cluster) for part in outputs.parts if part.output > 1] == [
        (2, 0), (3, 2), (3, 0), (4, 2), (5, None)
    ]  # fmt: skip
    assert named(outputs, 5)[0] == "not a class"
    assert outputs.agreement == 1
    run.regroup(4)  # which may give the number of the empty one to others
    assert [part.cluster for part in outputs_of(run).parts if part.output == 5] == [None]


def test_regrouping_follows_most_images(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0] * 6 + [1] * 4 + [2] * 5 + [3] * 3, n_new=5, labelled=2)
    run.mark(3, "not a class").regroup(2)
    outputs = outputs_of(run)
    state = run.state.group
    for cluster, rows in ((0, slice(0, 6)), (1, slice(6, 10)), (2, slice(10, 15))):
        numbers, counts = np.unique(state[rows], return_counts=True)
        most = run.state.called(int(numbers[counts.argmax()]))
        assert named(outputs, 2 + cluster)[0] == most
    assert named(outputs, 2 + 3) == ["not a class"]
    assert named(outputs, 2 + 4) == ["not a class"]  # empty, and gone
