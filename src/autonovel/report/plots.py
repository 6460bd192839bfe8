"""Pictures of what was found. Drawn from the run folder alone, without pyplot, which is not made for several threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, kind_found
from autonovel.report.clusters import Pictures, Shown, shown_clusters
from autonovel.runs.folder import Folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUREST, DOUBTFUL = 12, 6
GAP = 4
BLOCK_GAP = 28
"""Pixels between the surest images of a cluster and the most doubtful ones."""

MOST_CLUSTERS = 100
_RED = (220, 38, 38)


def draw_clusters(run: Folder, truth_labels: Sequence[str] | None = None) -> Path:
    """Save clusters.png into the run folder: a row per cluster, its surest images and then the most doubtful ones.

    Args:
        run: a finished run with thumbnails.
        truth_labels: the true class of every row of predictions.csv, where it is known: images that are not of the class
            their cluster was matched to get a red frame.
    """
    from matplotlib.figure import Figure

    pictures = Pictures(run)
    if not pictures.any:
        raise InputError(f"The run in {run.path} has no thumbnails to draw; run it again with this version.")
    clusters = [cluster for cluster in shown_clusters(run) if cluster.size][:MOST_CLUSTERS]
    matched = run.summary.get("matched", {}) if truth_labels is not None else {}
    side = pictures.side
    width = (SUREST + DOUBTFUL) * (side + GAP) + BLOCK_GAP
    canvas = np.full((len(clusters) * (side + GAP), width, 3), 255, dtype=np.uint8)
    for line, cluster in enumerate(clusters):
        true_class = matched.get(str(cluster.number), (None,))[0]
        for row, x in _chosen(cluster, pictures.usable, side):
            y = line * (side + GAP)
            wrong = truth_labels is not None and true_class is not None and truth_labels[row] != true_class
            canvas[y : y + side, x : x + side] = _framed(pictures.pixels(row), wrong)
    inches = width / 100
    figure = Figure(figsize=(inches + 1.9, canvas.shape[0] / 100 + 0.5))
    axis = figure.add_axes(
        (1.9 / (inches + 1.9), 0, inches / (inches + 1.9), canvas.shape[0] / 100 / figure.get_figheight())
    )
    axis.imshow(canvas, interpolation="nearest", aspect="auto")
    axis.axis("off")
    for line, cluster in enumerate(clusters):
        text = f"{_short(cluster.name)}\n{cluster.size:,} images, {cluster.confidence:.0%} sure"
        true_class = matched.get(str(cluster.number), (None,))[0]
        text += f"\n= {true_class}" if true_class is not None else ""
        axis.text(-12, line * (side + GAP) + side / 2, text, ha="right", va="center", fontsize=7.5, parse_math=False)
    heads = ((0, "surest"), (SUREST * (side + GAP) + BLOCK_GAP, "most doubtful"))
    for x, text in heads:
        axis.text(x, -8, text, ha="left", va="bottom", fontsize=8, color="#566069")
    return _save(run, figure, "clusters.png", dpi=100 if len(clusters) > 40 else 150, facecolor="white")


def _chosen(cluster: Shown, usable: npt.NDArray[np.bool_], side: int) -> list[tuple[int, int]]:
    """Rows to draw and where each begins, in pixels; in a small cluster no image is there twice."""
    doubtful = [row for row in cluster.ordered("doubtful").tolist() if usable[row]]
    surest = doubtful[::-1][:SUREST]
    doubtful = doubtful[: max(0, min(DOUBTFUL, len(doubtful) - len(surest)))]
    places = [(row, column * (side + GAP)) for column, row in enumerate(surest)]
    return places + [(row, (SUREST + column) * (side + GAP) + BLOCK_GAP) for column, row in enumerate(doubtful)]


def _framed(pixels: npt.NDArray[np.uint8], wrong: bool) -> npt.NDArray[np.uint8]:
    if wrong:
        pixels = pixels.copy()
        for edge in (np.s_[:3], np.s_[-3:], np.s_[:, :3], np.s_[:, -3:]):
            pixels[edge] = _RED
    return pixels


def _short(name: str, most: int = 26) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def draw_estimate(run: Folder) -> Path:
    """Save estimate.png into the run folder: how the number of new classes, or of clusters, was found.

    Above the numbers of classes: the indices of Algorithm 1 or the silhouette, or the heights of the tree with the
    place where it is cut. The estimate is a line, its interval a band.
    """
    from matplotlib.figure import Figure

    estimate = run.read_json("estimate.json")
    curve = {name: np.array(values, dtype=float) for name, values in estimate["curve"].items()}
    names = [name for name in curve if name not in ("k", "threshold")]
    figure = Figure(figsize=(6, 2 + 1.6 * len(names)))
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    for axis, name in zip(axes[:, 0], names, strict=True):
        looked_at = ~np.isnan(curve[name])
        axis.plot(curve["k"][looked_at], curve[name][looked_at], marker="." if len(names) > 1 else "", color="C0")
        if name == "height":
            axis.plot(curve["k"], curve["threshold"], color="C1", label="the tree is cut here")
            axis.set_yscale("log")
        if estimate["interval"] is not None:
            axis.axvspan(*estimate["interval"], color="C2", alpha=0.2, label="interval")
        axis.axvline(estimate["n_new"], color="C2", label=f"estimate: {estimate['n_new']}")
        if estimate.get("second") is not None:
            axis.axvline(estimate["second"], color="C3", linestyle=":", label=f"second peak: {estimate['second']}")
        axis.set_ylabel({"height": "height of the tree", "accuracy": "accuracy on probe classes"}.get(name, name))
    axes[0, 0].legend(fontsize=8)
    known = estimate.get("known", True)
    axes[-1, 0].set_xlabel(f"number of {kind_found(known)}")
    between = "" if estimate["interval"] is None else ", between {} and {}".format(*estimate["interval"])
    axes[0, 0].set_title(f"{estimate['n_new']} {kind_found(known, estimate['n_new'])}{between}", fontsize=10)
    figure.tight_layout()
    return _save(run, figure, "estimate.png", dpi=120)


def _save(run: Folder, figure: Figure, name: str, **options: Any) -> Path:
    with run.whole(name) as path:
        figure.savefig(path, format="png", **options)
    return run.path / name
