"""The switches of the whole process that make training faster. A command sets them; the library never does.

Imports no torch: one of them has to be set before torch is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SPINS = "2000"
"""Turns of the loop in which a thread waits for another one before it goes to sleep."""

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's mallopt


def set_for_command() -> None:
    """Set every switch that a program whose one job is training wants; call it first, before torch is imported.

    Everything works without it, only slower on a CPU. A script of your own may call it too.
    """
    _wait_briefly()
    _keep_memory()


def _wait_briefly() -> None:
    """Let threads that wait for each other sleep soon; has an effect until torch is imported, and respects the user's choice.

    By default they spin for milliseconds at the end of every operation. Where another program wants the same cores, the
    spinning takes the time that the thread waited for needs: steps took 2 to 30 times as long as on one thread. Without any
    spinning, they took 1.7 times as long as now on cores that have nothing else to do.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def _keep_memory() -> None:
    """Let memory that a step frees serve the next step, instead of going back to the system (Linux with glibc).

    Tensors above 32 MiB are otherwise mapped afresh each time, and clearing their pages takes a fifth of the step.
    """
    if sys.platform == "linux":
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, 1 << 30)
            mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


@contextmanager
def default_environment(name: str, value: str) -> Iterator[None]:
    """Give an environment variable a value for a while, unless the user has set it; afterwards it is as it was before."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
