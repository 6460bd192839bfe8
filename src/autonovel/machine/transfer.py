"""Copies to and from a GPU that nobody waits for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


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
