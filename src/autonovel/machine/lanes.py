"""Where a training works beside others: its streams or threads, and its part of a GPU's memory."""

from __future__ import annotations

import gc
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import torch

from autonovel.machine.processes import World

Ahead: TypeAlias = torch.cuda.Stream | Executor | None
"""Where a step makes ready what the next one learns from, if anywhere."""

T = TypeVar("T")

# Each training on CUDA has two streams. torch has 32, and hands them out again and again, so that a training that asked for
# new ones could meet another on the same stream. So they are kept and lent, to at most 16 trainings at a time.
_places = threading.Semaphore(16)
_idle_streams: dict[torch.device, list[tuple[torch.cuda.Stream, torch.cuda.Stream]]] = defaultdict(list)


@contextmanager
def own_place(device: torch.device, world: World, *, frozen: bool) -> Iterator[Ahead]:
    """Where a training works; gives where the next batch is made ready beside it.

    Several processes must sum up in one order, so there nothing runs beside anything.
    """
    if device.type == "cuda":
        with _own_streams(device) as (main, second):
            yield main if world.several else second
    elif frozen and torch.get_num_threads() > 1 and not world.several and _in_main_thread():
        with _half_the_threads() as thread:
            yield thread
    else:
        yield None


def _in_main_thread() -> bool:
    """Trainings in other threads run side by side already, and torch's number of threads is in part common to all."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _half_the_threads() -> Iterator[Executor]:
    """A thread beside this one, each with half of the threads for its operations.

    Operations of a small network gain little from a second core, so on two cores a step takes 0.7 to 0.85 of the time.
    """
    threads = torch.get_num_threads()
    half = (threads + 1) // 2
    torch.set_num_threads(half)
    try:
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(half,)) as thread:
            yield thread
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _own_streams(device: torch.device) -> Iterator[tuple[torch.cuda.Stream, torch.cuda.Stream]]:
    """Work on a stream of one's own, and have a second: capture needs it, and runs side by side do not wait for each other."""
    with _places:
        idle = _idle_streams[device]
        try:
            main, second = idle.pop()
        except IndexError:  # not asked before: another thread may take the last ones
            main, second = torch.cuda.Stream(device), torch.cuda.Stream(device)
        main.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.stream(main):
                yield main, second
        finally:  # also where training fails in the middle of an epoch
            main.synchronize()
            second.synchronize()
            idle.append((main, second))


class Room:
    """The memory of a GPU, where several trainings share it. All that a captured step needs is taken when it is set up."""

    def __init__(self) -> None:
        self._changed, self._one_sets_up = threading.Condition(), threading.Lock()
        self._trainings = self._ended = 0

    def wait_for(self, set_up: Callable[[], T]) -> T:
        """Set up a training's step; where memory is short and other trainings have some of it, wait until one of them ends."""
        while True:
            with self._one_sets_up:  # so that whoever finds no memory knows who has it
                with self._changed:
                    ended = self._ended
                try:
                    step = set_up()
                except torch.OutOfMemoryError:
                    with self._changed:
                        if not self._trainings and self._ended == ended:
                            raise
                else:
                    with self._changed:
                        self._trainings += 1
                    return step
            gc.collect()
            torch.cuda.empty_cache()
            with self._changed:
                while self._ended == ended:
                    self._changed.wait()

    def give_back(self) -> None:
        """The training is over."""
        with self._changed:
            self._trainings -= 1
            self._ended += 1
            self._changed.notify_all()


room = Room()
