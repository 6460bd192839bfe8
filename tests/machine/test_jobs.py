"""Runs side by side give what they give alone."""

import threading
import time
from collections import defaultdict
from contextlib import nullcontext

import pytest
import torch

from autonovel.base.errors import TrainingError
from autonovel.machine import streams
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.training import engine
from tests.training.test_engine import trained


def test_results_come_in_the_order_of_the_jobs() -> None:
    assert side_by_side([lambda i=i: i * i for i in range(7)], at_once=3) == [i * i for i in range(7)]
    assert side_by_side([]) == []


def test_a_run_for_which_there_is_no_memory_waits_until_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    room, refused, lock = [2], [], threading.Lock()
    make_step, give_back = engine._compiled_if_possible, streams.room.give_back

    def set_up(*args: object) -> object:
        with lock:
            if not room[0]:
                refused.append(threading.current_thread())
                raise torch.OutOfMemoryError("CUDA out of memory.")
            room[0] -= 1
        return make_step(*args)

    def end() -> None:
        with lock:
            room[0] += 1
        give_back()

    monkeypatch.setattr(engine, "_compiled_if_possible", set_up)
    monkeypatch.setattr(streams.room, "give_back", end)
    mode = Mode.of("cpu")
    found = side_by_side([lambda: trained("supervised", mode)[1] for _ in range(6)])
    assert refused  # or nothing was tested
    assert all(losses == found[0] for losses in found)
    assert (room[0], streams.room._trainings) == (2, 0)


class FakeStream:
    """Counts how often it was waited for."""

    def __init__(self, device: torch.device) -> None:
        self.synchronised = 0

    def wait_stream(self, other: object) -> None:
        pass

    def synchronize(self) -> None:
        self.synchronised += 1


def test_streams_are_lent_to_one_training_at_a_time_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(streams, "_idle_streams", defaultdict(list))
    device = torch.device("cuda")
    with streams._own_streams(device) as first, streams._own_streams(device) as second:
        assert len({*first, *second}) == 4
    with pytest.raises(TrainingError), streams._own_streams(device) as third:
        raise TrainingError("The loss is not finite.")
    assert third in (first, second)
    assert [stream.synchronised for stream in third] == [2, 2]
    used = side_by_side([lambda: _one_pair(device) for _ in range(40)])
    assert len(set(used)) <= 16
    assert sorted(map(id, sum(streams._idle_streams[device], ()))) == sorted(
        map(id, {s for pair in used for s in pair} | {*first, *second})
    )


def _one_pair(device: torch.device) -> object:
    with streams._own_streams(device) as pair:
        time.sleep(0.01)
        return pair


def test_a_run_that_never_fits_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(engine, "_compiled_if_possible", refuse)
    with pytest.raises(torch.OutOfMemoryError):
        trained("supervised", Mode.of("cpu"))
    assert streams.room._trainings == 0


def test_runs_side_by_side_are_bit_identical_to_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = Mode.of("cpu")
    kinds = ["pairs", "swap", "rotation", "pairs"]
    together = side_by_side([lambda k=kind: trained(k, mode)[0].state_dict() for kind in kinds])
    monkeypatch.setattr(streams, "_in_main_thread", lambda: False)  # with the threads that the others have
    for kind, state in zip(kinds, together, strict=True):
        alone = trained(kind, mode)[0].state_dict()
        assert all(torch.equal(state[name], alone[name]) for name in alone)
