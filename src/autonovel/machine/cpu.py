"""How training uses a CPU well. Imports torch only inside functions: one setting has to come before it."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

LEAST_SIDE = 16
"""Images under this many pixels stay in float32: on them, converting takes as long as bfloat16 saves."""

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's mallopt


SPINS = "2000"
"""Turns of the loop in which a thread waits for another one before it goes to sleep."""


def wait_briefly() -> None:
    """Let threads that wait for each other sleep soon; works until torch is imported, and leaves the user's own choice.

    By default they spin for milliseconds at the end of every operation. Where another program wants the same cores, the
    spinning takes the time that the thread waited for needs: steps took 2 to 30 times as long as on one thread. Without any
    spinning, they took 1.7 times as long as now on cores that have nothing else to do.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def has_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 faster than in float32."""
    import torch

    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def keep_memory() -> None:
    """Let memory that a step frees serve the next step, instead of going back to the system (Linux with glibc).

    Tensors above 32 MiB are otherwise mapped afresh each time, and clearing their pages takes a fifth of the step.
    """
    if sys.platform == "linux":
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, 1 << 30)
            mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


@functools.cache
def single_threads(count: int) -> Executor:
    """So many threads, each of which has one thread for its operations."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    def work_alone() -> None:
        torch.get_num_threads()  # a thread takes the common number when it is first asked, and then never again
        torch.set_num_threads(1)

    pool = ThreadPoolExecutor(count, initializer=work_alone)
    all_started = threading.Barrier(count)
    list(pool.map(lambda _: all_started.wait(), range(count)))
    torch.set_num_threads(count)  # the last number set is the common one
    return pool
