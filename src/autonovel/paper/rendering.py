"""Tables and curves as text: our figures beside the paper's, every hole with its reason. Imports no torch."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from autonovel.paper.cells import Cell, MeanError, NotPlanned, Plan, Quoted, Table, Value, on_scale
from autonovel.paper.measured import Figure, Results
from autonovel.paper.tables import CURVES, NUMBERED, TABLES

FAR = 2.0
"""Points from which a difference to the paper is named."""

SIGNS = {
    "q": "quoted from the paper, which quotes it too",
    "r": "as the authors ran it (preset `reference`), which is not what the text says",
    "f": "preset `fast`: a quarter of the time",
    "s": "the small stand-in: digits, minutes on a CPU; it shows that the machinery works and not that the paper is right",
    "b": "another backbone than the paper's",
    "d": "not run here for want of the data",
    "–": "not run",
}
"""What stands behind a figure, or in its place."""

ABSENT = ("imagenet", "svhn", "stl10")
"""Data that no machine of ours has had."""


@cache
def reasons() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Why our figure is another one: by table, row and column."""
    return tomllib.loads(files("autonovel.paper").joinpath("reasons.toml").read_text(encoding="utf-8"))


def figure(mean: float, spread: float | None, unit: str) -> str:
    """A mean and its spread."""
    digits = 1 if unit == "%" else (0 if spread is None and mean == round(mean) else 2)
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def of_paper(value: Value | None, unit: str) -> str:
    """The paper's figure, a dash where it has none."""
    return "–" if value is None else figure(value.mean, value.spread, unit)


def of_ours(shown: Figure, unit: str) -> str:
    """Our figure: one run as it is, two or three as their mean with the range, more with their standard deviation."""
    if len(shown.values) == 1:
        return figure(shown.mean, None, unit)
    return f"{figure(shown.mean, shown.spread, unit)} ({len(shown.values)})"


def sign(cell: Cell, shown: Figure | None) -> str:
    """What stands behind our figure, or in its place."""
    if isinstance(cell.way, Quoted):
        return "q"
    if isinstance(cell.way, NotPlanned):
        return "–"
    if shown is None:
        data = cell.way.data if isinstance(cell.way, Plan) else ""
        return "d" if data.startswith(ABSENT) else "–"
    signs = {"fast": "f", "small": "s"}.get(shown.scale, "")
    if isinstance(cell.way, Plan):
        trained = not cell.way.score.startswith("classes.")
        signs += "r" if trained and cell.way.recipe == "omniglot" and shown.scale == "paper" else ""
        signs += "b" if cell.way.changes.get("model.backbone", "pixels") != "pixels" else ""
    return signs


class Page:
    """What is shown of tables: the results, and on which scales they count, the first that has any."""

    def __init__(self, results: Results, scales: Sequence[str] = ("paper", "fast")) -> None:
        self.results, self.scales = results, scales

    def shown(self, table: Table, cell: Cell) -> Figure | None:
        """Our figure for a cell."""
        return self.results.cell(table, cell, self.scales)

    def cell(self, table: Table, row: str, column: str) -> str:
        """Ours over the paper's."""
        cell = table.cell(row, column)
        if cell is None:
            return ""
        shown = self.shown(table, cell)
        behind = sign(cell, shown)
        if shown is None:
            ours = behind if behind in ("–", "d") else f"<sup>{behind}</sup>"
        else:
            ours = f"**{of_ours(shown, table.unit)}**" + (f" <sup>{behind}</sup>" if behind else "")
        return ours if table.axis else f"{ours}<br>{of_paper(cell.paper, table.unit)}"

    def markdown(self, table: Table) -> str:
        """A table with its conditions, and what differs; on scale small the columns that have a stand-in."""
        if self.scales == ("small",):
            return self._small(table)
        head = ["", *table.columns.values()]
        rows = [
            [title, *(self.cell(table, row, column) for column in table.columns)] for row, title in table.rows.items()
        ]
        parts = [
            f"### {self.title(table)}",
            bars(head, rows),
            *(f"{note}" for note in table.notes),
            self.conditions(table),
            self.far(table),
        ]
        return "\n\n".join(part for part in parts if part)

    def _small(self, table: Table) -> str:
        there = {c.column for c in table.cells if isinstance(c.way, Plan) and on_scale(c.way, "small") is not None}
        if not there:
            return f"### {self.title(table)}\n\nNothing stands in for its data on scale small."
        columns = {name: title.replace("CIFAR-10", "digits") for name, title in table.columns.items() if name in there}
        rows = []
        for row, title in table.rows.items():
            small = [(cell, self.shown(table, cell)) for name in columns if (cell := table.cell(row, name)) is not None]
            if any(isinstance(cell.way, Plan) and on_scale(cell.way, "small") is not None for cell, _ in small):
                told = ("–" if shown is None else of_ours(shown, table.unit) for _, shown in small)
                rows.append([title.replace("CIFAR-10", "digits"), *told])
        pixels = [] if table.axis else [self._pixels(table, column) for column in columns]
        if any(pixels):
            rows.append(["k-means on the pixels", *pixels])
        title = self.title(table).replace("CIFAR-10", "digits")
        parts = [f"### {title}", bars(["", *columns.values()], rows), self.conditions(table)]
        return "\n\n".join(part for part in parts if part)

    def _pixels(self, table: Table, column: str) -> str:
        """What k-means on the pixels gives for the images of a column, which every run on small images counts."""
        for cell in table.cells:
            shown = self.shown(table, cell) if cell.column == column else None
            if shown is not None and isinstance(cell.way, Plan) and cell.way.labelled and cell.way.score == "acc_new":
                value = shown.runs[0].scores.get("kmeans.pixels")
                return "" if value is None else figure(100 * value, None, table.unit)
        return ""

    def title(self, table: Table) -> str:
        """Name and number."""
        number = next((number.removeprefix("table") for number, name in NUMBERED.items() if name == table.name), "")
        return f"{f'Table {number}: ' if number else ''}{table.title} (`{table.name}`)"

    def conditions(self, table: Table) -> str:
        """On which machines, by which commits, in how many seconds."""
        figures = [shown for cell in table.cells if (shown := self.shown(table, cell)) is not None]
        if not figures:
            return ""

        def told(name: str) -> str:
            return ", ".join(
                dict.fromkeys(text.removeprefix("cuda: ") for shown in figures for text in shown.told(name))
            )

        runs = table.runs if self.scales != ("small",) else 0
        paper = f"; the paper's figures are means of {runs} runs" if runs else ""
        said = "; ".join(
            f"{part} {text}" for part, text in (("on", told("device")), ("commits", told("commit"))) if text
        )
        notes = "; ".join(dict.fromkeys(run.note for shown in figures for run in shown.runs if run.note))
        return f"Ours{'' if told('device') else ','} {said}{paper}.{f' Some: {notes}.' if notes else ''}"

    def far(self, table: Table) -> str:
        """What differs from the paper by more than two points, each with the reason that is known."""
        lines = []
        for cell in table.cells:
            shown = self.shown(table, cell)
            if shown is None or cell.paper is None or table.unit != "%" or abs(shown.mean - cell.paper.mean) <= FAR:
                continue
            why = reasons().get(table.name, {}).get(cell.row, {})
            reason = why.get(cell.column) or why.get("*") or "not explained"
            what = f"{table.rows[cell.row]}, {table.columns[cell.column]}"
            lines.append(f"- {what}: {shown.mean - cell.paper.mean:+.1f}. {reason[:1].upper()}{reason[1:]}.")
        return "Differs by more than two points:\n\n" + "\n".join(lines) if lines else ""

    def latex(self, table: Table) -> str:
        """A tabular of our figures, the paper's in brackets."""
        lines = [" & ".join(["", *map(_tex, table.columns.values())])]
        for row, title in table.rows.items():
            cells = [_tex(title)]
            for column in table.columns:
                cell = table.cell(row, column)
                shown = None if cell is None else self.shown(table, cell)
                ours = "--" if shown is None else of_ours(shown, table.unit)
                paper = "" if cell is None or cell.paper is None else f" ({of_paper(cell.paper, table.unit)})"
                cells.append(f"{ours}{paper}".replace("±", r"$\pm$"))
            lines.append(" & ".join(cells))
        body = " \\\\\n".join(lines)
        return f"\\begin{{tabular}}{{l{'c' * len(table.columns)}}}\n{body} \\\\\n\\end{{tabular}}"

    def records(self, table: Table) -> list[dict[str, Any]]:
        """One record for each cell."""
        rows = []
        for cell in table.cells:
            shown = self.shown(table, cell)
            record: dict[str, Any] = {"table": table.name, "row": cell.row, "column": cell.column, "unit": table.unit}
            record |= {"paper": cell.paper and cell.paper.mean, "paper_spread": cell.paper and cell.paper.spread}
            record |= {"ours": None if shown is None else shown.mean, "spread": None if shown is None else shown.spread}
            record |= {
                "runs": 0 if shown is None else len(shown.values),
                "scale": None if shown is None else shown.scale,
            }
            record |= {"sign": sign(cell, shown), "commits": [] if shown is None else shown.told("commit")}
            rows.append(
                record | {"devices": [] if shown is None else shown.told("device"), "state": self.state(table, cell)}
            )
        return rows

    def state(self, table: Table, cell: Cell) -> str:
        """done, quoted, missing, failed (why) or a reason not to measure it."""
        if isinstance(cell.way, Quoted):
            return f"quoted from {cell.way.source}"
        if isinstance(cell.way, NotPlanned):
            return cell.way.reason
        if self.shown(table, cell) is not None:
            return "done"
        if isinstance(cell.way, MeanError):
            return "missing"
        failed = next((why for scale in self.scales if (why := self.results.failed(cell.way, scale))), "")
        return f"failed: {failed}" if failed else "missing"

    def counted(self, table: Table) -> dict[str, int]:
        """How many cells are done, missing, failed, quoted."""
        counts = {"done": 0, "missing": 0, "failed": 0, "quoted": 0}
        for cell in table.cells:
            state = self.state(table, cell).split(":")[0].split(" ")[0]
            counts[state if state in counts else "quoted"] += 1
        return counts


def bars(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"|{'|'.join(line)}|" for line in (head, ["---"] * len(head), *rows))


def _tex(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%")


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as comma-separated values."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: " ".join(v) if isinstance(v, list) else v for k, v in record.items()} for record in records)
    return out.getvalue()


def rendered(page: Page, tables: Sequence[Table], form: str) -> str:
    """Tables in one of the forms md, latex, csv and json."""
    records = [record for table in tables for record in page.records(table)]
    said = [f"{SIGNS['s'][:1].upper()}{SIGNS['s'][1:]}."] if page.scales == ("small",) else []
    forms: dict[str, Callable[[], str]] = {
        "md": lambda: "\n\n".join([*map(page.markdown, tables), *said]),
        "latex": lambda: "\n\n".join(map(page.latex, tables)),
        "csv": lambda: as_csv(records),
        "json": lambda: json.dumps(records, indent=1, ensure_ascii=False),
    }
    return forms[form]()


HEAD = """# The paper's tables, measured

Every table and curve of the paper with our figures in bold over the paper's, made from the lines of `lab/rows` by

    autonovel reproduce --show md --to docs/paper.md

A figure is the mean of runs that differ in their seed alone; behind it stand the standard deviation and, in brackets, how many
they are. `autonovel reproduce NAME` measures what is missing."""


SMALL = """## On digits (`--scale small`)

1,437 digits of 8 x 8 pixels in place of CIFAR-10: 0 to 4 are known, 5 to 9 new, and all ten are unlabelled where the table has no
labels. Settings were compared on hidden known digits alone."""


def whole_page(page: Page) -> str:
    """docs/paper.md."""
    tables = [*TABLES.values(), *CURVES.values()]
    counts = [page.counted(table) for table in tables]
    rows = [
        [f"`{t.name}`", t.title, *(str(c[k]) for k in ("done", "missing", "failed", "quoted"))]
        for t, c in zip(tables, counts, strict=True)
    ]
    head = ["table", "", "measured", "not yet", "failed", "quoted or not planned"]
    total = ["", "all", *(str(sum(c[k] for c in counts)) for k in ("done", "missing", "failed", "quoted"))]
    overview = bars(head, [*rows, total])
    signs = "\n".join(f"- {sign}: {meaning}" for sign, meaning in SIGNS.items())
    parts = [
        HEAD,
        overview,
        "Signs:\n\n" + signs,
        "## Tables",
        rendered(page, list(TABLES.values()), "md"),
        "## Curves",
    ]
    parts.append(rendered(page, list(CURVES.values()), "md"))
    small = Page(page.results, ("small",))
    there = [table for table in tables if any(small.shown(table, cell) is not None for cell in table.cells)]
    if there:
        parts += [SMALL, rendered(small, there, "md")]
    return "\n\n".join(parts) + "\n"
