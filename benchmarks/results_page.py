"""Write the tables of docs/results.md from results/*.jsonl: python benchmarks/results_page.py

What stands between the two markers is made anew; the text around it is written by hand. Runs that differ in their seed alone
are one row: mean and standard deviation (of the sample), number of runs.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- begin: python benchmarks/results_page.py -->", "<!-- end -->"

Row = dict[str, Any]


def read_rows(folder: Path) -> dict[str, list[Row]]:
    """Every line of every file, by the name of the file."""
    files = sorted(folder.glob("*.jsonl"))
    return {file.stem: [json.loads(line) for line in file.read_text().splitlines() if line.strip()] for file in files}


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


def what(row: Row) -> str:
    """The run in words, without its seed."""
    parts = [row.get("benchmark"), f"`{row['recipe']}`" if row.get("recipe") else None]
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
        key = (what(row), row.get("incremental"), row.get("commit"), row.get("device"))
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


def notes(rows: Iterable[Row]) -> str:
    """What was noted about the conditions, once for all rows that share it."""
    sharers: dict[tuple[object, str], dict[str, None]] = {}
    for row in rows:
        if row.get("note"):
            said = re.sub(r"; whole command .*", "", row["note"])
            sharers.setdefault((row.get("commit"), said), {})[row.get("alphabet") or what(row)] = None
    return "\n".join(
        f"- {'; '.join(names) if len(names) < 4 else f'{len(names)} rows'}, {commit}: {said}"
        for (commit, said), names in sharers.items()
    )


def estimates_table(rows: Sequence[Row]) -> str:
    """How far each way of counting is off, over all problems of a file."""
    names = list(dict.fromkeys(name for row in rows for name in row["estimates"]))
    lines = []
    for name in names:
        pairs = [(row["estimates"][name], row["n_true"]) for row in rows if name in row["estimates"]]
        ranges = [(found["interval"], true) for found, true in pairs if found.get("interval")]
        held = sum(low <= true <= high for (low, high), true in ranges)
        lines.append(
            [
                f"`{name}`",
                str(len(pairs)),
                f"{statistics.fmean(abs(found['n_new'] - true) for found, true in pairs):.2f}",
                f"{held} of {len(ranges)}",
                f"{pairs[0][0]['n_new']} of {pairs[0][1]}" if len(pairs) == 1 else "–",
            ]
        )
    return table(["estimate", "piles", "mean error in classes", "interval holds the truth", "found, if one"], lines)


def alphabets_table(rows: Sequence[Row]) -> str:
    """OmniGlot: means over its alphabets, and how well their characters were counted.

    Rows with the same settings are one table, even if several versions of the program trained them, until an alphabet repeats.
    """
    tables: dict[str, list[list[Row]]] = {}
    for row in rows:
        same_settings = tables.setdefault(
            repr([row.get(name) for name in ("recipe", "preset", "epochs", "seed", "device")]), []
        )
        others = (rows for rows in same_settings if all(row["alphabet"] != other["alphabet"] for other in rows))
        if (found := next(others, None)) is None:
            same_settings.append(found := [])
        found.append(row)
    return "\n\n".join(_alphabets(rows) for same_settings in tables.values() for rows in same_settings)


def _alphabets(rows: Sequence[Row]) -> str:
    def line(name: str, values: Sequence[float | None]) -> list[str]:
        there = [value for value in values if value is not None]
        return [name if len(there) in (0, len(rows)) else f"{name}, {len(there)} alphabets", spread(there)]

    lines = [
        line("true number given", [row["acc_true"] for row in rows]),
        line(f"number estimated (`{rows[0]['estimator']}`)", [row["acc_estimated"] for row in rows]),
        *(line(f"k-means after `{stage}`", [row["kmeans"][stage] for row in rows]) for stage in rows[0]["kmeans"]),
    ]
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    recipe = rows[0].get("recipe", "omniglot")
    trained = f"seed {rows[0]['seed']}, {rows[0]['device']}, commit {commits}"
    about = f"Recipe `{recipe}`, {len(rows)} alphabets, {trained}; ± over alphabets."
    counted = [estimates_table(rows)] if any(row["estimates"] for row in rows) else []
    return "\n\n".join([about, table(["", "ACC"], [line for line in lines if line[1] != "–"]), *counted])


def curves_table(rows: Sequence[Row]) -> str:
    """Old against new classes: as trained, and where the price of new classes gives most in all, which takes test labels."""

    def line(group: list[Row]) -> list[str]:
        def three(shift: float) -> list[list[float]]:
            points = [next(p for p in row["curve"] if p["shift"] == shift) for row in group]
            return [[point[name] for point in points] for name in ("old", "new", "all")]

        best = max((p["shift"] for p in group[0]["curve"]), key=lambda shift: statistics.fmean(three(shift)[2]))
        cells = [" / ".join(spread(values) for values in three(shift)) for shift in (0.0, best)]
        return [what(group[0]), str(len(group)), *cells, f"{best:g}", group[0]["commit"]]

    head = ["run", "seeds", "old / new / all, as trained", "at the best price", "that price", "commit"]
    return table(head, (line(group) for group in grouped(rows)))


def rounds_table(rows: Sequence[Row]) -> str:
    """The next round: the images that nobody named, before and after."""

    def line(group: list[Row]) -> list[str]:
        first = group[0]
        cells = [
            spread([row[f"acc_{which}{when}"] for row in group])
            for which in ("", "rest_digits_")
            for when in ("before", "after")
        ]
        return [
            f"digits, preset `{first['preset']}`, {len(first['named'])} of 5 clusters named",
            str(len(group)),
            *cells,
            spread([row["seconds_second_round"] for row in group], 0, 1),
            first["device"],
            first["commit"],
        ]

    head = [
        "run",
        "seeds",
        "rest, before",
        "rest, after",
        "rest without strays, before",
        "after",
        "seconds of the second round",
        "machine",
        "commit",
    ]
    return table(head, (line(group) for group in grouped(rows)))


def section(name: str, rows: Sequence[Row]) -> str:
    """Everything that one file holds."""
    kinds: list[tuple[Callable[[Row], bool], Callable[[list[Row]], str]]] = [
        (lambda row: "acc_new" in row and "curve" not in row, runs_table),
        (lambda row: "curve" in row, curves_table),
        (lambda row: "acc_true" in row, alphabets_table),
        (lambda row: "acc_before" in row, rounds_table),
        (lambda row: "estimates" in row and "acc_true" not in row, estimates_table),
    ]
    parts = [f"### [{name}.jsonl](../results/{name}.jsonl)"]
    for belongs, show in kinds:
        chosen = [row for row in rows if belongs(row)]
        if chosen:
            parts.append(show(chosen))
    others = sum(not any(belongs(row) for belongs, _ in kinds) for row in rows)
    if others:
        parts.append(f"{others} further lines have no accuracy and are only in the file.")
    if said := notes(rows):
        parts.append("Conditions:\n\n" + said)
    return "\n\n".join(parts)


def render(page: str, rows: dict[str, list[Row]]) -> str:
    """The page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"The page has no place for the tables: it needs the lines {BEGIN} and {END}.")
    tables = "\n\n".join(section(name, lines) for name, lines in rows.items() if lines)
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    args = parser.parse_args(arguments)
    args.page.write_text(render(args.page.read_text(), read_rows(args.results)))


if __name__ == "__main__":
    main()
