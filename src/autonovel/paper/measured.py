"""What has been measured: a line for each run, and which cells it gives a value to. Imports no torch.

A run that several tables show has one line; a cell finds its value by its plan. Lines of experiments that are older than this
module have neither plan nor key. Which plan they belong to is written down in `EARLIER`; they are shown and never resumed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autonovel.paper.cells import Cell, MeanError, Plan, Table, on_scale

FILE = "paper.jsonl"
"""The lines that `autonovel reproduce` writes."""


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        about: its plan without the score, as :func:`about` gives it.
        scale: paper, fast or small.
        seed, start_seed: of the last stage, and of those that runs share.
        scores: the summary's values by their place in it.
        key: of recipe, data, seeds and numerics; empty for lines of earlier experiments.
        failed: why there are no scores.
        where: commit, device, date, versions.
        seconds: by stage.
        note: what differs from the cell's plan.
    """

    about: str
    scale: str
    seed: int
    scores: Mapping[str, Any]
    start_seed: int = 0
    key: str = ""
    failed: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    command: str = ""
    note: str = ""


def about(plan: Plan) -> str:
    """All of a plan but its score, as text that is the same for equal plans."""
    values = [plan.data, plan.recipe, dict(plan.changes), plan.n_new, plan.labelled]
    return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Earlier:
    """Lines of earlier experiments that measured a plan.

    Attributes:
        file: whose lines, without ``.jsonl``.
        where: the values by which they are chosen.
        plan: what they measured.
        scores: where the scores of the plan stand in a line.
        scale: of their schedules.
    """

    file: str
    where: Mapping[str, Any]
    plan: Plan
    scores: Mapping[str, str]
    scale: str = "paper"
    note: str = ""


def read(folder: Path, earlier: Sequence[Earlier] = ()) -> list[Measured]:
    """Every run whose line lies in a folder of results, the earlier ones first."""
    files = {path.stem: _lines(path) for path in sorted(folder.glob("*.jsonl"))}
    own = [Measured(**line) for line in files.pop(Path(FILE).stem, [])]
    return [_taken_over(e, line) for e in earlier for line in files.get(e.file, []) if _fits(e, line)] + own


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # cut off by a kill
            continue
    return lines


def _fits(entry: Earlier, line: Mapping[str, Any]) -> bool:
    return all(
        line.get(name) in (value if isinstance(value, tuple) else (value,)) for name, value in entry.where.items()
    )


def _taken_over(entry: Earlier, line: Mapping[str, Any]) -> Measured:
    scores = {name: _at(line, path) for name, path in entry.scores.items()}
    where = {name: line[name] for name in ("commit", "device", "date") if line.get(name)}
    seconds = line.get("seconds") if isinstance(line.get("seconds"), dict) else {}
    return Measured(
        about(entry.plan),
        entry.scale,
        line.get("seed") or 0,
        scores,
        where=where,
        seconds=seconds or {},
        note=entry.note,
    )


def _at(values: Any, path: str) -> Any:
    """The value at a place as ``test.separate.all``; None where there is none."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


@dataclass(frozen=True)
class Figure:
    """What is shown of a cell: the mean of its runs.

    Attributes:
        values: of the runs, in the cell's unit, one for each seed.
        scale: of their schedules.
        runs: the lines behind them.
    """

    values: tuple[float, ...]
    scale: str
    runs: tuple[Measured, ...]

    @property
    def mean(self) -> float:
        """Of the runs."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """The standard deviation of the sample; with fewer than two runs there is none."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def told(self, name: str) -> list[str]:
        """What the runs say of where they were made, each once."""
        return list(dict.fromkeys(str(run.where[name]) for run in self.runs if run.where.get(name)))


class Results:
    """All runs, asked by plan."""

    def __init__(self, runs: Iterable[Measured]) -> None:
        self._by_plan: dict[tuple[str, str], list[Measured]] = {}
        for run in runs:
            self._by_plan.setdefault((run.about, run.scale), []).append(run)

    def runs(self, plan: Plan, scale: str) -> list[Measured]:
        """The runs of a plan that has one part, in the order in which they were made."""
        return self._by_plan.get((about(plan), scale), [])

    def newest(self, plan: Plan, scale: str) -> dict[tuple[int, int], Measured]:
        """By the seeds of the first stages and of the last, the newest run that has the plan's score."""
        return {(run.start_seed, run.seed): run for run in self.runs(plan, scale) if _at_score(run, plan) is not None}

    def shown(self, plan: Plan, scale: str, unit: str) -> Figure | None:
        """The value of a plan: by seed, the mean over its parts, where all of them are there."""
        own = on_scale(plan, scale)
        if own is None:
            return None
        parts = own.parts()
        runs_of_parts = [self.newest(part, scale) for part in parts]
        seeds = sorted(set(runs_of_parts[0]).intersection(*runs_of_parts[1:]))
        if not seeds:
            return None
        times = 100.0 if unit == "%" else 1.0
        values = [
            statistics.fmean(
                times * _at_score(by_seed[seed], part) for part, by_seed in zip(parts, runs_of_parts, strict=True)
            )
            for seed in seeds
        ]
        return Figure(tuple(values), scale, tuple(by_seed[seed] for seed in seeds for by_seed in runs_of_parts))

    def cell(self, table: Table, cell: Cell, scales: Sequence[str] = ("paper", "fast")) -> Figure | None:
        """What is shown of a cell, on the first of the scales on which there is something."""
        for scale in scales:
            shown = (
                self._mean_error(table, cell, scale)
                if isinstance(cell.way, MeanError)
                else self.shown(cell.way, scale, table.unit)
                if isinstance(cell.way, Plan)
                else None
            )
            if shown is not None:
                return shown
        return None

    def _mean_error(self, table: Table, cell: Cell, scale: str) -> Figure | None:
        """Over the rows of the table: how far the counts lie from the true numbers."""
        counted = cell.column if cell.column != "error" else "full"
        rows = [row for row in table.rows if row != "error"] if cell.row == "error" else [cell.row]
        figures, errors = [], []
        for row in rows:
            own, true = table.cell(row, counted), table.cell(row, "true")
            if own is None or true is None or true.paper is None or not isinstance(own.way, Plan):
                return None
            shown = self.shown(own.way, scale, table.unit)
            if shown is None:
                return None
            figures.append(shown)
            errors.append(abs(shown.values[0] - true.paper.mean))
        return Figure((statistics.fmean(errors),), scale, tuple(run for shown in figures for run in shown.runs))

    def failed(self, plan: Plan, scale: str) -> str:
        """Why the newest run of a plan failed; empty where it did not."""
        own = on_scale(plan, scale)
        for part in own.parts() if own is not None else []:
            runs = self.runs(part, scale)
            if runs and runs[-1].failed:
                return runs[-1].failed
        return ""


def _at_score(run: Measured, plan: Plan) -> Any:
    return None if run.failed else run.scores.get(plan.score)


def as_line(run: Measured) -> str:
    """A line of the file."""
    return json.dumps(
        {name: value for name, value in vars(run).items() if value not in ("", {}, None)} | {"scores": dict(run.scores)}
    )
