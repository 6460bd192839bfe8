"""What the scripts that train share."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from autonovel.progress import Silent
from autonovel.settings import Recipe


def say(text: str) -> None:
    """A line with the time, at once."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Log(Silent):
    """A line for each stage and every so many epochs, with the name of the run."""

    def __init__(self, name: str, every: int) -> None:
        self.name, self.every, self.stage = name, every, ""

    def message(self, text: str) -> None:
        say(f"{self.name}: {text}")

    def start(self, stage: str, epochs: int, done: int) -> None:
        self.stage = stage
        self.message(f"{stage} starts, {epochs} epochs")

    def epoch(self, number: int, losses: dict[str, float | list[float]], seconds: float) -> None:
        if number == 0 or (number + 1) % self.every == 0:
            self.message(f"{self.stage} {number + 1}: {json.dumps(losses)} {seconds:.2f} s")


def with_epochs(recipe: Recipe, epochs: Sequence[int] | None) -> Recipe:
    """The recipe with other numbers of epochs (pretrain, supervised, joint), to try a script; as it is without."""
    if not epochs:
        return recipe
    stages = zip(("pretrain", "supervised", "joint"), epochs, strict=True)
    return replace(recipe, **{stage: replace(getattr(recipe, stage), epochs=n) for stage, n in stages})
