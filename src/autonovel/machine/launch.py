"""Whether torchrun started this process as one of several. Imports no torch, so that the command line can ask at once."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that do one job together.

    Attributes:
        rank: the number of this process, from 0. The first one writes files and talks.
        size: how many there are.
        local_rank: its number on this machine.
        local_size: how many there are on this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def several(self) -> bool:
        """Whether there is anyone else."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this process writes and talks."""
        return self.rank == 0


def launched() -> Launch:
    """What torchrun says in the environment; alone where it says nothing."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not {*names, "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return Launch()
    return Launch(*(int(os.environ[name]) for name in names))
