"""Fill the tables of the pages in docs/ from lab/rows: python lab/pages.py

What stands between ``<!-- table: NAME -->`` and ``<!-- end -->`` is made anew from lab/rows/NAME.jsonl; the text around it is
written by hand. Runs that differ in their seed alone are one row: mean and standard deviation (of the sample), number of runs.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from autonovel.cli.flags import all_flags
from autonovel.maths.confidence import BINS
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import describe_recipes

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "lab" / "rows"
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->)(.*?)(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


def read_rows(file: Path) -> list[Row]:
    """Every line of a file; nothing where there is no such file."""
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()] if file.exists() else []


def spread(values: Sequence[float], digits: int = 1, scale: float = 100) -> str:
    """Mean and, with more than one value, standard deviation of the sample; a dash where there is no value."""
    if not values:
        return "–"
    mean = f"{scale * statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {scale * statistics.stdev(values):.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# ---- everything that a file of rows holds


def what(row: Row) -> str:
    """The run in words, without its seed."""
    parts = [row.get("task", row.get("benchmark")), f"`{row['recipe']}`" if row.get("recipe") else None]
    if row.get("preset") not in (None, "paper"):
        parts.append(f"preset `{row['preset']}`")
    if row.get("method") not in (None, "autonovel"):
        parts.append(f"method `{row['method']}`")
    if row.get("incremental") and row.get("recipe") != "best":
        parts.append("incremental")
    if row.get("changed"):
        parts.append("with " + " ".join(f"`{setting}`" for setting in row["changed"]))
    name = re.sub(r"-?seed-?\d+", "", row.get("run") or "")
    return ", ".join(part for part in parts if part) + (f" ({name})" if name else "")


def seconds(row: Row) -> float | None:
    """Wall time of the whole command where it was taken, otherwise what the run itself counted."""
    total = row.get("wall_seconds", (row.get("seconds") or {}).get("total"))
    return None if total is None else float(total)


def grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Runs that differ in their seed alone, in the order in which the first of each was added."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = what(row), row.get("incremental"), row.get("commit"), row.get("device")
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def runs_table(rows: Iterable[Row]) -> str:
    """One line for every group of runs."""

    def line(group: list[Row]) -> list[str]:
        first = group[0]
        kmeans = [value for row in group for value in list((row.get("kmeans") or {}).values())[:1]]
        parts = [row.get("test") or row.get("pile") or {} for row in group]
        name = next((name for name in ("separate", "single", "fixed") if all(name in part for part in parts)), None)
        rule = [part[name] for part in parts] if name else []
        three = " / ".join(spread([r[p] for r in rule if r.get(p) is not None]) for p in ("old", "new", "all"))
        if name not in (None, "separate"):
            three += f" ({name})"
        counted = [value for row in group if (value := seconds(row)) is not None]
        return [
            what(first),
            spread([row["acc_new"] for row in group]),
            str(len(group)),
            spread(kmeans),
            three if rule else "–",
            spread([row["calibration_error"] for row in group if row.get("calibration_error") is not None], 3, 1),
            spread(counted, 0, 1),
            str(first.get("device") or "–").removeprefix("cuda: "),
            str(first.get("commit") or "–"),
        ]

    head = [
        "run",
        "ACC new",
        "seeds",
        "k-means",
        "old / new / all",
        "calibration error",
        "seconds",
        "machine",
        "commit",
    ]
    return table(head, (line(group) for group in grouped(rows)))


def estimates_table(rows: Sequence[Row]) -> str:
    """How far each way of counting is off, over all problems of a file."""
    names = list(dict.fromkeys(name for row in rows for name in row["estimates"]))
    lines = []
    for name in names:
        pairs = [(row["estimates"][name], row["n_true"]) for row in rows if name in row["estimates"]]
        ranges = [(found["interval"], true) for found, true in pairs if found.get("interval")]
        held = sum(low <= true <= high for (low, high), true in ranges)
        error = statistics.fmean(abs(found["n_new"] - true) for found, true in pairs)
        one = f"{pairs[0][0]['n_new']} of {pairs[0][1]}" if len(pairs) == 1 else "–"
        lines.append([f"`{name}`", str(len(pairs)), f"{error:.2f}", f"{held} of {len(ranges)}", one])
    return table(["estimate", "piles", "mean error in classes", "interval holds the truth", "found, if one"], lines)


def in_force(row: Row) -> bool:
    """Whether the recipe and the settings of a row are still there."""
    changed = {change.partition("=")[0] for change in row.get("changed") or []}
    return row.get("recipe", "folder") in describe_recipes() and changed <= {flag.path for flag in all_flags(Recipe)}


def firmest(rows: Sequence[Row]) -> list[Row]:
    """Of a run that several versions made, the rows of the one with most seeds, the later one of equals."""
    best: dict[object, list[Row]] = {}
    for group in grouped([row for row in rows if "acc_new" in row and "curve" not in row]):
        key = (what(group[0]), group[0].get("incremental"))
        if len(group) >= len(best.get(key, ())):
            best[key] = group
    kept = {id(row) for group in best.values() for row in group}
    return [row for row in rows if id(row) in kept or "acc_new" not in row or "curve" in row]


def problems_table(rows: Sequence[Row]) -> str:
    """Known classes taken for new ones: mean and, in brackets, the worst over the draws of each kind."""

    def shown(
        values: Sequence[float], digits: int = 1, scale: float = 100, *, worst: Callable[..., float] = max
    ) -> str:
        if not values:
            return "–"
        return f"{scale * statistics.fmean(values):.{digits}f} ({scale * worst(values):.{digits}f})"

    def pooled(group: Sequence[Row]) -> str:
        """The calibration error over the images of all draws: that of one draw is mostly chance where images are few."""
        gaps: defaultdict[int, float] = defaultdict(float)
        points = [point for row in group for point in row.get("reliability", ())]
        for point in points:
            gaps[min(int(BINS * point["probability"]), BINS - 1)] += point["images"] * (
                point["right"] - point["probability"]
            )
        images = sum(point["images"] for point in points)
        return f"{sum(map(abs, gaps.values())) / images:.3f}" if images else "–"

    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        features = row.get("features") or f"{row['backbone']} at {row['side']} pixels"
        kinds.setdefault((row["source"], row["kind"], features, row["commit"]), []).append(row)
    most = {about[:2]: max(len(g) for a, g in kinds.items() if a[:2] == about[:2]) for about in kinds}
    kinds = {
        about: group for about, group in kinds.items() if len(group) == most[about[:2]]
    }  # the version with most draws
    ways = list(dict.fromkeys(way for row in rows for way in row["acc"]))
    lines = []
    for (source, kind, features, commit), group in kinds.items():
        counted = [row for row in group if "counted" in row]
        off = [abs(row["counted"] - row["n_true"]) / row["n_true"] for row in counted]
        ranges = [(row["interval"], row["n_true"]) for row in counted if row["interval"]]
        held = f"{sum(low <= true <= high for (low, high), true in ranges)} of {len(ranges)}"
        accuracies = [shown([row["acc"][way] for row in group if way in row["acc"]], worst=min) for way in ways]
        sure = shown([row["calibration_error"] for row in group], 3, 1)
        took = shown([row["seconds"]["counted"] for row in counted], 1, 1)
        figures = [*accuracies, shown(off, 0), held, str(len(group) - len(counted)), sure, pooled(group), took]
        lines.append([f"{source} {kind}", str(len(group)), *figures, f"{features}, {commit}"])
    number = ["number off by, %", "interval holds", "refused"]
    return table(["kind", "draws", *ways, *number, "calibration error", "over all draws", "seconds", "of"], lines)


def whole_file(rows: Sequence[Row]) -> str:
    """What one file holds; of runs that several versions made, the one with most seeds."""
    everything, rows = rows, firmest([row for row in rows if in_force(row)])
    kinds: list[tuple[Callable[[Row], bool], Callable[[list[Row]], str]]] = [
        (lambda row: "acc_new" in row, runs_table),
        (lambda row: "estimates" in row, estimates_table),
        (lambda row: isinstance(row.get("acc"), dict) and "kind" in row, problems_table),
    ]
    chosen = [([row for row in rows if belongs(row)], show) for belongs, show in kinds]
    parts = [show(own) for own, show in chosen if own]
    if others := len(rows) - sum(len(own) for own, _ in chosen):
        parts.append(f"{others} further lines are only in the file.")
    if earlier := len(everything) - len(rows):
        parts.append(f"Only in the file, of other versions or of settings that are gone: {earlier}.")
    return "\n\n".join(parts)


# ---- the pages


def made(name: str, folder: Path = ROWS) -> str:
    """The table of this name."""
    if not (folder / f"{name}.jsonl").exists():
        files = ", ".join(sorted(file.stem for file in folder.glob("*.jsonl")))
        raise SystemExit(f"There are no rows '{name}'; choose among {files}.")
    return whole_file(read_rows(folder / f"{name}.jsonl"))


def render(page: str, folder: Path = ROWS) -> str:
    """The page with its tables made anew."""
    if page.count("<!-- table:") != len(PLACE.findall(page)):
        raise SystemExit("A table of the page has no end: it needs the lines <!-- table: NAME --> and <!-- end -->.")
    return PLACE.sub(lambda place: f"{place[1]}\n\n{made(place[2], folder)}\n\n{place[4]}", page)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("pages", nargs="*", type=Path, default=sorted((ROOT / "docs").glob("*.md")))
    args = parser.parse_args(arguments)
    for page in args.pages:
        text = page.read_text(encoding="utf-8")
        if (new := render(text, args.rows)) != text:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
