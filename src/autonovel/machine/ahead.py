"""Work that is done in a thread while what it gave before is in use."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], room: int = 2) -> Iterator[T]:
    """The items in their order, made in a thread while those before are in use, at most ``room`` of them in advance.

    What goes wrong there is raised here; where the items are not used to their end, the thread ends early.
    """
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(room)
    enough = threading.Event()

    def make() -> None:
        source = iter(items)
        try:
            for item in source:
                ready.put((True, item))
                if enough.is_set():
                    return
            ready.put((False, None))
        except BaseException as error:
            ready.put((False, error))
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()  # a generator cleans up in the thread that it ran in

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            more, item = ready.get()
            if not more:
                if item is not None:
                    raise item  # type: ignore[misc]
                return
            yield item  # type: ignore[misc]
    finally:
        enough.set()
        while thread.is_alive():  # it may wait for room
            try:
                ready.get(timeout=0.05)
            except queue.Empty:
                continue
        thread.join()
