"""How much memory is free, and what a training step keeps in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.machine.disk import in_gigabytes


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_free_on_machine(), _free_in_container())


def _free_on_machine() -> int:
    try:
        # "Available" includes memory in which the system merely keeps copies of files, such as the decoded images.
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # a system that does not say
        return 2 * 2**30


def _free_in_container(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that are free under the limit of a container; where there is no limit, more than any machine has."""
    for folder, limit, used, kept in (
        (groups, "memory.max", "memory.current", "inactive_file"),
        (groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            taken = int((folder / used).read_text()) - int(statistics.get(kept, 0))
            return max(0, int((folder / limit).read_text()) - taken)
        except (OSError, ValueError):  # the other version of control groups, no limit ("max"), or no control groups
            continue
    return sys.maxsize


def check_memory(n_bytes: float, what: str, instead: str, sharers: int = 1) -> None:
    """Refuse work that would not fit into memory, of which the system ends whoever has most: ``what`` it is, and what to do
    ``instead``. As many processes on this machine do the same as there are ``sharers``."""
    free = free_memory(torch.device("cpu")) / sharers
    if n_bytes > free:
        raise InputError(
            f"{what} about {in_gigabytes(n_bytes)} of memory and {in_gigabytes(free)} are free; {instead}."
        )


@contextmanager
def kept_for_gradients() -> Iterator[dict[int, int]]:
    """What is computed here keeps so many bytes until its gradients are there: by the address of their memory."""
    kept: dict[int, int] = {}

    def keep(values: Tensor) -> Tensor:
        memory = values.untyped_storage()
        kept[memory.data_ptr()] = memory.nbytes()
        return values

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda values: values):
        yield kept
