"""What the scripts that train share."""

from __future__ import annotations

import ast
import json
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autonovel.machine.progress import Reporter
from autonovel.methods.base import Method, Task
from autonovel.methods.supervised import KnownClasses
from autonovel.runs.files import lock
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.registry import OBJECTIVES, PRETRAINING, find
from autonovel.settings.resolve import Facts, settle
from autonovel.tuning.search import grid


def say(text: str) -> None:
    """A line with the time, at once."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Log(Reporter):
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


def brief(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what takes many lines."""
    return {name: value for name, value in summary.items() if name not in ("confusion", "matched")}


_writing = threading.Lock()


def add_row(file: Path, row: dict[str, Any]) -> None:
    """Add a line of JSON; runs side by side, in threads or processes, may do so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with _writing, file.open("a") as lines:
        lock(lines, wait=True)
        lines.write(json.dumps(row) + "\n")


def combinations(axes: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of the values of ``path=value,value``; paths joined by ``+`` move together, ``(1,4)`` is one value."""
    parts = [axis.partition("=") for axis in axes]
    return grid({name: [_value(text) for text in re.split(r",(?![^(]*\))", values)] for name, _, values in parts})


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def settled_for_cifar10(name: str) -> Recipe:
    """A recipe as a run on CIFAR-10 uses it, for scripts that train without a run."""
    return settle(get_recipe(name), Facts(50_000, known_classes=5, new_classes=5, side=32, channels=3, gpu=True))[0]


def pretraining(recipe: Recipe) -> Method:
    """The method of the recipe's first stage."""
    return find(PRETRAINING, recipe.pretrain.method, "--pretrain.method")(Task(recipe))


def known_classes(recipe: Recipe, n_known: int) -> Method:
    """The method of the stage that learns the known classes."""
    return KnownClasses(Task(recipe, n_known))


def joint_method(recipe: Recipe, n_known: int, n_new: int) -> Method:
    """The method of joint training."""
    return find(OBJECTIVES, recipe.joint.objective, "--joint.objective")(Task(recipe, n_known, n_new))
