"""Work shared out over processes: each item once, whatever happens to a worker."""

import os
import sys
from pathlib import Path

import pytest

from autonovel.base.errors import TrainingError
from autonovel.machine.engines import DEATHS, WorkerTask, engine_named, on_this_machine


def test_each_item_once_and_what_kills_its_worker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    task = WorkerTask("tests.ray.tasks:deadly", str(tmp_path), gpus=2)  # two workers, on any machine
    items = [*map(str, range(30)), "deadly", *map(str, range(31, 60))]
    found = list(on_this_machine(task, items))
    assert sorted(number for number, _ in found) == list(range(60))
    assert dict(found) == {i: None if i == 30 else str(i).encode() for i in range(60)}
    assert len(list(tmp_path.iterdir())) == DEATHS
    with pytest.raises(TrainingError, match="out of reach"):
        list(on_this_machine(task, ["1", "fault", "2"]))
    with pytest.raises(TrainingError, match="ValueError: no such item"):
        list(on_this_machine(task, ["1", "wrong"]))
    with pytest.raises(ValueError, match="Ray cluster"):
        engine_named("local", "somewhere")
