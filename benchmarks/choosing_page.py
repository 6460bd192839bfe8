"""Write the tables of docs/choosing.md: python benchmarks/choosing_page.py

Names and when to use them come from the registry of methods, the paper's figures from here, ours from results/choices.jsonl:
exactly the runs that are there, and the names of those that are not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from results_page import ROOT, Row, read_rows, spread, table

from autonovel.settings.registry import described

DEPTHS = ("heads", "layer4", "layer3", "layer2", "layer1", "all")

PAPER: Mapping[str, Mapping[str, float]] = {
    "pairs": {
        "rank": 90.4, "nearest": 90.2, "cosine": 90.1, "soft-15": 89.7, "soft-5": 62.2, "kmeans-all": 62.2,
        "kmeans-batch": 42.9,
    },
    "pretraining": {"rotation": 90.4, "simclr": 89.0, "moco": 87.6, "moco-v2": 89.0},
    "depth": dict(zip(DEPTHS, (39.9, 90.4, 90.8, 88.4, 89.3, 88.9), strict=True)),
    "depth-simclr": dict(zip(DEPTHS, (73.1, 89.0, 89.1, 89.5, 90.4, 88.6), strict=True)),
    "depth-moco": dict(zip(DEPTHS, (80.8, 87.6, 88.8, 89.3, 90.4, 89.5), strict=True)),
    "depth-moco-v2": dict(zip(DEPTHS, (84.6, 89.0, 89.5, 89.0, 90.3, 89.2), strict=True)),
}  # fmt: skip
"""ACC on CIFAR-10 in the paper's tables of pair labels, self-supervised learning and fine-tuned layers."""

PAPER_RAW: Mapping[str, float] = {"rotation": 25.5, "simclr": 84.7, "moco": 58.7, "moco-v2": 61.8}
"""ACC of k-means on the features of the first stage alone."""

CHOSEN_BY = {
    "choices": ("method", "pretrain.method", "joint.objective", "joint.pairs", "joint.train_from"),
    "measured-pairs": ("pairs",),
    "measured-pretraining": ("pretraining",),
    "measured-depth": ("depth", "depth-simclr", "depth-moco", "depth-moco-v2"),
}
"""The places of the page, each with what stands there: settings, or tables of the paper."""


def choices(setting: str) -> str:
    """What a setting can be, and when."""
    lines = described()[setting]
    flag = setting.replace("_", "-")
    return f"### `--{flag}`\n\n" + table(["name", "when"], [[f"`{name}`", line] for name, line in lines.items()])


def seconds_of(row: Row) -> float | None:
    """Of all stages, those that other rows share included."""
    found = [float(value) for stage, value in (row.get("seconds") or {}).items() if stage != "total"]
    return sum(found) if found else None


def measured(name: str, rows: Sequence[Row]) -> str:
    """The paper's table with our runs beside it, one line for runs that differ in their seed alone; and what is missing."""
    paper = PAPER[name]
    own = [row for row in rows if row.get("table") == name and row.get("acc_new") is not None]
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in sorted(own, key=lambda row: list(paper).index(row["row"]) if row["row"] in paper else len(paper)):
        groups.setdefault(tuple(row.get(k) for k in ("row", "preset", "commit", "device")), []).append(row)
    raw = name == "pretraining"
    head = ["", "paper", "here", "seeds", "seconds"]
    head += ["k-means on raw features: paper", "here", "images/s of stage 1"] if raw else []
    lines = [_line(group, paper, raw) for group in groups.values()]
    there = {row["row"] for row in own}
    lines += [_missing(row, paper, raw) for row in paper if row not in there]
    if raw and own and all(line[-1] == "–" for line in lines):  # the speed of a GPU that was shared says nothing
        head, lines = head[:-1], [line[:-1] for line in lines]
    return "\n\n".join([f"### {_title(name)}", table(head, lines), _conditions(own, list(paper), there)])


def _line(group: list[Row], paper: Mapping[str, float], raw: bool) -> list[str]:
    first = group[0]
    times = [value for row in group if (value := seconds_of(row)) is not None]
    cells = [f"`{first['row']}`", _figure(paper.get(first["row"])), spread([row["acc_new"] for row in group])]
    cells += [str(len(group)), spread(times, 0, 1)]
    if raw:
        speeds = [row["images_per_second"] for row in group if row.get("images_per_second")]
        accuracies = [row["acc_raw"] for row in group if row.get("acc_raw") is not None]
        cells += [_figure(PAPER_RAW.get(first["row"])), spread(accuracies), spread(speeds, 0, 1)]
    return cells


def _missing(row: str, paper: Mapping[str, float], raw: bool) -> list[str]:
    return [f"`{row}`", _figure(paper[row]), "–", "0", "–"] + ([_figure(PAPER_RAW[row]), "–", "–"] if raw else [])


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _title(name: str) -> str:
    kind, _, method = name.partition("-")
    titles = {"pairs": "Pair rules", "pretraining": "Pre-training", "depth": f"Depth, after {method or 'rotation'}"}
    return titles[kind]


def _conditions(own: Sequence[Row], rows: Sequence[str], there: set[str]) -> str:
    """How it was measured, and what was not."""
    said = []
    if own:
        ways = dict.fromkeys(
            f"preset `{row.get('preset')}` on {str(row.get('device')).removeprefix('cuda: ')}, commit {row.get('commit') or '–'}"
            for row in own
        )
        said.append(f"Measured: {'; '.join(ways)}.")
        said += [
            f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(row["note"] for row in own if row.get("note"))
        ]
    missing = [row for row in rows if row not in there]
    if missing:
        said.append(f"Not measured here yet: {', '.join(f'`{row}`' for row in missing)}.")
    return " ".join(said)


def render(page: str, rows: Sequence[Row]) -> str:
    """The page with its tables made anew."""
    for place, parts in CHOSEN_BY.items():
        begin, end = f"<!-- begin: {place} -->", f"<!-- end: {place} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"The page has no place for the tables: it needs the lines {begin} and {end}.")
        made = [choices(part) if place == "choices" else measured(part, rows) for part in parts]
        page = "\n\n".join([f"{before}{begin}", *made, f"{end}{after}"])
    return page


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "choosing.md")
    args = parser.parse_args(arguments)
    args.page.write_text(render(args.page.read_text(), read_rows(args.results).get("choices", [])))


if __name__ == "__main__":
    main()
