"""Items made in a thread while those before are in use."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from autonovel.machine.prefetch import prefetch


def test_items_come_in_their_order_and_are_made_elsewhere() -> None:
    made_by = []

    def make() -> Iterator[int]:
        for i in range(20):
            made_by.append(threading.get_ident())
            yield i

    assert list(prefetch(make())) == list(range(20))
    assert set(made_by) != {threading.get_ident()}
    assert list(prefetch([])) == []


def test_what_goes_wrong_there_is_raised_here_after_the_items_before() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    found = prefetch(make())
    assert next(found) == 1
    with pytest.raises(ValueError, match="no more"):
        next(found)


def test_no_more_is_made_than_there_is_room_for_and_an_early_end_ends_the_thread() -> None:
    made, closed = [], threading.Event()

    def make() -> Iterator[int]:
        try:
            for i in range(1000):
                made.append(i)
                yield i
        finally:
            closed.set()

    found = prefetch(make(), room=3)
    assert next(found) == 0
    assert not closed.wait(0.2)
    assert len(made) <= 5  # one in use, three that wait, one that waits for room
    found.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert len(made) < 10


def test_each_of_two_that_use_each_other_meets_its_thread_again() -> None:
    def outer(found: list[int]) -> Iterator[int]:
        found.append(threading.get_ident())
        yield from prefetch(inner(found))

    def inner(found: list[int]) -> Iterator[int]:
        found.append(threading.get_ident())
        yield from range(5)

    def threads(used: int | None = None) -> list[int]:
        found: list[int] = []
        items = prefetch(outer(found))
        for _ in range(5 if used is None else used):
            next(items)
        items.close()  # type: ignore[attr-defined]
        return found

    first = threads()
    assert len({*first, threading.get_ident()}) == 3
    assert threads() == first
    assert threads(used=1) == first  # left in the middle
    assert threads() == first


def test_a_thread_survives_what_goes_wrong_in_it() -> None:
    class Stubborn:
        def __iter__(self) -> "Stubborn":
            return self

        def __next__(self) -> int:
            return 1

        def close(self) -> None:
            raise ValueError("will not close")

    stubborn = prefetch(Stubborn())
    assert next(stubborn) == 1
    stubborn.close()  # type: ignore[attr-defined]
    assert list(prefetch(range(3))) == [0, 1, 2]


def test_an_iterator_left_in_the_middle_holds_up_no_exit() -> None:
    words = (
        "import builtins, time; from autonovel.machine.prefetch import prefetch\n"
        "def slow():\n    while True:\n        yield 1\n        time.sleep(0.01)\n"
        "builtins.kept = prefetch(slow()); next(builtins.kept)\n"
    )
    assert subprocess.run([sys.executable, "-c", words], timeout=60, check=False).returncode == 0
