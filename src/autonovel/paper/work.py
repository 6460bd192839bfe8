"""Measures what is missing: one run after the other, first stages shared, true labels only afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autonovel.base.errors import InputError, TrainingError
from autonovel.data.benchmarks.splits import load_benchmark, one_alphabet
from autonovel.data.images import UNKNOWN, ImageSet, Truth
from autonovel.discovery.prepare import Job, prepare
from autonovel.discovery.resume import config_of
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.machine.progress import Losses, Reporter, Stages
from autonovel.methods.paired import used
from autonovel.paper.cells import Plan, Scale, on_scale
from autonovel.paper.drawing import draw_confusion
from autonovel.paper.measured import FILE, Measured, Results, about, as_line
from autonovel.paper.pictures import SHOWN, draw_accuracy, draw_epochs, draw_old_and_new, draw_rules, kept_after
from autonovel.paper.planned import Wanted, recipe_of
from autonovel.paper.tables import PICTURES
from autonovel.runs.files import flat, written
from autonovel.runs.folder import Folder, versions
from autonovel.tuning.starts import Starts

NUMERICS = 1
"""Raised when the same settings, data and seeds give other bits than before, so that cells are measured again."""


class BudgetSpentError(Exception):
    """The budget is spent."""


class AbsentError(Exception):
    """The data of a run are not here."""


class Watched(Reporter):
    """Another reporter, and an end of the work after the epoch in which the budget is spent."""

    def __init__(self, inner: Reporter, deadline: float) -> None:
        self._inner, self._deadline = inner, deadline

    def look(self) -> None:
        """End the work if it is time."""
        if time.monotonic() > self._deadline:
            raise BudgetSpentError

    def message(self, text: str) -> None:
        """Pass it on."""
        self._inner.message(text)

    def plan(self, stages: Stages, shorter: tuple[str, Stages] | None = None) -> None:
        """Pass it on."""
        self._inner.plan(stages, shorter)

    def start(self, stage: str, epochs: int, done: int) -> None:
        """No stage begins after the budget."""
        self.look()
        self._inner.start(stage, epochs, done)

    def step(self, done: int, steps: int) -> None:
        """Pass it on."""
        self._inner.step(done, steps)

    def epoch(self, number: int, losses: Losses, seconds: float) -> None:
        """No epoch begins after the budget; what was learned in this one is kept."""
        self._inner.epoch(number, losses, seconds)
        self.look()

    def finish(self) -> None:
        """Pass it on."""
        self._inner.finish()


@dataclass
class Work:
    """Where and how runs are made.

    Attributes:
        out: their folder: stages that runs share, the runs, further pictures.
        results: the folder of the lines that say what came out.
        root: the folder with the data.
        scale: of the schedules.
        device: where to compute.
        start_seed: of the stages that runs share.
        deadline: of the monotonic clock.
        reporter: sees the progress.
        unverified: accept data that differ from the published ones.
        command: what was typed.
        tried: settings of every run that are not the cell's, to try the machinery.
    """

    out: Path
    results: Path
    root: Path
    scale: Scale
    device: str = "auto"
    start_seed: int = 0
    deadline: float = float("inf")
    reporter: Reporter = Reporter()  # noqa: RUF009  # it keeps nothing
    unverified: bool = False
    command: str = ""
    tried: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watched = Watched(self.reporter, self.deadline)
        self.failed: list[str] = []
        self.absent: dict[str, str] = {}
        self._loaded: dict[str, tuple[ImageSet, Truth]] = {}
        self._loading = threading.Lock()

    @cached_property
    def mode(self) -> Mode:
        """Device and precision."""
        return Mode.of(self.device)

    def go(self, jobs: Sequence[Wanted], results: Results, together: int = 1) -> bool:
        """Make the runs that are not there yet; returns whether all could be tried before the budget was spent."""
        try:
            if together == 1:
                for job in jobs:
                    self.attempt(job, results)
            else:
                side_by_side([lambda j=job: self.attempt(j, results) for job in jobs], at_once=together)  # type: ignore[misc]
        except BudgetSpentError:
            return False
        return True

    def attempt(self, job: Wanted, results: Results) -> None:
        """One run, unless its line is there; a line for one that fails says why."""
        self.watched.look()
        try:
            data, truth = self._load(job.plan)
        except AbsentError:
            return
        try:
            if job.counts_alone:
                self._count(job, data, truth, results)
            else:
                self._measure(job, data, truth, results)
        except (InputError, TrainingError, RuntimeError, MemoryError) as error:
            reason = (str(error).strip() or type(error).__name__).split("\n")[0]
            self._write(
                Measured(about(job.plan), self.scale, job.seed, {}, self.start_seed, failed=reason, where=self.where)
            )
            self.failed.append(f"{job.name}: {reason}")
            self.reporter.message(f"FAILED {job.name}: {reason}")

    def _measure(self, job: Wanted, data: ImageSet, truth: Truth, results: Results) -> None:
        work, key = self._prepared(job, data, truth)
        if is_done(results, job, self.scale, key):
            return
        self.reporter.message(f"{job.name} ({self.scale})")
        run = self._run(job, work, key, truth)
        scores = {**scores_of(run, job.plan.until), **_classes(data, truth)}
        line = Measured(about(job.plan), self.scale, job.seed, scores, self.start_seed, key, where=self.where | _device(run),
                        seconds=seconds_of(run), command=self.command,
                        note=f"tried with {dict(self.tried)}" if self.tried else "")  # fmt: skip
        self._write(line)
        told = ", ".join(
            f"{name} {scores[name]:.4g}" for name in job.scores if isinstance(scores.get(name), int | float)
        )
        self.reporter.message(f"RESULT {job.name}: {told}")

    def _prepared(self, job: Wanted, data: ImageSet, truth: Truth) -> tuple[Job, str]:
        """The run, with everything decided, and its key."""
        n_true = len(truth.class_names) - data.n_known
        asked = job.plan.n_new
        n_new = n_true if asked == "true" else None if asked == "auto" else asked
        mode = self.mode
        if job.plan.data.startswith("omniglot"):
            # the first half of a step is the same for all alphabets; the second would be compiled for every number of characters
            mode = replace(mode, compile_from=0.0, compile_losses=False)
        recipe = recipe_of(job.plan, self.scale, self.tried)
        keep = kept_after(recipe.joint.epochs) if job.plan in self._pictured else ()
        work = prepare(data, recipe, n_new, job.seed, mode, self.watched, keep=keep)
        return work, self.key(data, work.recipe, n_new, job.seed)

    def _run(self, job: Wanted, work: Job, key: str, truth: Truth) -> Folder:
        starts = Starts(self.out / "stages", self.start_seed, work.mode, self.watched, progress=self.watched)
        start = starts.before(work.data, work.recipe, estimated=work.n_new is None)
        run = Folder(self.out / "cells" / f"{job.name}-{self.scale}-{key[:8]}")
        return work.run(run, truth=truth, start_from=start, until=job.plan.until or None)

    @cached_property
    def _pictured(self) -> list[Plan | None]:
        """Plans of whose runs pictures are made."""
        return [on_scale(plan, self.scale) for _, plans in PICTURES.values() for plan in plans]

    def draw(self, name: str, folder: Path, results: Results) -> Path | None:
        """Make the runs of a picture that are not there yet, and draw it; nothing where their data are not here."""
        plans = [plan for one in PICTURES[name][1] if (plan := on_scale(one, self.scale)) is not None]
        jobs = [Wanted(f"{name}.{number}.s0", plan, ("acc_new",), 0) for number, plan in enumerate(plans)]
        if name == "ranking":  # the rules are compared on the features of one run
            jobs = [job for job in jobs if not job.plan.changes]
        own: list[Folder] = []
        for job in jobs:
            self.attempt(job, results)
            try:
                data, truth = self._load(job.plan)
            except AbsentError:
                return None
            if any(failed.startswith(f"{job.name}:") for failed in self.failed):
                return None
            work, key = self._prepared(job, data, truth)
            there = next(self.out.glob(f"cells/*-{self.scale}-{key[:8]}"), None)
            own.append(
                Folder(there) if there is not None else self._run(job, work, key, truth)
            )  # a line may outlive its folder
        if not own:
            return None
        file = folder / f"{name}.png"
        if name.startswith("confusion"):
            titles = ("Ours", "w/ I.L.") if len(own) > 1 else ("Ours",)
            return draw_confusion({t: run.summary for t, run in zip(titles, own, strict=True)}, file)
        if name in ("tsne-incremental", "curves"):
            both = dict(zip(("Ours", "w/ I.L."), own, strict=True))
            if name == "curves":
                return draw_accuracy(both, data, truth, file)
            return draw_old_and_new(both, data, truth, file)
        if name == "tsne":
            at = sorted({round(share * work.recipe.joint.epochs) for share in SHOWN})
            return draw_epochs(own[0], at, truth.labels[~data.is_labelled], truth.class_names, file)
        return draw_rules(own[0], data, truth, file)

    def check(self, job: Wanted) -> tuple[bool, str]:
        """Make a run, and once more in folders of its own; whether it came out the same, and a sentence about it.

        On a CPU the same means the same bits. On a GPU sums are taken in an order that is not fixed: there, within a point.
        """
        data, truth = self._load(job.plan)
        again = replace(self, out=self.out / "check")
        runs = [one._run(job, *one._prepared(job, data, truth), truth) for one in (self, again)]
        states = [run.read_tensors(f"{run.summary['answering_stage']}.safetensors")[0] for run in runs]
        same = states[0].keys() == states[1].keys() and all(
            torch.equal(states[0][name], states[1][name]) for name in states[0]
        )
        accuracies = [run.summary["acc_new"] for run in runs]
        told = f"{job.name}: {100 * accuracies[0]:.2f} and {100 * accuracies[1]:.2f}"
        if same:
            return True, f"{told}; every weight has the same bits."
        near = self.mode.device.type == "cuda" and abs(accuracies[0] - accuracies[1]) <= 0.01
        return near, f"{told}; weights differ{', as they may on a GPU' if near else ''}."

    def _count(self, job: Wanted, data: ImageSet, truth: Truth, results: Results) -> None:
        """Numbers of classes, which the data say."""
        if not any(all(score in run.scores for score in job.scores) for run in results.runs(job.plan, self.scale)):
            self._write(Measured(about(job.plan), self.scale, 0, _classes(data, truth), where=self.where))

    def key(self, data: ImageSet, recipe: Any, n_new: int | None, seed: int) -> str:
        """What a run depends on, as a short text: settings, data, seeds, and how the program computes; not its version."""
        own = config_of(data, recipe, n_new, seed)["run"]
        return hashlib.sha256(json.dumps([own, self.start_seed, NUMERICS], sort_keys=True).encode()).hexdigest()[:16]

    def _load(self, plan: Any) -> tuple[ImageSet, Truth]:
        """The data of a plan, of which the last ones are kept."""
        with self._loading:
            data, truth = self._read(plan.data)
        if not plan.labelled and data.n_known:
            data = replace(data, labels=np.full_like(data.labels, UNKNOWN), class_names=())
            truth = Truth(truth.labels, truth.class_names)
        return data, truth

    def _read(self, name: str) -> tuple[ImageSet, Truth]:
        family, _, part = name.partition(":")
        if name in self.absent:
            raise AbsentError
        if family == "omniglot" and part:  # one drawing is a file: all of them are read once, not for each alphabet
            return one_alphabet(*self._read(family), part)
        if name not in self._loaded:
            try:
                read_here = load_benchmark(name, self.root, unverified=self.unverified)
            except InputError as error:
                self.absent[name] = str(error)
                self.reporter.message(
                    f"needs {name} in {self.root} (autonovel data {name.partition(':')[0]} --root {self.root})"
                )
                raise AbsentError from None
            self._loaded = {name: read_here}
        return self._loaded[name]

    @cached_property
    def where(self) -> dict[str, Any]:
        """What made the lines."""
        cuda = {} if torch.version.cuda is None else {"cuda": torch.version.cuda}
        return {**commit_of(Path(__file__).parent), **versions(), **cuda, "date": str(date.today())}

    def _write(self, line: Measured) -> None:
        with written(self.results / FILE) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(0, end - 1))
                torn = file.read(1) not in (b"", b"\n")  # a kill cut off the line before
                file.write(("\n" * torn + as_line(line) + "\n").encode())


def is_done(results: Results, job: Wanted, scale: Scale, key: str) -> bool:
    """Whether the lines have a run with this key that has all that is wanted of it."""
    return any(
        run.key == key and not run.failed and all(score in run.scores for score in job.scores)
        for run in results.runs(job.plan, scale)
        if run.seed == job.seed  # the key holds the seed of the first stages
    )


def scores_of(run: Folder, until: str = "") -> dict[str, Any]:
    """The numbers of a run by their place in the summary, its confusion besides; of an estimate alone, the number."""
    if until:
        return {"n_new_estimated": run.read_json("estimate.json")["n_new"]}
    summary = run.summary
    numbers: dict[str, Any] = {name: value for name, value in flat(summary).items() if _is_score(name, value)}
    scores = {**numbers, "n_new_used": used(summary["cluster_sizes"])}
    return scores | {name: summary[name] for name in ("confusion", "confusion_classes") if name in summary}


def _is_score(name: str, value: Any) -> bool:
    wanted = ("acc_", "nmi_", "ari_", "test.", "kmeans.", "n_new", "calibration_error")
    return isinstance(value, int | float) and not isinstance(value, bool) and name.startswith(wanted)


def seconds_of(run: Folder) -> dict[str, float]:
    """By stage."""
    spent: Mapping[str, float] = run.summary["seconds"] if run.finished else {}
    return {name: round(value, 1) for name, value in spent.items()}


def _device(run: Folder) -> dict[str, str]:
    return {"device": run.summary["device"]} if run.finished else {}


def _classes(data: ImageSet, truth: Truth) -> dict[str, int]:
    return {"classes.labelled": data.n_known, "classes.unlabelled": len(truth.class_names) - data.n_known}


def commit_of(folder: Path) -> dict[str, Any]:
    """The commit of the program where it lies in a repository, and whether its files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(folder.parent))
        return {"commit": git("rev-parse", "--short", "HEAD"), **({"changed": True} if changed else {})}
    except (OSError, subprocess.CalledProcessError):
        return {}
