"""Prints results on stdout: the table of a run, its scores, its files, and what an edit changed."""

from __future__ import annotations

import json as json_
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autonovel.base.errors import listed
from autonovel.base.screen import printable, say
from autonovel.runs.headline import how_sampled

FILES = {
    "clusters.png": "The clusters as a picture",
    "report.html": "The whole report",
    "predictions.csv": "The class of every image",
}
"""Files that a person wants to know of, with what they are."""

MACHINE = "What the machine answered"
"""What predictions.csv is once a person has changed something: edits are not in it."""


def print_result(run: Any, *, json: bool = False, seconds: float | None = None, files: bool = True) -> None:
    """The table of clusters, the scores where the truth is known, the files, and what to do next; or the summary as JSON.

    Args:
        run: a finished run.
        json: whether to print the summary as JSON instead.
        seconds: what the command that made it has taken so far; the sum of its stages when left out.
        files: whether to end with the files and what to do next.
    """
    if json:
        say(json_.dumps(run.summary))
        return
    _print_table(run)
    if run.edits and "acc_new" in run.summary:
        say("The scores are those of the clusters as they were found, before anything was changed:")
    for line in (
        *_number(run),
        *_sampled(run.summary),
        *_scores(run.summary),
        *_continued(run.summary),
        _made_with(run, seconds),
    ):
        say(line)
    if files:
        print_files(run)


def print_files(run: Any) -> None:
    """Where to look, and what to do next."""
    for line in _files(run):
        say(line)


def print_changes(before: Sequence[Any], after: Sequence[Any]) -> None:
    """What an edit has changed: a line for each cluster that is another one now."""
    old, new = ({cluster.number: _in_words(cluster) for cluster in clusters} for clusters in (before, after))
    changed = [n for n in old.keys() | new.keys() if old.get(n) != new.get(n)]
    for number in sorted(changed, key=lambda n: (n < 0, abs(n))):
        called = f"cluster {number}" if number >= 0 else "known class"
        earlier = f" (before: {old[number]})" if number in old else ""
        say(f"{called}: {new.get(number, 'no longer there')}{earlier}")
    if not changed:
        say("Nothing has changed.")


def _in_words(cluster: Any) -> str:
    kind = {"known": ", a known class", "new": ""}.get(cluster.kind, f", {cluster.kind}") if cluster.number >= 0 else ""
    return f"{cluster.name}{kind}, {len(cluster.members):,} images"


def _print_table(run: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    summary, clusters = run.summary, run.clusters
    n_new = sum(cluster.kind == "new" for cluster in clusters)
    named = bool(run.names) or n_new < len(clusters)
    matched = summary.get("matched")
    columns = [
        "cluster",
        *(["name"] if named else []),
        "images",
        "sure",
        *(["matched class", "right"] if matched else []),
    ]
    sure = run.machine.probability
    table = Table()
    for column in columns:
        table.add_column(column, justify="left" if column in ("name", "matched class") else "right")
    for cluster in clusters:
        row = [str(cluster.number) if cluster.number >= 0 else ""]
        if named:
            row.append(cluster.name if cluster.kind == "new" else f"{cluster.name} ({cluster.kind})")
        row.append(f"{len(cluster.members):,}")
        row.append(f"{sure[cluster.members].mean():.0%}" if len(cluster.members) else "")
        row += _matched(summary, cluster) if matched else []
        table.add_row(*(Text(printable(word)) for word in row))  # a name may hold [brackets]
    say(f"{n_new} {run.kind_found(n_new)} among {summary['images']['unlabelled']:,} unlabelled images")
    Console(width=100 if not sys.stdout.isatty() else None).print(table)


def _matched(summary: dict[str, Any], cluster: Any) -> list[str]:
    """The true class that a cluster was matched with, and its share; nothing where a person has changed the cluster."""
    sizes, size = summary.get("cluster_sizes", []), len(cluster.members)
    name, hits = summary["matched"].get(str(cluster.number), ("", 0))
    unchanged = 0 <= cluster.number < len(sizes) and sizes[cluster.number] == size
    return [name, f"{hits / size:.1%}"] if name and size and unchanged else ["", ""]


def _scores(summary: dict[str, Any]) -> Iterator[str]:
    if summary.get("acc_new") is not None:
        forms = {"acc_new": "ACC {:.1%}", "nmi_new": "NMI {:.3f}", "ari_new": "ARI {:.3f}"}
        yield "   ".join(form.format(summary[key]) for key, form in forms.items() if summary.get(key) is not None)
        if "pile" in summary:
            parts = {part: summary["pile"]["single"].get(part) for part in ("all", "old", "new")}
            shown = [f"{part} {value:.1%}" for part, value in parts.items() if value is not None]
            yield f"mixed pile, one matching of all its classes: {'  '.join(shown)}"
        for name, value in summary.get("kmeans", {}).items():
            yield f"k-means on {name.replace('_', ' ')}: ACC {value:.1%}"
        for rule, parts in summary.get("test", {}).items():
            shown = [f"{part} {value:.1%}" for part, value in parts.items() if value is not None]
            yield f"test split, {rule} matching: {'  '.join(shown)}"


def _sampled(summary: dict[str, Any]) -> list[str]:
    """How a large pile was looked at."""
    if "sampled" not in summary:
        return []
    return how_sampled(summary["n_known"], summary["sampled"], summary["images"]["unlabelled"])


def _number(run: Any) -> Iterator[str]:
    """How the number of clusters was found, and what the heads say about it where they do not agree."""
    estimated, interval = (run.summary.get(name) for name in ("n_new_estimated", "n_new_interval"))
    if estimated:
        between = f", between {interval[0]} and {interval[1]}" if interval else ""
        now = sum(cluster.kind == "new" for cluster in run.clusters)
        changed = f"; since it was changed there are {now}" if now != run.summary["n_new"] else ""
        yield f"The number of {run.kind_found()} was estimated: {estimated}{between}{changed}"
    n, groups = run.summary.get("n_new_by_heads"), run.suggested
    if groups:
        first, *others = [listed(sorted(group)) for group in groups]
        more = "".join(f", {other} like another" for other in others)
        yield f"The network tells only about {n} {run.kind_found(n)} apart: clusters {first} look like one class{more}"
    elif n is not None and n > run.summary["n_new"]:
        yield f"The network tells about {n} {run.kind_found(n)} apart, more than there are clusters"


def _continued(summary: dict[str, Any]) -> Iterator[str]:
    """For the next round, what it took from the run before."""
    if before := summary.get("continued_from"):
        yield f"Continued from {before['run']}: {before['taken']}"


def _made_with(run: Any, seconds: float | None) -> str:
    summary, recipe = run.summary, run.config["run"]["recipe"]
    stages = sum(time for stage, time in summary["seconds"].items() if stage != "total")
    total = stages if seconds is None else max(seconds, stages)  # of stages some may have been done before
    method = recipe.get("method", "autonovel")  # folders of earlier versions do not say
    return (
        f"{total:.0f} s on {summary['device']}, seed {summary['seed']}, "
        f"{'' if method == 'autonovel' else f'method {method}, '}recipe {summary['recipe']} ({summary['preset']})"
    )


def _files(run: Any) -> Iterator[str]:
    """Where to look, and what to do next."""
    folder = shlex.quote(str(run.path))
    files = FILES | ({"predictions.csv": MACHINE} if run.edits else {})
    lines = {text: str(run.path / name) for name, text in files.items() if run.has(name)}
    if run.has("report.html") and _is_older(run.path / "report.html", run.path / "edits.jsonl"):
        lines["Write picture and report again"] = f"autonovel report {folder}"
    lines["Look at them and correct them"] = f"autonovel browse {folder}"
    if run.suggested:
        lines["Merge what looks like one class"] = f"autonovel merge {folder} --suggested"
    if unnamed := [c.number for c in run.clusters if c.kind == "new" and c.number not in run.names]:
        lines["Give one a name"] = f"autonovel name {folder} {unnamed[0]} NAME"
    else:
        lines["Sort the images into folders"] = f"autonovel export {folder} --to sorted"
    width = max(map(len, lines)) + 1
    for text, value in lines.items():
        yield f"{text + ':':<{width}} {value}"


def _is_older(file: Path, other: Path) -> bool:
    return other.exists() and file.stat().st_mtime_ns < other.stat().st_mtime_ns
