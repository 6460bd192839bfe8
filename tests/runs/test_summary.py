"""A summary.json that a person has edited: whatever it says, a command prints its answer or a sentence that says what to do."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autonovel.answers.network import last_stage
from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.cli.results import print_result
from autonovel.export import card
from autonovel.report.html import write_report
from autonovel.report.session import Session
from autonovel.runs.geometry import reduced
from autonovel.runs.summary import read_summary
from tests.runs.made import SUMMARY, make_run

FULL: dict[str, Any] = SUMMARY | {
    "n_new": 2,
    "n_known": 2,
    "n_new_estimated": 2,
    "n_new_interval": [2, 3],
    "n_new_by_heads": 3,
    "cluster_sizes": [4, 3],
    "acc_new": 0.9,
    "nmi_new": 0.8,
    "ari_new": None,
    "matched": {"0": ["owl", 4], "1": ["heron", 2]},
    "confusion": [[4, 0], [1, 2]],
    "confusion_classes": ["owl", "heron"],
    "pile": {"single": {"all": 0.9, "old": None, "new": 0.8}},
    "kmeans": {"pixels": 0.5},
    "test": {"fixed": {"all": 0.9, "old": None}},
    "continued_from": {"run": "runs/birds", "taken": "two classes"},
    "answering_stage": "joint",
    "question": "0123",
}
"""All that anyone reads in a summary."""

READERS: tuple[Callable[[Run], object], ...] = (
    print_result,  # discover, cluster and show
    lambda run: print_result(run, json=True),
    write_report,  # report
    lambda run: Session(run).state(),  # browse
    lambda run: run.predictions,  # the exported tables, and predict
    last_stage,  # predict, and exported networks
    lambda run: (card._training(run), card._scores(run)),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = make_run(tmp_path_factory.mktemp("edited") / "run", [0, 0, 0, 0, 1, 1, 1, -1], n_new=2)
    made.write_array("map.npy", reduced(made.features, 2))  # t-SNE takes longer than the rest
    return made


def said(run: Run, content: str) -> set[str]:
    """What is said about the file; nobody may end otherwise than with an answer or a sentence."""
    (run.path / "summary.json").write_text(content, encoding="utf-8")
    sentences = set()
    for read in READERS:
        try:
            read(load(run.path))
        except InputError as error:
            sentences.add(str(error))
    return sentences


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a summary."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> str:
    """The summary with this value at a place; without it where the value is ``...``."""
    whole: Any = {"summary": copy.deepcopy(FULL)}
    at, last = whole, "summary"
    for key in path:
        at, last = at[last], key
    at[last] = value
    if value is ...:
        del at[last]
    return json.dumps(whole.get("summary", {}))


ODD = st.sampled_from(
    [..., None, True, -1, 10**12, 10**400, 1e308, math.nan, math.inf, "", "\ud800", "../x", "1\0", [], {}]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(path=st.sampled_from(list(places(FULL))), value=ODD | VALUES)
@example(path=("n_new",), value="2")
@example(path=("n_new",), value=10**9)
@example(path=("matched", "0"), value="ab")
@example(path=("confusion", 0), value=[])
@example(path=("confusion",), value=[[1], [2]])
@example(path=("seconds",), value=[])
@example(path=("images",), value=[])
@example(path=("continued_from",), value="birds")
def test_whatever_it_says_there_is_an_answer_or_a_sentence(run: Run, path: tuple[Any, ...], value: Any) -> None:
    for sentence in said(run, changed(path, value)):
        assert "summary.json" in sentence
        assert (
            sentence.endswith("put back a copy of it, or run again.") or "is not of a run; give the folder" in sentence
        )


@pytest.mark.parametrize("content", ["[" * 100_000, "3", '"text"', "null", "[]", "{", "", "{}"])
def test_what_is_no_summary_at_all_is_named_by_everyone(run: Run, content: str) -> None:
    (run.path / "summary.json").write_text(content)
    for read in READERS:
        with pytest.raises(InputError, match=r"summary\.json"):
            read(load(run.path))


@pytest.mark.parametrize("name", [*SUMMARY, "n_new", "n_known"])
def test_what_every_run_says_must_be_there(run: Run, name: str) -> None:
    assert said(run, changed((name,), ...)) == {
        f"The file {run.path / 'summary.json'} is damaged (it lacks '{name}'); put back a copy of it, or run again."
    }


def test_what_a_run_writes_is_read(run: Run) -> None:
    assert said(run, json.dumps(FULL)) == set()
    assert read_summary(run) == FULL


def test_a_value_of_the_wrong_type_is_named(run: Run) -> None:
    why = "its 'n_new_interval' is [1], which no run writes"
    assert any(why in sentence for sentence in said(run, changed(("n_new_interval",), [1])))
