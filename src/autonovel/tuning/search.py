"""The search itself: every combination on one probe task after another, the worse half left out on the way."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autonovel.base.chance import host_generator
from autonovel.base.errors import InputError, TrainingError, option
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.discovery.prepare import facts_of, prepare
from autonovel.discovery.resume import config_of
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.machine.progress import Reporter
from autonovel.runs.files import RunFiles, lock
from autonovel.runs.folder import Folder
from autonovel.settings.recipe import Recipe
from autonovel.settings.resolve import Asked, Resolved
from autonovel.tuning.result import Candidate, Tuned, Values, better_half, how_far_to_trust, rank
from autonovel.tuning.starts import Starts, digest
from autonovel.tuning.tasks import ProbeTask

TRIALS, BEST, TABLE = "trials.jsonl", "best.json", "tuned.json"
"""The files of a search: a line for each trial, the best recipe, the table."""


def grid(search: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of some fields.

    >>> grid({"joint.top_k": [3, 5], "joint.lr": [0.1]})
    [{'joint.top_k': 3, 'joint.lr': 0.1}, {'joint.top_k': 5, 'joint.lr': 0.1}]
    """
    return [dict(zip(search, values, strict=True)) for values in itertools.product(*search.values())]


def to_compare(search: Mapping[str, Sequence[Any]], trials: int | None, seed: int) -> list[dict[str, Any]]:
    """Every combination of the values, or a random choice of ``trials`` of them."""
    if not search or not all(search.values()):
        raise InputError(f"There is nothing to compare; give fields and values as {option('search')}.")
    whole = grid(search)
    if trials is None or trials >= len(whole):
        return whole
    if trials < 1:
        raise InputError(f"{option('trials')} is {trials}; it must be at least 1.")
    chosen = torch.randperm(len(whole), generator=host_generator(seed, "trials"))[:trials]
    return [whole[place] for place in sorted(chosen.tolist())]


@dataclass
class Search:
    """One search in one folder; what was done there before is not done again.

    Attributes:
        out: the folder.
        recipe: to which the values are added.
        values: the combinations.
        settle: gives a recipe as it will be used on the whole data.
        tasks: the probe tasks.
        seeds: of the stage that discovers; stages before it are shared.
        mode: device and precision.
        reporter: sees the progress.
        halving: whether the worse half is left out after 1, 2, 4, ... trials.
        together: trials at the same time.
        cache: where features of a pre-trained network are kept.
        problems: files that were left out, or of which there is something to say.
    """

    out: Path
    recipe: Recipe
    values: Sequence[Values]
    settle: Callable[[Recipe], Recipe]
    tasks: Sequence[ProbeTask]
    seeds: Sequence[int]
    mode: Mode
    reporter: Reporter
    halving: bool = True
    together: int = 1
    cache: Path | None = None
    problems: Sequence[Problem] = ()
    _rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    _errors: list[Exception] = field(default_factory=list)
    _done: int = 0
    _telling: threading.Lock = field(default_factory=threading.Lock)
    _under_way: dict[str, threading.Lock] = field(default_factory=dict)

    @cached_property
    def recipes(self) -> list[Recipe]:
        """The recipe with each combination."""
        asked = Asked.of(self.recipe)
        return [asked.with_values(values).get() for values in self.values]

    @cached_property
    def settled(self) -> list[Recipe]:
        """The same as they will be used."""
        return [self.settle(recipe) for recipe in self.recipes]

    def go(self, n_known: int) -> Tuned:
        """Try, and write down what came out."""
        with self._own_folder():
            RunFiles(self.out).write_rows("problems.csv", PROBLEM_FIELDS, as_rows(self.problems))
            alive, scores = self._rounds()
            candidates = [
                self._candidate(number, number in alive, scores[number]) for number in range(len(self.values))
            ]
            if not alive:
                raise self._errors[0]
            order = rank(candidates)
            best = self.recipes[candidates.index(order[0])]
            n_hidden = len(self.tasks[0].hidden)
            tuned = Tuned(self.out, best, tuple(order), how_far_to_trust(order, n_known, n_hidden))
            RunFiles(self.out).write_json(BEST, best.to_dict())
            RunFiles(self.out).write_json(TABLE, tuned.to_dict())
        return tuned

    @contextmanager
    def _own_folder(self) -> Iterator[None]:
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / TRIALS).open("a+", encoding="utf-8") as self._log:
            if not lock(self._log, wait=False):
                raise InputError(
                    f"Another process is working in {self.out}; wait for it or choose another {option('out')}."
                )
            self._log.seek(0)
            whole, newline, _ = self._log.read().rpartition("\n")
            self._log.truncate(len(f"{whole}{newline}".encode()))  # a line that a kill cut off would spoil the next one
            rows = [self._row(number, line) for number, line in enumerate(whole.split("\n"), 1) if line]
            self._rows = {row["trial"]: row for row in rows if "acc" in row}
            for trial in self._rows:  # what a kill left of a trial that is done
                if str(trial).isalnum():  # anything else is no name of ours
                    shutil.rmtree(self.out / "runs" / str(trial), ignore_errors=True)
            yield

    def _row(self, number: int, line: str) -> dict[str, Any]:
        """A line of trials.jsonl."""
        try:
            row: dict[str, Any] = json.loads(line)
            _ = row["trial"]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"Line {number} of {self.out / TRIALS} is damaged; correct or delete that line.") from None
        return row

    def _rounds(self) -> tuple[list[int], dict[int, dict[int, dict[str, Any]]]]:
        """The numbers of the candidates that were tried to the end, and by candidate and round what came out."""
        rounds = [(task, seed) for seed in self.seeds for task in self.tasks]
        alive, scores = list(range(len(self.values))), {n: dict[int, dict[str, Any]]() for n in range(len(self.values))}
        steps = rungs(len(rounds), self.halving)
        for number, places in enumerate(steps):
            self._total = self._done + trials_to_come(len(alive), steps[number:])
            wanted = [(n, place) for place in places for n in alive]
            jobs = [partial(self._try, n, *rounds[place]) for n, place in wanted]
            for (n, place), row in zip(wanted, self._run(jobs), strict=True):
                scores[n][place] = row
            alive = [n for n in alive if all("acc" in row for row in scores[n].values())]
            if places is not steps[-1]:
                alive = better_half({n: _mean(scores[n]) for n in alive})
        return alive, scores

    def _run(self, jobs: Sequence[Callable[[], dict[str, Any]]]) -> list[dict[str, Any]]:
        # one after the other in this thread, where a signal reaches them, unless they are to run side by side
        return [job() for job in jobs] if self.together == 1 else side_by_side(jobs, at_once=self.together)

    def _try(self, number: int, task: ProbeTask, seed: int) -> dict[str, Any]:
        """One trial: what trials.jsonl says of it, or what comes out now."""
        recipe, values = self.settled[number], self.values[number]
        name = digest(config_of(task.data, recipe, task.n_new, seed)["run"])
        words = ", ".join(f"{field_}={value}" for field_, value in values.items())
        with self._telling:
            alone = self._under_way.setdefault(name, threading.Lock())  # combinations may settle to the same recipe
        with alone:
            self._try_once(name, number, task, seed)
        row = self._rows[name]
        result = f"ACC {row['acc']:.1%} in {row['seconds']:.0f} s" if "acc" in row else f"failed: {row['failed']}"
        hidden = f"{', '.join(task.hidden[:5])}{', ...' if len(task.hidden) > 5 else ''}"
        with self._telling:
            self._done += 1
            self.reporter.message(
                f"trial {self._done} of {self._total}: {words} (hidden: {hidden}; seed {seed}): {result}"
            )
        return row

    def _try_once(self, name: str, number: int, task: ProbeTask, seed: int) -> None:
        """The trial, unless trials.jsonl has it."""
        recipe, values = self.settled[number], self.values[number]
        if name not in self._rows:
            row = {"trial": name, "values": dict(values), "hidden": list(task.hidden), "seed": seed}
            try:
                row |= self._train(name, task, recipe, seed)
            except (InputError, TrainingError, RuntimeError) as error:
                if isinstance(error.__cause__, OSError):  # a full disk says nothing of the settings
                    raise
                row["failed"] = str(error).split("\n")[0]
                self._errors.append(error)
            with self._telling:
                self._log.write(json.dumps(row) + "\n")
                self._log.flush()
                self._rows[name] = row

    def _train(self, name: str, task: ProbeTask, recipe: Recipe, seed: int) -> dict[str, Any]:
        start = self._starts().before(task.data, recipe)
        began = time.perf_counter()
        run = Folder(self.out / "runs" / name)
        resolved = Resolved(recipe, (), Asked.of(recipe), facts_of(task.data, task.n_new, self.mode))
        job = prepare(task.data, resolved, task.n_new, seed, self.mode, cache=self.cache)
        run = job.run(run, start_from=start)
        acc = task.accuracy(run.machine.group)
        shutil.rmtree(run.path)
        return {"acc": acc, "seconds": round(time.perf_counter() - began, 2)}

    def _starts(self) -> Starts:
        return Starts(self.out / "starts", self.seeds[0], self.mode, self.reporter, self.cache)

    def _candidate(self, number: int, alive: bool, rows: Mapping[int, Mapping[str, Any]]) -> Candidate:
        done = [row for row in rows.values() if "acc" in row]
        failed = next((row["failed"] for row in rows.values() if "failed" in row), "")
        rounds = len(self.tasks) * len(self.seeds)
        left = failed or ("" if alive else f"left out after {len(done)} of {rounds}")
        seconds = sum(row["seconds"] for row in done) / max(1, len(done))
        own = self.recipes[number] == self.recipe
        return Candidate(dict(self.values[number]), tuple(row["acc"] for row in done), seconds, left, own)


def rungs(rounds: int, halving: bool) -> list[range]:
    """The rounds in groups, after each of which candidates are left out: after 1, 2, 4, ... of them, or never.

    >>> rungs(6, True), rungs(6, False)
    ([range(0, 1), range(1, 2), range(2, 4), range(4, 6)], [range(0, 6)])
    """
    stops = [0, *(2**n for n in range(rounds) if 2**n < rounds and halving), rounds]
    return [range(*pair) for pair in itertools.pairwise(stops)]


def trials_to_come(candidates: int, steps: Sequence[range]) -> int:
    """How many trials are left if half of the candidates go after each step."""
    total = 0
    for places in steps:
        total += candidates * len(places)
        candidates = min(candidates, max(2, (candidates + 1) // 2))
    return total


def _mean(rows: Mapping[int, Mapping[str, Any]]) -> float:
    return float(np.mean([row["acc"] for row in rows.values()]))
