"""Tensors in a run folder: the networks after each stage, and the state of a stage that is not finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder

State = dict[str, Tensor]

_DIGEST = "digest"


def numbered(stage: str, network: int) -> str:
    """The name of a stage for the first, second, ... network: 'joint', 'joint-2', ..."""
    return stage if network == 1 else f"{stage}-{network}"


def write_tensors(run: RunFiles, name: str, state: State, metadata: dict[str, str] | None = None) -> None:
    """Write a .safetensors file; it holds a digest of all that is in it."""
    ready = {key: value.detach().cpu().contiguous() for key, value in state.items()}
    # as bytes: by itself safetensors writes to a file of its own, which would stay behind where the process is killed
    content = save(ready, {**(metadata or {}), _DIGEST: _digest(ready, metadata or {})})
    with run.whole(name) as path:
        path.write_bytes(content)


def read_tensors(run: RunFiles, name: str) -> tuple[State, dict[str, str]]:
    """Tensors and metadata of a .safetensors file, refused where they are not those that were written."""
    try:
        with safe_open(run.file(name), "pt") as file:
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _unreadable(run, name, error) from error
    wanted = metadata.pop(_DIGEST, None)
    if wanted is not None and wanted != _digest(state, metadata):
        raise _unreadable(run, name, "it is not as it was written")
    return state, metadata


def read_metadata(run: RunFiles, name: str) -> dict[str, str]:
    """The metadata of a .safetensors file; none of its tensors is read."""
    try:
        with safe_open(run.file(name), "np") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise _unreadable(run, name, error) from error


@contextmanager
def fitting(run: RunFiles, name: str) -> Iterator[None]:
    """Say of which file it is that what it holds makes no network: it may be anyone's."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        if "out of memory" in str(error):
            raise
        raise _unreadable(run, name, " ".join(str(error).split())[:160] or type(error).__name__) from error


def _digest(state: State, metadata: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for key in sorted(state):
        value = state[key]
        digest.update(f"{key} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _unreadable(run: RunFiles, name: str, error: object) -> InputError:
    return InputError(f"The file {run.path / name} cannot be read ({error}); delete it to compute it again.")


class StageCheckpoint:
    """The state of an unfinished stage, in state/STAGE.safetensors."""

    def __init__(self, run: Folder, stage: str) -> None:
        self._run, self._name = run, f"state/{stage}.safetensors"

    @property
    def epochs_done(self) -> int:
        """Epochs that the kept state has behind it; 0 where none is kept. Reads no tensor."""
        return self._done(self._run.read_metadata(self._name)) if self._run.has(self._name) else 0

    def load(self) -> tuple[State, int] | None:
        """State and number of epochs done, if any."""
        if not self._run.has(self._name):
            return None
        state, metadata = self._run.read_tensors(self._name)
        return state, self._done(metadata)

    def _done(self, metadata: dict[str, str]) -> int:
        try:
            return int(metadata["epochs_done"])
        except (KeyError, ValueError) as error:
            raise _unreadable(self._run, self._name, "it does not say how many epochs are done") from error

    def save(self, state: State, epochs_done: int) -> None:
        """Keep this state instead of the one before."""
        self._run.write_tensors(self._name, state, {"epochs_done": str(epochs_done)})

    def clear(self) -> None:
        """Forget it: the stage is finished."""
        self._run.remove(self._name)
