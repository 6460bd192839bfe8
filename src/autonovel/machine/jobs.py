"""Several runs on one GPU at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from autonovel.machine.switches import default_environment

T = TypeVar("T")


def side_by_side(jobs: Sequence[Callable[[], T]], at_once: int | None = None) -> list[T]:
    """Run jobs in threads of this process and return their results in order.

    A captured step is one launch, and the training loop works on a stream of its own, so that the steps of several small
    runs fill each other's gaps; one run of CIFAR-10's size fills an H200 by itself. Randomness is a function of each run's
    own key, so a run gives what it would give alone, up to rounding: a stage may be long enough to be compiled in one case
    only, and on a CPU a run alone divides its threads differently where blocks are frozen. Jobs beyond ``at_once`` wait for
    their turn; on a GPU, jobs for which there is no memory wait until another one ends.
    """
    if not jobs:
        return []
    # CUDA otherwise loads the code of an operation on its first use, which breaks the capture of a step in another thread;
    # it reads this when it is first used
    with default_environment("CUDA_MODULE_LOADING", "EAGER"), ThreadPoolExecutor(at_once or len(jobs)) as pool:
        return list(pool.map(lambda job: job(), jobs))
