"""What torchrun tells this process about its place among several. Imports no torch: the command line asks before that."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that train together.

    Attributes:
        rank: the number of this process, from 0. The first one writes files and prints.
        size: how many processes there are.
        local_rank: its number on this machine.
        local_size: how many processes there are on this machine.
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
        """Whether this process writes files and prints."""
        return self.rank == 0


def launched() -> Launch:
    """What torchrun put into the environment; alone where it did not start this process."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not {*names, "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return Launch()
    return Launch(*(int(os.environ[name]) for name in names))
