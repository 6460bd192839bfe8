"""The report: one HTML file that holds everything, opens from disk and asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.report.charts import Chart, Line, line_chart
from autonovel.report.clusters import Pictures, Shown, pick, shown_clusters, shown_names
from autonovel.report.findings import find, labelled_groups, nearest_known
from autonovel.report.pages import TEMPLATES, render
from autonovel.report.plots import draw_clusters
from autonovel.report.session import unit_square
from autonovel.runs.folder import Folder
from autonovel.runs.likely import likely_names
from autonovel.runs.state import standing

MOST_PICTURES = 1_500
"""Pictures beside the clusters, all together; with many clusters each shows fewer."""

MOST_POINTS = 20_000
"""Images on the map."""

MOST_HOVERED = 2_500
"""Images on the map that show their picture."""

HOVER_COLUMNS = 16
BUDGET = 6_000_000
"""Characters of the page for the pictures beside the clusters, and as many for those on the map; where pictures are of
many kilobytes, fewer are shown."""

MOST_CLUSTERS = 300
"""Clusters that are shown one by one."""

MOST_CONFUSED = 60
"""Classes up to which the table of true classes against clusters is drawn."""


def draw_report(run: Folder) -> Path:
    """Write report.html and clusters.png as the clusters are now, and say where the report is."""
    if Pictures(run).any:
        draw_clusters(run)
    return write_report(run)


def write_report(run: Folder) -> Path:
    """Write report.html into the run folder and return its path."""
    clusters = shown_clusters(run)
    pictures = Pictures(run)
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    page = render(
        "report.html",
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=run.path.resolve().name,
        command=f"autonovel browse {shlex.quote(str(run.path))}",
        result=describe_result(run, clusters),
        findings=find(run, clusters),
        clusters=describe_clusters(run, clusters, pictures),
        left_out=max(0, len(clusters) - MOST_CLUSTERS),
        map=describe_map(run, clusters, pictures),
        charts=[chart for chart in (*estimate_charts(run), *training_charts(run)) if chart is not None],
        confusion=describe_confusion(run),
        settings=json.dumps(run.config.get("run", {}), indent=2, ensure_ascii=False),
        versions=run.config.get("versions", {}),
    )
    with run.whole("report.html") as path:
        path.write_text(page, encoding="utf-8")
    return run.path / "report.html"


def describe_result(run: Folder, clusters: Sequence[Shown]) -> dict[str, Any]:
    """The headline: how many classes, how sure, of how many images."""
    summary = run.summary
    new = [cluster for cluster in clusters if cluster.kind == "new"]
    probability = run.machine.probability
    facts: list[tuple[str, str, str]] = [
        ("images sorted", f"{len(probability):,}", "those without a label"),
        ("known classes", f"{summary.get('n_known', len(run.state.known)):,}", "those with labelled images"),
        (
            "sure on average",
            f"{float(probability.mean()) if len(probability) else 0:.0%}",
            "about so many of the answers should be right",
        ),
    ]
    if summary.get("acc_new") is not None:
        what = f"accuracy on the {run.kind_found()}"
        facts.append((what, f"{summary['acc_new']:.1%}", "the share of right answers, by the true labels"))
    seconds = (summary.get("seconds") or {}).get("total")
    if seconds:
        facts.append(("time", _duration(seconds), "from the images to the answers"))
    return {
        "headline": run.headline,
        "number": _about_number(run, summary, len(new)),
        "facts": facts,
        "edits": len(standing(run.edits)[0]),
        "largest": max((cluster.size for cluster in clusters), default=0),
        "made": ", ".join(str(summary[key]) for key in ("recipe", "preset", "device") if summary.get(key)),
        "seed": summary.get("seed"),
        "continued": summary.get("continued_from"),
    }


def _about_number(run: Folder, summary: dict[str, Any], now: int) -> str:
    """Where the number of classes comes from."""
    estimated, interval = summary.get("n_new_estimated"), summary.get("n_new_interval")
    what = run.kind_found()
    if estimated is None:
        text = f"The number of {what}, {summary['n_new']}, was given."
    elif interval is None:
        why = run.read_json("estimate.json").get("note") if run.has("estimate.json") else None
        why = why or "There were too few known classes to say how sure that is."
        text = f"The number of {what} was estimated: {estimated}. {why}"
    else:
        text = f"The number of {what} was estimated: {estimated}, probably between {interval[0]} and {interval[1]}."
    if now != summary["n_new"]:
        text += f" After a person's edits there are {now}."
    return text


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def describe_clusters(run: Folder, clusters: Sequence[Shown], pictures: Pictures) -> list[dict[str, Any]]:
    """What the page says of every cluster, with its pictures."""
    shown = clusters[:MOST_CLUSTERS]
    each = max(3, min(24, _affordable(pictures, MOST_PICTURES) // max(1, len(shown))))
    typical, others = math.ceil(each / 2), each // 4
    names = shown_names(run)
    near = nearest_known(run, shown)
    known = _known_pictures(run, pictures, {name for line in near for name, _ in line})
    matched = run.summary.get("matched", {}) if not run.edits else {}
    likely = likely_names(run, {cluster.number: cluster.rows for cluster in clusters if cluster.number >= 0})

    def listed(rows: Sequence[int]) -> list[dict[str, str]]:
        return [
            {"name": names[row], "src": data_uri(pixels)} for row, pixels in zip(rows, pictures.many(rows), strict=True)
        ]

    described = []
    for cluster, nearest in zip(shown, near, strict=True):
        chosen = pick(cluster, pictures.usable, typical, others)
        described.append(
            {
                "number": cluster.number,
                "name": cluster.name,
                "named": cluster.named,
                "kind": cluster.kind,
                "size": cluster.size,
                "confidence": cluster.confidence,
                "colour": cluster.colour,
                "likely": [] if cluster.named else likely.get(cluster.number, []),
                "true_class": matched.get(str(cluster.number), (None,))[0],
                "pictures": [
                    ("Most typical", "they look most like the rest of the cluster", listed(chosen.typical)),
                    ("Most doubtful", "they might belong to another class", listed(chosen.doubtful)),
                    ("Odd ones out", "they look least like the rest of the cluster", listed(chosen.odd)),
                ],
                "nearest": [(name, similarity, known.get(name)) for name, similarity in nearest],
            }
        )
    return described


def _known_pictures(run: Folder, pictures: Pictures, wanted: set[str]) -> dict[str, str]:
    """Known class -> the picture of its most typical image, among the first ones."""
    features = run.labelled_features
    if features is None or not wanted:
        return {}
    large = run.parts is not None  # of which the labelled images come first
    places = [place for place, r in enumerate(run.labelled if large else run.images) if r.label is not None]
    pictures_of = {}
    for name, rows in labelled_groups(run).items():
        some = [row for row in rows[:200].tolist() if pictures.has(places[row])] if name in wanted else []
        if some:
            points = np.asarray(features[some], dtype=np.float32)
            best = some[int(np.square(points - points.mean(0)).sum(1).argmin())]
            pictures_of[name] = data_uri(pictures.pixels_of(places[best]))
    return pictures_of


def data_uri(pixels: npt.NDArray[np.uint8], quality: int = 75) -> str:
    """Pixels as the address of a JPEG that holds them."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def describe_map(run: Folder, clusters: Sequence[Shown], pictures: Pictures) -> dict[str, Any]:
    """The map for the script of the page: places and clusters of the images, and the pictures of some of them."""
    large = run.parts is not None
    rows = run.mapped if large else _sampled([cluster.rows for cluster in clusters], MOST_POINTS)
    place_of = np.zeros(len(run.machine.images), dtype=np.uint16)
    for place, cluster in enumerate(clusters):
        place_of[cluster.rows] = place
    places = unit_square(np.asarray(run.map if large else run.map[rows], dtype=np.float32))
    usable = np.flatnonzero(pictures.usable[rows])
    hovered = usable[
        np.linspace(0, len(usable) - 1, min(_affordable(pictures, MOST_HOVERED), len(usable))).astype(np.int64)
    ]
    names = shown_names(run)
    return {
        "total": len(names),
        "shown": len(rows),
        "x": _packed(places[:, 0] * 65535),
        "y": _packed(places[:, 1] * 65535),
        "cluster": _packed(place_of[rows]),
        "clusters": [{"name": c.name, "colour": c.colour, "size": c.size} for c in clusters],
        "pictures": hovered.tolist(),
        "names": [names[row] for row in rows[hovered].tolist()],
        "sheets": _sprites(pictures, rows[hovered].tolist()),
        "columns": HOVER_COLUMNS,
    }


def _sampled(groups: Sequence[npt.NDArray[np.int64]], most: int) -> npt.NDArray[np.int64]:
    """Rows of all groups, in order; evenly taken ones where there are more than ``most``, some of every group."""
    total = sum(map(len, groups))
    if total > most:
        shares = [max(1, min(len(rows), len(rows) * most // total)) if len(rows) else 0 for rows in groups]
        groups = [
            rows[np.linspace(0, len(rows) - 1, share).astype(np.int64)] if share else rows
            for rows, share in zip(groups, shares, strict=True)
        ]
    return np.sort(np.concatenate(groups)) if groups else np.zeros(0, dtype=np.int64)


def _packed(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.clip(np.rint(values), 0, 65535).astype("<u2").tobytes()).decode()


def _affordable(pictures: Pictures, most: int) -> int:
    """How many pictures fit into the budget, judged by some of them."""
    some = np.flatnonzero(pictures.usable)
    if not len(some):
        return most
    some = some[np.linspace(0, len(some) - 1, min(32, len(some))).astype(np.int64)]
    mean = sum(len(data_uri(pixels)) for pixels in pictures.many(some.tolist())) / len(some)
    return max(1, min(most, int(BUDGET / mean)))


def _sprites(pictures: Pictures, rows: Sequence[int]) -> list[str]:
    """Contact sheets of these images."""
    side, cells = pictures.side, HOVER_COLUMNS**2
    sheets = []
    images = pictures.many(rows) if rows else []
    for start in range(0, len(rows), cells):
        part = images[start : start + cells]
        sheet = np.zeros((-(-len(part) // HOVER_COLUMNS) * side, HOVER_COLUMNS * side, 3), dtype=np.uint8)
        for cell, pixels in enumerate(part):
            y, x = cell // HOVER_COLUMNS * side, cell % HOVER_COLUMNS * side
            sheet[y : y + side, x : x + side] = pixels
        sheets.append(data_uri(sheet))
    return sheets


def estimate_charts(run: Folder) -> list[Chart | None]:
    """How the number of classes was found."""
    if not run.has("estimate.json"):
        return []
    estimate = run.read_json("estimate.json")
    curve = {name: [math.nan if v is None else float(v) for v in values] for name, values in estimate["curve"].items()}
    ks, threshold = curve.pop("k"), curve.pop("threshold", None)
    titles = {
        "height": "Height of the tree of images",
        "accuracy": "Accuracy on probe classes",
        "silhouette": "Silhouette",
        "gap": "Gap behind this eigenvalue of the graph of neighbours",
        "belief": "Belief in each number, relative to the likeliest",
    }
    interval, counted = estimate.get("interval"), run.kind_found()
    charts = []
    for name, values in curve.items():
        lines = [Line(titles.get(name, name), ks, values)]
        tree = name == "height"
        if tree and threshold is not None:
            lines.append(Line("the tree is cut here", ks, threshold))
        title = f"Estimate of the number of {counted}: {titles.get(name, name).lower()}"
        band = tuple(interval) if interval else None
        charts.append(line_chart(title, f"number of {counted}", lines, log=tree, band=band, mark=estimate["n_new"]))
    return charts


def training_charts(run: Folder) -> list[Chart | None]:
    """The losses of every stage, epoch by epoch; of several networks or heads, the mean."""
    stages: dict[str, dict[str, dict[int, list[float]]]] = {}
    for entry in run.metrics:
        stage = str(entry.get("stage", "")).rpartition("-")
        name = stage[0] if stage[2].isdigit() and stage[0] else str(entry.get("stage", ""))
        for loss, value in (entry.get("losses") or {}).items():
            values = value if isinstance(value, list) else [value]
            numbers = [float(v) for v in values if isinstance(v, int | float)]
            stages.setdefault(name, {}).setdefault(loss, {}).setdefault(int(entry.get("epoch", 0)), []).extend(numbers)
    charts = []
    for name, losses in stages.items():
        lines = [
            Line(
                loss, [epoch + 1 for epoch in sorted(by_epoch)], [_mean(by_epoch[epoch]) for epoch in sorted(by_epoch)]
            )
            for loss, by_epoch in losses.items()
        ]
        if any(len(line.x) > 1 for line in lines):
            charts.append(line_chart(f"Training: losses of the stage “{name}”", "epoch", lines))
    return charts


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def describe_confusion(run: Folder) -> dict[str, Any] | None:
    """True classes against clusters, where the truth was given; None otherwise."""
    table = run.summary.get("confusion")
    if not table or len(table) > MOST_CONFUSED:
        return None
    rows = _true_classes(run, table)
    clusters = {name: number for number, (name, _) in run.summary.get("matched", {}).items()}
    columns = [f"new {clusters[name]}" if name in clusters else f"column {place}" for place, name in enumerate(rows)]
    columns += [f"column {place}" for place in range(len(columns), len(table[0]))]
    largest = max(max(line) for line in table) or 1
    lines = list(zip(rows, table, strict=False))  # with more clusters than classes, the last rows are of no class
    return {"columns": columns, "rows": lines, "largest": largest, "scores": _scores(run)}


def _true_classes(run: Folder, table: Sequence[Sequence[int]]) -> list[str]:
    """What the rows of the confusion matrix stand for."""
    if "confusion_classes" in run.summary:
        return [str(name) for name in run.summary["confusion_classes"]]
    # runs of earlier versions do not say: classes in their usual order, if the numbers of right answers agree with it
    counts = dict(run.summary.get("matched", {}).values())
    names = sorted(counts, key=_natural)
    agrees = len(names) == len(table) and all(table[k][k] == counts[name] for k, name in enumerate(names))
    return names if agrees else [f"row {k}" for k in range(len(table))]


def _natural(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (10**9, name)


def _scores(run: Folder) -> list[tuple[str, str]]:
    texts = {"acc_new": "accuracy", "nmi_new": "normalised mutual information", "ari_new": "adjusted Rand index"}
    return [(text, f"{run.summary[key]:.3f}") for key, text in texts.items() if run.summary.get(key) is not None]
