"""The run folder of several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.runs.answers import ImageRecord, MachineAnswers
from autonovel.runs.files import different, flat
from autonovel.runs.folder import Folder

if TYPE_CHECKING:
    from autonovel.machine.processes import World
    from autonovel.runs.weights import State

T = TypeVar("T")


class SharedFolder(Folder):
    """The run folder of several processes: the first one reads and writes it, and tells the others what it read.

    So the folder need not be on a disk that all machines see.
    """

    def __init__(self, path: str | os.PathLike[str], world: World) -> None:
        super().__init__(path)
        self._world, self._own = world, Folder(path)

    def _keep(self, what: str, file: str, make: Callable[[], T]) -> T:
        """Made anew each time, so that all processes ask the first one equally often."""
        return make()

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self._world.from_first(lambda: self._own.finished)

    @property
    def machine(self) -> MachineAnswers:
        """What the machine answered."""
        return self._world.from_first(lambda: self._own.machine)

    @property
    def images(self) -> Sequence[ImageRecord]:
        """All images of the run."""
        return self._world.from_first(lambda: self._own.images)

    @property
    def edits(self) -> list[dict[str, Any]]:
        """What a person changed."""
        return self._world.from_first(lambda: self._own.edits)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per epoch and stage."""
        return self._world.from_first(lambda: self._own.metrics)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._world.from_first(lambda: self._own.has(name))

    def read_json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file."""
        return self._world.from_first(lambda: self._own.read_json(name))

    def read_tensors(self, name: str) -> tuple[State, dict[str, str]]:
        """Tensors and metadata of a .safetensors file."""
        return self._world.from_first(lambda: self._own.read_tensors(name))

    def read_metadata(self, name: str) -> dict[str, str]:
        """The metadata of a .safetensors file."""
        return self._world.from_first(lambda: self._own.read_metadata(name))

    @contextmanager
    def claim(self, config: dict[str, Any], keep: Sequence[str] = ()) -> Iterator[None]:
        """Make the folder this run's own, and see that all processes mean the same run."""
        theirs, mine = flat(self._world.from_first(lambda: config["run"])), flat(config["run"])
        if differ := different(mine, theirs):
            raise InputError(
                f"Process {self._world.rank} and the first one do not have the same {differ[0]}; "
                "give all of them the same images and options."
            )
        with ExitStack() as stack:
            self._world.from_first(lambda: stack.enter_context(self._own.claim(config, keep)))
            yield

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        if self._world.first:
            self._own.write_json(name, content)

    def write_last(self, name: str, content: Any) -> None:
        """Write the last file of a run."""
        if self._world.first:
            self._own.write_last(name, content)

    def write_rows(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file."""
        if self._world.first:
            self._own.write_rows(name, header, rows)

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a .npy file."""
        if self._world.first:
            self._own.write_array(name, array)

    def write_arrays(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write a .npz file."""
        if self._world.first:
            self._own.write_arrays(name, arrays)

    def write_tensors(self, name: str, tensors: State, metadata: dict[str, str] | None = None) -> None:
        """Write a .safetensors file."""
        if self._world.first:
            self._own.write_tensors(name, tensors, metadata)

    def write_thumbnails(self, images: npt.NDArray[Any]) -> None:
        """Write the contact sheets."""
        if self._world.first:
            self._own.write_thumbnails(images)

    def remove(self, name: str) -> None:
        """Delete a file."""
        if self._world.first:
            self._own.remove(name)

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        if self._world.first:
            self._own.append_metrics(entry)

    def forget_metrics(self, stage: str, since: int) -> None:
        """Drop the lines of epochs that will be done again."""
        if self._world.first:
            self._own.forget_metrics(stage, since)
