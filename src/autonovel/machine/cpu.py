"""What training has to know of a CPU: whether bfloat16 pays, and how to give each thread work of its own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

LEAST_SIDE = 16
"""Images under this many pixels stay in float32: on them, converting takes as long as bfloat16 saves."""


def has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 faster than in float32."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


@functools.cache
def single_threads(count: int) -> Executor:
    """A pool of ``count`` workers, each of which computes on a single thread. ``count`` is torch's number of threads."""

    def work_alone() -> None:
        torch.get_num_threads()  # a thread takes over the common number when it first asks for it, and never again
        torch.set_num_threads(1)

    pool = ThreadPoolExecutor(count, initializer=work_alone)
    all_started = threading.Barrier(count)
    list(pool.map(lambda _: all_started.wait(), range(count)))
    torch.set_num_threads(count)  # the number set last is the common one: put it back
    return pool


def side_by_side(jobs: Iterable[Callable[[], T]], /) -> list[T]:
    """The results of independent jobs in their order; each is on a thread of its own, as many at a time as torch has threads.

    Small matrices keep one thread busy, not several.
    """
    count = torch.get_num_threads()
    if count == 1:
        return [job() for job in jobs]
    return list(single_threads(count).map(lambda job: job(), jobs))
