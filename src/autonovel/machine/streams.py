"""The lane of a training that runs beside others: its own streams or threads, and its part of a GPU's memory."""

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
"""Where the next batch is prepared while the current one is learned from: a stream, a thread, or nowhere."""

T = TypeVar("T")

# Each training on CUDA has two streams. torch has only 32 and hands them out in turn, so that a training that asked for new
# ones could end up on the stream of another. So they are kept and lent, to at most 16 trainings at a time.
_free_lanes = threading.Semaphore(16)
_idle_streams: dict[torch.device, list[tuple[torch.cuda.Stream, torch.cuda.Stream]]] = defaultdict(list)


@contextmanager
def own_lane(device: torch.device, world: World, *, frozen: bool) -> Iterator[Ahead]:
    """A lane for one training; yields where its next batch can be prepared meanwhile.

    Several processes must make their sums in the same order, so with them nothing runs in parallel. ``frozen`` says that
    the first blocks of the network do not learn, so that preparing a batch is enough work for a thread.
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
    """Trainings in other threads already run side by side, and torch's number of threads is partly shared among them."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _half_the_threads() -> Iterator[Executor]:
    """A second thread; it and this one each compute with half of torch's threads, and this one gets all of them back.

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
    """Work on a stream of one's own, and lend a second: capture needs it, and parallel runs do not wait for each other."""
    with _free_lanes:
        idle = _idle_streams[device]
        try:
            main, second = idle.pop()
        except IndexError:  # not checked beforehand: another thread may take the last pair
            main, second = torch.cuda.Stream(device), torch.cuda.Stream(device)
        main.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.stream(main):
                yield main, second
        finally:  # also when training fails in the middle of an epoch
            main.synchronize()
            second.synchronize()
            idle.append((main, second))


class Room:
    """The memory of a GPU that several trainings share. A captured step takes all it needs when it is set up."""

    def __init__(self) -> None:
        self._changed, self._one_sets_up = threading.Condition(), threading.Lock()
        self._trainings = self._ended = 0

    def wait_for(self, set_up: Callable[[], T]) -> T:
        """Set up a training's step; where other trainings leave too little memory, wait until one of them ends."""
        while True:
            with self._one_sets_up:  # one at a time, so that it is clear who holds the memory
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
        """The training is over; those that wait may try again."""
        with self._changed:
            self._trainings -= 1
            self._ended += 1
            self._changed.notify_all()


room = Room()
