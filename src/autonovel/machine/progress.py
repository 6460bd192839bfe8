"""Progress of the work: a bar on a terminal and in a notebook, plain lines elsewhere; on stderr but in a notebook."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, TextIO

from autonovel.base.screen import printable, say
from autonovel.machine.launch import launched

Losses = dict[str, float | list[float]]

Stages = Sequence[tuple[str, int]]
"""Names of stages, with the epochs of each."""

WORTH_SAYING = 20.0
"""Seconds that a run must be expected to take for that to be said at its beginning."""
FIRST_STEPS = 5.0
"""Seconds of an epoch after which its steps say how long it takes."""
LONG_SILENCE = 30.0
"""Seconds without a line after which one says how far an epoch is."""


class Reporter:
    """Says nothing. The base of the others."""

    def message(self, text: str) -> None:
        """A sentence about what is going on."""

    def counter(self, what: str) -> Callable[[int, int], None]:
        """A function to call from time to time with how many are done, and how many there are."""
        started = last = time.monotonic()

        def tell(done: int, total: int) -> None:
            nonlocal last
            now = time.monotonic()
            # seldom where it takes long: a tenth of the time that has passed
            if now - last > max(2.0, (now - started) / 10):
                last = now
                left = (now - started) * (total - done) / max(1, done)
                soon = f", {_roughly(left)} left" if left > WORTH_SAYING else ""
                self.message(f"{what}: {done:,} of {total:,}{soon}")

        return tell

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Something is done whose end cannot be foreseen."""
        yield

    def plan(self, stages: Stages, shorter: tuple[str, Stages] | None = None) -> None:
        """All stages to come, in order, with the epochs of each; called before the first begins.

        ``shorter`` is what to type for another recipe, and its stages.
        """

    def start(self, stage: str, epochs: int, done: int) -> None:
        """A stage begins, or continues after this many epochs."""

    def step(self, done: int, steps: int) -> None:
        """``done`` of the ``steps`` of the current epoch are done. Not called on a GPU, where an epoch takes seconds."""

    def epoch(self, number: int, losses: Losses, seconds: float) -> None:
        """An epoch (counted from 0) is over."""

    def finish(self) -> None:
        """The stage is over."""


class TimeLeft:
    """How long the rest of a run takes, learned from its epochs so far.

    An epoch takes what the latest one of its stage took. A stage that has not begun is taken to be like the same stage of
    another network (``joint-2`` like ``joint``), or else like the stage under way; the answer is then a guess. Before the first
    epoch of a stage is over, its steps tell how long it takes.
    """

    def __init__(self) -> None:
        self._stages: list[tuple[str, int]] = []
        self._stage, self._done = 0, 0
        self._rates: dict[str, float] = {}
        self._by_steps: dict[str, float] = {}
        self._under_way = 0.0
        self.spent = 0.0

    def plan(self, stages: Stages) -> None:
        """What is to come."""
        self._stages, self._stage, self._done = list(stages), 0, 0

    def start(self, stage: str, epochs: int, done: int) -> None:
        """A stage begins; those planned before it are over. One that was not planned comes next."""
        names = [name for name, _ in self._stages]
        if stage in names[self._stage :]:
            self._stage = names.index(stage, self._stage)
            self._stages[self._stage] = (stage, epochs)
        else:
            self._stage += bool(self._stages)
            self._stages.insert(self._stage, (stage, epochs))
        self._done, self._under_way = done, 0.0

    def step(self, done: int, steps: int, seconds: float) -> None:
        """``done`` of the ``steps`` of the current epoch took this many seconds."""
        self._under_way = seconds
        self._by_steps[_family(self._stages[self._stage][0])] = seconds / done * steps

    def epoch(self, number: int, seconds: float) -> None:
        """An epoch of the stage that was started last is over."""
        self._done, self._under_way = number + 1, 0.0
        self._rates[_family(self._stages[self._stage][0])] = seconds
        self.spent += seconds

    @property
    def done(self) -> int:
        """Epochs of the stage under way that are over."""
        return self._done

    @property
    def left(self) -> float:
        """Seconds until all stages are over."""
        name, epochs = self._stages[self._stage]
        here = self._rate(name, 0.0)
        later = sum(n * self._rate(stage, here) for stage, n in self._stages[self._stage + 1 :])
        return max(0.0, here * (epochs - self._done) - self._under_way) + later

    def whole(self, stages: Stages | None = None) -> float:
        """Seconds that all stages take, or other ones with epochs like these."""
        if stages is None:
            return self.spent + self._under_way + self.left
        here = self._rate(self._stages[self._stage][0], 0.0)
        return sum(n * self._rate(stage, here) for stage, n in stages)

    def _rate(self, stage: str, otherwise: float) -> float:
        family = _family(stage)
        return self._rates.get(family, self._by_steps.get(family, otherwise))

    @property
    def share(self) -> float:
        """How much of the whole time is over."""
        return (self.spent + self._under_way) / max(1e-9, self.whole())

    @property
    def guessed(self) -> bool:
        """Whether a stage is to come that nothing is known of yet."""
        return any(_family(stage) not in self._rates for stage, epochs in self._stages[self._stage + 1 :] if epochs)

    @property
    def settled(self) -> bool:
        """Whether enough was seen to say how long the run takes: a first epoch is often slow, and unlike the others."""
        return self._done > 1 or self.spent > WORTH_SAYING or (len(self._rates) > 1 and self._done > 0)

    def __str__(self) -> str:
        return f"{'about ' if self.guessed else ''}{_clock(self.left)} left"


class _Talking(Reporter):
    """Common to bars and lines: the time left, and the whole time, announced once at the beginning."""

    def __init__(self) -> None:
        self._left, self._to_announce = TimeLeft(), False
        self._shorter: tuple[str, Stages] | None = None
        self._since = time.monotonic()

    def plan(self, stages: Stages, shorter: tuple[str, Stages] | None = None) -> None:
        """Remember what is to come."""
        self._left.plan(stages)
        self._to_announce, self._shorter = True, shorter

    def start(self, stage: str, epochs: int, done: int) -> None:
        """Remember where the run is."""
        self._left.start(stage, epochs, done)
        self._since = time.monotonic()
        if done:
            self.message(f"{stage}: resuming after epoch {done} of {epochs}")

    def step(self, done: int, steps: int) -> None:
        """Learn how long an epoch will take; where one takes long, say it before the first is over."""
        seconds = time.monotonic() - self._since
        self._left.step(done, steps, seconds)
        if done > 2 and seconds > FIRST_STEPS:
            self._announce()

    def epoch(self, number: int, losses: Losses, seconds: float) -> None:
        """Learn how long an epoch takes, and say once how long all of them take."""
        self._since = time.monotonic()
        self._left.epoch(number, seconds)
        if self._left.settled:
            self._announce()

    def _announce(self) -> None:
        if not self._to_announce:
            return
        self._to_announce = False
        whole = self._left.whole()
        if whole <= WORTH_SAYING:
            return
        other = ""
        if self._shorter is not None and (less := self._left.whole(self._shorter[1])) < 0.8 * whole:
            other = f"; {self._shorter[0]} {_roughly(less)}"
        self.message(f"training takes {_roughly(whole)} on this machine{other}")


class Lines(_Talking):
    """One line an epoch, with the time left over all stages.

    Args:
        stream: where to; stderr when left out.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream, self._last = stream, 0.0
        self._stage, self._epochs, self._number = "", 0, 0

    def message(self, text: str) -> None:
        """Print the sentence."""
        say(text, self._stream or sys.stderr)

    def start(self, stage: str, epochs: int, done: int) -> None:
        """Remember how many epochs there are."""
        super().start(stage, epochs, done)
        self._stage, self._epochs, self._number = stage, epochs, done

    def step(self, done: int, steps: int) -> None:
        """Within a long epoch, a line now and then."""
        super().step(done, steps)
        now = time.monotonic()
        if done < steps and now - max(self._last, self._since) > LONG_SILENCE:
            self._last = now
            self.message(f"{self._stage} {self._number + 1}/{self._epochs}, step {done} of {steps}  {self._left}")

    def epoch(self, number: int, losses: Losses, seconds: float) -> None:
        """Print number, losses and time left."""
        super().epoch(number, losses, seconds)
        self._number, self._last = number + 1, time.monotonic()
        self.message(f"{self._stage} {self._number}/{self._epochs}  {_shown(losses)}  {seconds:.2f} s  {self._left}")


class _Moving(_Talking):
    """Common to the bars of a terminal and of a notebook: one bar over all stages, and one for what is counted before them."""

    def __init__(self) -> None:
        super().__init__()
        self._share, self._stage, self._epochs, self._losses = 0.0, "", 0, ""

    def draw(self, text: str, share: float, left: str, losses: str) -> None:
        """Show the bar like this."""
        raise NotImplementedError

    def start(self, stage: str, epochs: int, done: int) -> None:
        """Show the bar."""
        super().start(stage, epochs, done)
        self._stage, self._epochs, self._losses = stage, epochs, ""
        self.draw(self._where(done), self._share, "", "")

    def epoch(self, number: int, losses: Losses, seconds: float) -> None:
        """Move the bar."""
        super().epoch(number, losses, seconds)
        self._losses = _shown(losses)
        self._move(number + 1)

    def step(self, done: int, steps: int) -> None:
        """Move the bar within an epoch."""
        super().step(done, steps)
        self._move(self._left.done)

    def counter(self, what: str) -> Callable[[int, int], None]:
        """A function that moves the bar; what takes less than half a second shows none."""
        started = time.monotonic()

        def tell(done: int, total: int) -> None:
            spent = time.monotonic() - started
            if spent > 0.5 and done < total:
                self.draw(
                    f"{what} {done:,}/{total:,}",
                    done / total,
                    f"{_clock(spent * (total - done) / max(1, done))} left",
                    "",
                )
            elif done >= total:
                self.finish()

        return tell

    def _move(self, done: int) -> None:
        # a stage that turns out to be slower than was thought does not move the bar back
        self._share = max(self._share, self._left.share)
        self.draw(self._where(done), self._share, str(self._left), self._losses)

    def _where(self, done: int) -> str:
        return f"{self._stage} {done}/{self._epochs}" if self._epochs else self._stage


class Bars(_Moving):
    """One progress bar over all stages, for terminals. It is there while something is under way."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        super().__init__()
        columns = [
            SpinnerColumn(),
            TextColumn("{task.description:<18}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[losses]}", style="dim"),
        ]
        self._progress: Any = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("", total=1.0, left="", losses="", start=False)

    def message(self, text: str) -> None:
        """Print the sentence above the bar."""
        self._progress.console.print(printable(text), highlight=False, markup=False)  # a path may hold [brackets]

    def draw(self, text: str, share: float, left: str, losses: str) -> None:
        """Show the bar, if it is not there yet."""
        self._progress.update(self._task, description=text, completed=share, left=left, losses=losses)
        self._progress.start_task(self._task)
        self._progress.start()

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show what is done, and that it goes on."""
        self.draw(what, self._share, "", "")
        try:
            yield
        finally:
            self.finish()

    def finish(self) -> None:
        """Take the bar away."""
        self._progress.stop()


class Notebook(_Moving):
    """One progress bar over all stages, in the output of a notebook's cell, with the sentences above it."""

    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None
        self._drawn = 0.0

    def message(self, text: str) -> None:
        """Print the sentence; the bar is shown again below it."""
        self.finish()
        say(text)

    def draw(self, text: str, share: float, left: str, losses: str) -> None:
        """Show the bar, or move the one that is there: a few times a second at most."""
        from IPython.display import HTML, display

        now = time.monotonic()
        if self._handle is not None and now - self._drawn < 0.2:
            return
        self._drawn = now
        words = escape("  ".join(part for part in (text, left, losses) if part))
        bar = HTML(f'<progress value="{share:.4f}" max="1" style="width: 20em"></progress> {words}')
        if self._handle is None:
            self._handle = display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def finish(self) -> None:
        """Take the bar away."""
        if self._handle is not None:
            from IPython.display import HTML

            self._handle.update(HTML(""))
            self._handle = None


def make_reporter(verbose: bool = True) -> Reporter:
    """A bar on a terminal and in a notebook, lines elsewhere; of several processes only the first one talks."""
    if not verbose or not launched().first:
        return Reporter()
    if in_notebook():
        return Notebook()
    return Bars() if sys.stderr.isatty() else Lines()


def in_notebook() -> bool:
    """Whether this is a Jupyter notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _family(stage: str) -> str:
    """The stage that this one is like: ``joint-2`` like ``joint``, ``supervised-probe`` like ``supervised``."""
    return re.sub(r"-(\d+|probe)$", "", stage)


def _shown(losses: Losses) -> str:
    """The losses with their names; of several heads, the mean."""

    def mean(value: float | list[float]) -> float:
        return sum(value) / max(1, len(value)) if isinstance(value, list) else value

    return "  ".join(f"{name} {mean(value):.4f}" for name, value in losses.items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _roughly(seconds: float) -> str:
    """A time as one says it: about 40 seconds, 6 minutes, 2.5 hours."""
    if seconds < 90:
        return f"about {max(10, round(seconds, -1)):.0f} seconds"
    if seconds < 5400:
        return f"about {round(seconds / 60)} minutes"
    return f"about {round(seconds / 1800) / 2:g} hours"
