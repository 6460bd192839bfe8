"""The clusters after any edits: nothing is lost, and undo restores exactly."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.runs.answers import MachineAnswers
from autonovel.runs.edits import States, replay
from autonovel.runs.state import State, first_state, standing
from autonovel.runs.verbs import VERBS, Edit, Mark, Merge, Name, Split

N = 24
IDS = [f"{i}.png" for i in range(N)]
FEATURES = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float16)


def run_of(state: State) -> Any:
    """What an edit asks of a run."""
    machine = SimpleNamespace(images=IDS, group=state.group, n_new=5, known=state.known)
    nothing = {"labelled_features": None, "images": [], "metrics": []}
    return SimpleNamespace(features=FEATURES, machine=machine, summary={"seed": 0}, **nothing)


def start(seed: int = 0) -> State:
    group = np.random.default_rng(seed).integers(-2, 4, N)
    return first_state(MachineAnswers(("cat", "new 1"), 5, tuple(IDS), group, np.ones(N)))


def same(a: State, b: State) -> bool:
    return (
        a.group.tolist() == b.group.tolist()
        and a.marks == b.marks
        and a.names == b.names
        and a.moved.tolist() == b.moved.tolist()
        and a.next_number == b.next_number
    )


number = st.integers(0, 9)
verbs = st.one_of(
    st.tuples(st.just("name"), number, st.sampled_from(["heron", "stork", "new 3", "new 1", "crane", "cat"])),
    st.tuples(st.just("merge"), st.lists(number, min_size=2, max_size=4)),
    st.tuples(st.just("split"), number, st.integers(2, 3)),
    st.tuples(st.just("move"), st.lists(st.integers(0, N - 1), min_size=1), st.one_of(number, st.just("cat"))),
    st.tuples(st.just("mark"), number, st.sampled_from(["new", "not a class", "cat", "new 1"])),
    st.tuples(st.just("regroup"), st.integers(1, 6)),
    st.tuples(st.just("dissolve"), number),
    st.tuples(st.just("undo")),
    st.tuples(st.just("redo")),
)


def line(state: State, verb: Edit) -> dict[str, Any]:
    return verb.entry(state, run_of(start()))


def make(state: State, entries: list[dict[str, Any]], verb: tuple[Any, ...]) -> dict[str, Any] | None:
    """The entry of a verb, or None where it is refused."""
    do, *words = verb
    done, undone = standing(entries)
    if do == "undo":
        return {"do": do} if done else None
    if do == "redo":
        return {"do": do} if undone else None
    try:
        return line(state, VERBS[do](*words[0]) if do == "merge" else VERBS[do](*words))
    except InputError:
        return None


def check(state: State) -> None:
    """What is true of the clusters at any time."""
    members = [row for cluster in state.clusters for row in cluster.members.tolist()]
    assert sorted(members) == list(range(N))  # every image is in exactly one
    assert len(set(state.classes)) == len(state.classes)
    assert len(state.classes) == 2 + sum(cluster.kind == "new" for cluster in state.clusters)
    labels = state.labels
    for cluster in state.clusters:
        if cluster.kind == "not a class":
            assert (labels[cluster.members] == -1).all()
        else:
            assert {state.classes[label] for label in labels[cluster.members]} <= {cluster.name}
    assert state.next_number > max(state.marks, default=-1)


@settings(max_examples=60, deadline=None)
@given(st.lists(verbs, max_size=14), st.integers(0, 3))
def test_no_sequence_of_edits_loses_an_image_and_undo_restores(sequence: list[tuple[Any, ...]], seed: int) -> None:
    first = state = start(seed)
    entries: list[dict[str, Any]] = []
    past: list[State] = []  # the states that undo goes back to, kept in the plainest way
    future: list[State] = []
    states = States(Path("run"), first)
    for verb in sequence:
        entry = make(state, entries, verb)
        if entry is None:
            continue
        entries.append(entry)
        if entry["do"] == "undo":
            future.append(state)
            state = past.pop()
        elif entry["do"] == "redo":
            past.append(state)
            state = future.pop()
        else:
            past.append(state)
            future = []
            state = replay(first, entries)
        assert same(replay(first, entries), state)
        assert same(states(entries), state)  # the quick way
        check(state)
    while standing(entries)[0]:
        entries.append({"do": "undo"})
    assert same(replay(first, entries), first)
    for _ in past:
        entries.append({"do": "redo"})
    assert same(replay(first, entries), state)


def test_merge_keeps_the_first_number_and_a_name() -> None:
    state = start()
    first = replay(state, [line(state, Merge(2, 0, 3))])
    assert first.members[2].tolist() == np.flatnonzero(np.isin(state.group, [0, 2, 3])).tolist()
    assert sorted(first.marks) == [1, 2, 4]
    named = [line(state, Name(0, "heron")), line(state, Name(3, "stork"))]
    after = replay(state, named)
    assert replay(state, [*named, line(after, Merge(2, 0, 3))]).names == {2: "heron"}
    assert replay(state, [*named, line(after, Merge(3, 0))]).names == {3: "stork"}
    assert same(replay(state, [*named, line(after, Merge(3, 0)), {"do": "undo"}]), after)


def test_a_known_class_can_be_called_like_a_cluster() -> None:
    state = start()
    assert state.classes == ("cat", "new 1", "new 0", "new new 1", "new 2", "new 3", "new 4")


def test_marked_clusters() -> None:
    state = start()
    entries = [line(state, Name(0, "heron")), line(state, Mark(0, "cat")), line(state, Mark(2, "not a class"))]
    marked = replay(state, entries)
    assert marked.classes == ("cat", "new 1", "new new 1", "new 3", "new 4")
    assert (marked.labels[state.group == 0] == 0).all()
    assert (marked.labels[state.group == -1] == 0).all()
    assert (marked.labels[state.group == 2] == -1).all()
    assert marked.given_names == {}
    back = replay(state, [*entries, line(marked, Mark(0, "new"))])
    assert back.given_names == {0: "heron"}
    with pytest.raises(InputError, match="Cluster 0 is the known class 'cat'; mark it 'new' to name it"):
        line(marked, Name(0, "stork"))


def test_the_number_of_a_cluster_that_is_gone_is_not_given_again() -> None:
    state = start()
    entries = [line(state, Merge(1, 4))]
    merged = replay(state, entries)
    assert list(line(merged, Split(1, 2))["parts"]) == ["5"]
