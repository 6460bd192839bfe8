"""What a search has found: the table, the best settings, and how far to trust them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autonovel.settings.recipe import Recipe

FEW_CLASSES = 10
"""With fewer known classes, the few that are hidden are no sample of what new ones may look like."""

TOO_CLOSE = 0.01
"""Of ACC. Who is no further than this behind the best is not left out: after a trial or two that may be chance."""

Values = Mapping[str, Any]
"""Fields of a recipe by name, and what they were set to."""


@dataclass(frozen=True)
class Candidate:
    """One combination of values.

    Attributes:
        values: what was set.
        accuracies: ACC on the probe classes, one for each trial, in the order of the trials.
        seconds: mean time of a trial, without stages that trials share.
        left: why it was not tried to the end; empty for one that was.
        own: whether these are the values of the recipe as it is.
    """

    values: Values
    accuracies: tuple[float, ...]
    seconds: float
    left: str = ""
    own: bool = False

    @property
    def mean(self) -> float:
        """Over all trials; -1 without any."""
        return statistics.fmean(self.accuracies) if self.accuracies else -1.0

    @property
    def spread(self) -> float:
        """Standard deviation of the sample; 0 for a single trial."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0


@dataclass(frozen=True)
class Tuned:
    """The result of :func:`autonovel.tune`.

    Attributes:
        path: the folder with trials.jsonl, tuned.json and best.json.
        recipe: the recipe with the best values.
        candidates: all that were tried, the best first.
        trust: how far to trust the order, in words.
    """

    path: Path
    recipe: Recipe
    candidates: tuple[Candidate, ...]
    trust: str

    @property
    def best(self) -> Values:
        """The values of the best candidate."""
        return self.candidates[0].values

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        shown = [asdict(c) | {"mean": c.mean, "spread": c.spread} for c in self.candidates]
        return {"best": dict(self.best), "candidates": shown, "trust": self.trust, "recipe": self.recipe.to_dict()}

    def __str__(self) -> str:
        return f"{table(self.candidates)}\n{self.trust}"


def rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best first; those that were tried to the end before those that were not, whatever their mean."""
    return sorted(candidates, key=lambda c: (bool(c.left), -len(c.accuracies), -c.mean))


def better_half(means: Mapping[int, float]) -> list[int]:
    """The candidates (by number) that go on to the next round: the better half, at least two, and all close to the best."""
    order = sorted(means, key=lambda number: (-means[number], number))
    close = [number for number in order if means[number] >= means[order[0]] - TOO_CLOSE]
    return sorted({*order[: max(2, (len(order) + 1) // 2)], *close})


def table(candidates: Sequence[Candidate]) -> str:
    """The candidates as lines of text, one column for each field."""
    fields = list(candidates[0].values)
    rows = [[*fields, "ACC", "trials", "s/trial", ""]]
    for c in candidates:
        notes = ", ".join(note for note in ("the recipe's own" if c.own else "", c.left) if note)
        score = f"{100 * c.mean:.1f}" + (f" ± {100 * c.spread:.1f}" if len(c.accuracies) > 1 else "")
        cells = [score, str(len(c.accuracies)), f"{c.seconds:.1f}"] if c.accuracies else ["–", "0", "–"]
        rows.append([*(str(c.values[name]) for name in fields), *cells, notes])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def how_far_to_trust(candidates: Sequence[Candidate], n_known: int, n_hidden: int) -> str:
    """In words: is the best ahead by more than chance moves it, and are there classes enough to say so?"""
    said = [_lead(candidates)]
    if n_known < FEW_CLASSES:
        said.append(
            f"Only {n_known} classes are known and {n_hidden} of them are hidden at a time, so this is a hint: new classes may "
            "well differ more from them than they do from each other."
        )
    return " ".join(said)


def _lead(candidates: Sequence[Candidate]) -> str:
    best, *others = [c for c in candidates if not c.left]
    if not others:
        return f"Only {_in_words(best)} was tried to the end, so there is nothing to compare it with."
    if all(c.accuracies == best.accuracies for c in others):
        return "All have exactly the same accuracy: the method that is used does not depend on these fields."
    second = others[0]
    apart = [a - b for a, b in zip(best.accuracies, second.accuracies, strict=True)]
    ahead, n = 100 * statistics.fmean(apart), len(apart)
    start = f"{_in_words(best)} is ahead of {_in_words(second)} by {ahead:.1f} points"
    if n == 1:
        return f"{start} in a single trial, which says nothing of chance."
    moves = 100 * statistics.stdev(apart)
    if ahead < moves:
        return (
            f"{start}, less than the {moves:.1f} by which that lead varies between the {n} trials: take them for equal."
        )
    return f"{start}, and that lead varies by {moves:.1f} between the {n} trials."


def _in_words(candidate: Candidate) -> str:
    return ", ".join(f"{name}={value}" for name, value in candidate.values.items())
