"""What a person sees while the work goes on: a bar on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from autonovel.machine.launch import launched


class Reporter:
    """Says nothing. The base of the others."""

    def message(self, text: str) -> None:
        """A sentence about what is going on."""

    def counter(self, what: str) -> Callable[[int, int], None]:
        """A function that is told, from time to time, how many of how many are done."""
        last = [time.monotonic()]

        def tell(done: int, total: int) -> None:
            if time.monotonic() - last[0] > 2:
                last[0] = time.monotonic()
                self.message(f"{what}: {done:,} of {total:,}")

        return tell

    def start(self, stage: str, epochs: int, done: int) -> None:
        """A stage begins, or goes on after this many epochs."""

    def epoch(self, number: int, losses: dict[str, float | list[float]], seconds: float) -> None:
        """An epoch (counted from 0) is over."""

    def finish(self) -> None:
        """The stage is over."""


class Lines(Reporter):
    """One line an epoch, with the time left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._stage, self._epochs = "", 0

    def message(self, text: str) -> None:
        """Print the sentence."""
        print(text, file=self._stream, flush=True)

    def start(self, stage: str, epochs: int, done: int) -> None:
        """Remember how many epochs there are."""
        self._stage, self._epochs = stage, epochs
        if done:
            self.message(f"{stage}: going on after epoch {done} of {epochs}")

    def epoch(self, number: int, losses: dict[str, float | list[float]], seconds: float) -> None:
        """Print number, losses and time left."""
        done = number + 1
        left = seconds * (self._epochs - done)  # the latest epoch tells most: what comes before and between may be slow
        self.message(f"{self._stage} {done}/{self._epochs}  {_losses(losses)}  {seconds:.2f} s  {_clock(left)} left")


class Bars(Reporter):
    """A progress bar for each stage, for terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        columns = [
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[losses]}", style="dim"),
        ]
        self._progress: Any = Progress(*columns, console=self._console)
        self._task: Any = None

    def message(self, text: str) -> None:
        """Print the sentence above the bar."""
        self._progress.console.print(text, highlight=False, markup=False)  # a path may hold [brackets]

    def start(self, stage: str, epochs: int, done: int) -> None:
        """Show a bar."""
        self._progress.start()
        self._task = self._progress.add_task(stage, total=epochs, completed=done, losses="")

    def epoch(self, number: int, losses: dict[str, float | list[float]], seconds: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=number + 1, losses=_losses(losses))

    def finish(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()
        self._progress.remove_task(self._task)


def make_reporter() -> Reporter:
    """Bars on a terminal, lines elsewhere; of several processes only the first one talks."""
    if not launched().first:
        return Reporter()
    return Bars() if sys.stderr.isatty() else Lines()


def _losses(losses: dict[str, float | list[float]]) -> str:
    def mean(value: float | list[float]) -> float:
        return sum(value) if isinstance(value, list) else value

    return "  ".join(f"{name} {mean(value):.4f}" for name, value in losses.items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
