"""Work done in a thread while earlier results are in use."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class _Thread:
    """A thread that does one job after the other; a daemon, so that an iterator left in the middle holds up no exit."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def start(self, job: Callable[[], None]) -> threading.Event:
        """Begin the job; the event is set when it is done."""
        done = threading.Event()
        self._jobs.put((job, done))
        return done

    def is_alive(self) -> bool:
        """Whether it will ever do another job: when Python ends, threads stop in the middle."""
        return self._thread.is_alive() and not sys.is_finalizing()

    def _work(self) -> None:
        while True:
            job, done = self._jobs.get()
            job()
            del job  # holds images, perhaps
            done.set()


# Threads are kept, the one used last in front. torch keeps the plans of cuDNN by thread, so a new thread would plan every layer
# again for every batch size. With threads kept and few batch sizes, an H200 sorts photographs several times as fast. Since an
# iterator that uses another one begins before it and ends after it, each of them meets its own thread again.
_idle: list[_Thread] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked process has none of the threads


def prefetch(items: Iterable[T], room: int = 2) -> Iterator[T]:
    """The items in their order, made in a thread while those before are in use, at most ``room`` of them in advance.

    An error in the thread is raised here; when the caller stops early, no more items are made.
    """
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(room)
    enough = threading.Event()

    def make() -> None:
        try:
            source = iter(items)
            try:
                for item in source:
                    ready.put((True, item))
                    if enough.is_set():
                        return
            finally:
                close = getattr(source, "close", None)
                if close is not None:
                    close()  # a generator cleans up in the thread that it ran in
            ready.put((False, None))
        except BaseException as error:
            ready.put((False, error))

    try:
        thread = _idle.pop()
    except IndexError:  # not checked beforehand: another thread may take the last one
        thread = _Thread()
    done = thread.start(make)
    try:
        while True:
            more, item = ready.get()
            if not more:
                done.wait()
                if item is not None:
                    raise item  # type: ignore[misc]
                return
            yield item  # type: ignore[misc]
    finally:
        enough.set()
        while not done.is_set() and thread.is_alive():
            try:
                ready.get(timeout=0.01)  # it may wait for room
            except queue.Empty:
                continue
        _idle.append(thread)
