"""Tensors in a run folder."""

from pathlib import Path

import pytest
import torch

from autonovel.api.run import Run
from autonovel.base.errors import InputError
from autonovel.runs.weights import StageCheckpoint, read_metadata, read_tensors, write_tensors


def test_tensors_come_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    state = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.tensor(3)}
    write_tensors(run, "joint.safetensors", state, {"seconds": "1.5"})
    found, metadata = read_tensors(run, "joint.safetensors")
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], state[key]) for key in state)
    assert metadata == {"seconds": "1.5"}
    assert read_metadata(run, "joint.safetensors")["seconds"] == "1.5"
    assert (run.path / "joint.safetensors").stat().st_mode & 0o044 == 0o044  # others may read it, as the other files


def test_one_bit_that_has_turned_is_seen(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    write_tensors(run, "joint.safetensors", {"a": torch.arange(6.0), "b": torch.zeros(2, 0)}, {"seconds": "1.5"})
    file = run.path / "joint.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="is not as it was written"):
        read_tensors(run, "joint.safetensors")


def test_the_state_of_a_stage(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    checkpoint = StageCheckpoint(run, "joint")
    assert checkpoint.epochs_done == 0
    assert checkpoint.load() is None
    checkpoint.save({"a": torch.ones(1000)}, 7)
    assert checkpoint.epochs_done == 7
    loaded = checkpoint.load()
    assert loaded is not None
    assert loaded[1] == 7
    checkpoint.clear()
    assert checkpoint.epochs_done == 0


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "joint.safetensors").write_bytes(b"cut off")
    for read in (read_tensors, read_metadata):
        with pytest.raises(InputError, match=r"joint.safetensors cannot be read .*delete it to compute it again"):
            read(run, "joint.safetensors")
