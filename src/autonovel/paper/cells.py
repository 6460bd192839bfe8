"""What a table of the paper consists of: cells, each with the paper's figure and the way to measure it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS

EACH = {"omniglot": EVALUATION_ALPHABETS, "imagenet": ("A", "B", "C")}
"""The parts of a benchmark over which the paper takes means."""


@dataclass(frozen=True)
class Value:
    """A figure of the paper: the mean of its runs and, where it says so, their standard deviation."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Plan:
    """How a cell is measured: what is given to a run, and which of its scores is the value.

    Attributes:
        data: a benchmark; ``omniglot:*`` and ``imagenet:*`` stand for the mean over their parts.
        recipe: its settings, before the changes.
        changes: fields of the recipe that are set otherwise.
        n_new: how many new classes to look for.
        score: where the value stands in the summary, as ``test.separate.all``.
        labelled: whether known classes are shown; without them it is clustering.
        until: the last stage that is needed; all of them where it is empty.
    """

    data: str
    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    n_new: int | Literal["true", "auto"] = "true"
    score: str = "acc_new"
    labelled: bool = True
    until: str = ""

    def parts(self) -> list[Plan]:
        """The runs whose mean is the value: one, or one for each part of the benchmark."""
        family, _, part = self.data.partition(":")
        return [replace(self, data=f"{family}:{name}") for name in EACH[family]] if part == "*" else [self]


Scale = Literal["paper", "fast", "small"]
"""Of the schedules: the paper's, a quarter of the time, or digits in minutes on a CPU."""

SMALL = {"cifar10": "digits-split", "cifar10-both": "digits-split"}
"""The data that stand in for others on scale small; other data have no stand-in."""


def on_scale(plan: Plan, scale: str) -> Plan | None:
    """The plan on a scale; None where scale small has nothing for it."""
    if scale != "small":
        return plan
    data = SMALL.get(plan.data)
    if data is None or plan.changes.get("model.backbone", "pixels") != "pixels" or plan.score.startswith("classes."):
        return None
    return replace(plan, data=data, recipe=data)


@dataclass(frozen=True)
class Quoted:
    """The paper took the figure from elsewhere, and so do we."""

    source: str


@dataclass(frozen=True)
class NotPlanned:
    """We do not measure the cell."""

    reason: str


@dataclass(frozen=True)
class MeanError:
    """The mean distance of the other cells of a column from the true numbers."""


Way = Plan | Quoted | NotPlanned | MeanError


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Attributes:
        row, column: its place.
        paper: what the paper says; nothing for the points of a curve that it only draws.
        way: how to get it.
    """

    row: str
    column: str
    paper: Value | None
    way: Way


@dataclass(frozen=True)
class Table:
    """A table, or a curve whose columns are the places on its axis.

    Attributes:
        name: what it is called on the command line.
        label: what the paper's source calls it.
        title: in words.
        rows, columns: names and titles, in the paper's order.
        cells: one for each figure.
        unit: what the figures are: per cent, or classes.
        runs: how many the paper's figures are the mean of; 0 where it does not say.
        axis: what the columns are places of, for a curve.
        notes: how we read what the paper leaves open.
    """

    name: str
    label: str
    title: str
    rows: Mapping[str, str]
    columns: Mapping[str, str]
    cells: tuple[Cell, ...]
    unit: Literal["%", "classes"] = "%"
    runs: int = 0
    axis: str = ""
    notes: tuple[str, ...] = ()

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell at this place, if there is one."""
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)


Ways = Callable[[str], Way]
"""The way of a row's cell in a column."""


@dataclass(frozen=True)
class Row:
    """A row as it is typed: the paper's figures as one line of text, a dash for none, and how each is measured."""

    title: str
    figures: str
    ways: Ways

    def values(self, columns: int) -> list[Value | None]:
        """The figures, one for each column."""
        figures = [_value(text) for text in self.figures.split()] or [None] * columns
        if len(figures) != columns:
            raise ValueError(f"The row '{self.title}' has {len(figures)} figures for {columns} columns.")
        return figures


def table(name: str, label: str, title: str, columns: Mapping[str, str], rows: Mapping[str, Row], **more: Any) -> Table:
    """A table from its rows."""
    cells = [
        Cell(key, column, value, row.ways(column))
        for key, row in rows.items()
        for column, value in zip(columns, row.values(len(columns)), strict=True)
    ]
    titles = {key: row.title for key, row in rows.items()}
    return Table(name, label, title, titles, columns, tuple(cells), **more)


def _value(text: str) -> Value | None:
    mean, _, spread = text.partition("±")
    return None if text == "-" else Value(float(mean), float(spread) if spread else None)


def quoted(source: str) -> Ways:
    """A row that is the same quotation everywhere."""
    return lambda column: Quoted(source)


def by_column(ways: Mapping[str, Way] | Sequence[Way], columns: Sequence[str] = ()) -> Ways:
    """A row whose cells differ."""
    by_name = ways if isinstance(ways, Mapping) else dict(zip(columns, ways, strict=True))
    return lambda column: by_name[column]
