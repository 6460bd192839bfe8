"""Copies to and from a GPU that nobody waits for, and work on it in parts for which it has room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

T = TypeVar("T")


def in_parts(work: Callable[[Tensor], T], rows: Tensor, at_once: int) -> Iterator[T]:
    """What the work makes of these rows, part by part; of half as many at a time where a GPU has no room for a part.

    No rows are a part too, so that the work can say what it makes of none.
    """
    if not len(rows):
        yield work(rows)
    while len(rows):
        try:
            done = [work(rows[:at_once])]
        except torch.OutOfMemoryError:
            if min(at_once, len(rows)) == 1:
                raise
            done = []
        yield from done
        if done:
            rows = rows[at_once:]
        else:  # now that the error holds no tensor any more
            torch.cuda.empty_cache()
            at_once = min(at_once, len(rows)) // 2


def send(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device; a GPU fetches them when it gets there, from memory that stays in its place."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


class Arriving:
    """Values on their way from the device."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._arrived: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(values.device))

    def __len__(self) -> int:
        return len(self._values)

    def numpy(self) -> npt.NDArray[Any]:
        """The values, as soon as they are here."""
        if self._arrived is None:
            return self._values.numpy()
        self._arrived.synchronize()
        return np.array(self._values.numpy())  # the memory it lies in is scarce
