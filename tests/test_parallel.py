"""Runs side by side give what they give alone."""

import pytest
import torch

from autonovel import engine
from autonovel.engine import Mode
from autonovel.parallel import side_by_side
from tests.test_engine import trained


def test_results_come_in_the_order_of_the_jobs() -> None:
    assert side_by_side([lambda i=i: i * i for i in range(7)], at_once=3) == [i * i for i in range(7)]
    assert side_by_side([]) == []


def test_runs_side_by_side_are_bit_identical_to_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = Mode.of("cpu")
    kinds = ["pairs", "swap", "rotation", "pairs"]
    together = side_by_side([lambda k=kind: trained(k, mode)[0].state_dict() for kind in kinds])
    monkeypatch.setattr(engine, "_in_main_thread", lambda: False)  # with the threads that the others have
    for kind, state in zip(kinds, together, strict=True):
        alone = trained(kind, mode)[0].state_dict()
        assert all(torch.equal(state[name], alone[name]) for name in alone)
