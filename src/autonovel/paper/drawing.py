"""Figures: curves and tables from the lines of results, pictures of single runs from their folders. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autonovel.paper.cells import Table
from autonovel.paper.rendering import Page
from autonovel.paper.tables import PICTURES
from autonovel.runs.folder import Folder

POINTS = 5000
"""Images of a t-SNE, the same ones in every panel."""


def draw_tables(page: Page, tables: Sequence[Table], folder: Path) -> list[Path]:
    """A picture of each table or curve that has a figure of ours; returns the files."""
    files = []
    for table in tables:
        if any(page.shown(table, cell) is not None for cell in table.cells):
            figure = Figure(figsize=(8, 0.8 + (4 if table.axis else 0.28 * len(table.cells))), layout="constrained")
            (_curve if table.axis else _dots)(page, table, figure.subplots())
            files.append(save(figure, folder / f"{table.name}.png"))
    return files


def _curve(page: Page, table: Table, axes: Axes) -> None:
    """A line for each row; with several seeds, a band of one standard deviation."""
    for row, title in table.rows.items():
        there = [(float(c.column), s) for c in table.cells if c.row == row and (s := page.shown(table, c)) is not None]
        if there:
            x, mean = [at for at, _ in there], np.array([shown.mean for _, shown in there])
            spread = np.array([shown.spread or 0.0 for _, shown in there])
            axes.plot(x, mean, marker="o", label=title)
            axes.fill_between(x, mean - spread, mean + spread, alpha=0.2)
    axes.set(xlabel=table.axis, ylabel="ACC in %", title=table.title)
    axes.legend()


def _dots(page: Page, table: Table, axes: Axes) -> None:
    """A line for each cell: the paper's figure as a ring, ours as a dot."""
    cells = [cell for cell in table.cells if cell.paper is not None]
    for place, cell in enumerate(cells):
        shown = page.shown(table, cell)
        assert cell.paper is not None
        axes.errorbar(cell.paper.mean, place, xerr=cell.paper.spread, fmt="o", mfc="white", color="0.5")
        if shown is not None:
            axes.errorbar(shown.mean, place, xerr=shown.spread, fmt="o", color="C0")
    axes.set_yticks(range(len(cells)), [f"{table.rows[c.row]}, {table.columns[c.column]}" for c in cells], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="ACC in %" if table.unit == "%" else "classes", title=f"{table.title}: rings are the paper's")


def draw_told(page: Page, name: str, folder: Path) -> Path | None:
    """A picture that the lines of results alone give, the confusions; nothing where their runs are missing."""
    plans = PICTURES[name][1]
    if not name.startswith("confusion"):
        return None
    panels = {}
    for plan in plans:
        for scale in page.scales:
            told = [run for run in page.results.runs(plan, scale) if "confusion" in run.scores]
            if told:
                panels["w/ I.L." if plan.changes else "Ours"] = told[-1].scores
                break
    return draw_confusion(panels, folder / f"{name}.png") if len(panels) == len(plans) else None


def draw_confusion(panels: Mapping[str, Mapping[str, Any]], file: Path) -> Path:
    """Confusion after matching, normalised by rows: a panel for each run's scores."""
    figure = Figure(figsize=(4.5 * len(panels), 4.5), layout="constrained")
    for axes, (title, scores) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        table, names = np.array(scores["confusion"], float), scores["confusion_classes"]
        shares = table / table.sum(1, keepdims=True).clip(min=1)
        axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
        for (row, column), share in np.ndenumerate(shares):
            if share >= 0.005 and len(table) <= 20:
                axes.text(
                    column,
                    row,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    color="w" if share > 0.5 else "k",
                    fontsize=7,
                )
        axes.set_xticks(range(len(table)), [*names, *[""] * (len(table) - len(names))], rotation=90)
        axes.set_yticks(range(len(table)), [*names, *[""] * (len(table) - len(names))])
        axes.set(title=title, xlabel="found", ylabel="true")
    return save(figure, file)


def draw_maps(
    panels: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[np.int64]]], names: Sequence[str], file: Path
) -> Path:
    """t-SNE above, two principal axes below, a column for each panel's features (n, d) and true classes (n,)."""
    figure = Figure(figsize=(4 * len(panels), 8), layout="constrained")
    grid = figure.subplots(2, len(panels), squeeze=False)
    for column, (title, (features, classes)) in enumerate(panels.items()):
        axes_50 = principal(features, 50)
        for row, points in enumerate((tsne(axes_50), axes_50[:, :2])):
            axes = grid[row][column]
            for c in np.unique(classes):
                mine = points[classes == c]
                axes.scatter(*mine.T, s=2, color=f"C{c % 10}", label=names[c])
            axes.set(xticks=[], yticks=[], title=f"{title}{', principal axes' if row else ''}")
    grid[0][0].legend(markerscale=4, fontsize=7)
    return save(figure, file)


def tsne(points: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Two coordinates for each point; perplexity 30, the same seed always."""
    from sklearn.manifold import TSNE

    places: npt.NDArray[np.float32] = TSNE(
        init="pca", perplexity=min(30, (len(points) - 1) / 3), random_state=0
    ).fit_transform(points)
    return places


def principal(features: npt.NDArray[Any], axes: int) -> npt.NDArray[np.float32]:
    """Coordinates along the strongest axes."""
    centred = features.astype(np.float32) - features.mean(0, dtype=np.float32)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    places: npt.NDArray[np.float32] = u[:, :axes] * s[:axes]
    return places


def draw_curves(curves: Mapping[str, Mapping[str, Sequence[float]]], epochs: Sequence[int], file: Path) -> Path:
    """A panel for each quantity, a line for each rule, over the epochs."""
    figure = Figure(figsize=(5.5 * len(curves), 4.5), layout="constrained")
    for axes, (quantity, lines) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        for title, values in lines.items():
            axes.plot(epochs, values, marker="o", label=title)
        axes.set(xlabel="epochs of joint training", title=quantity, ylim=(0, 1))
    axes.legend(fontsize=7)
    return save(figure, file)


def draw_run(run: Folder, folder: Path) -> list[Path]:
    """The figures of any finished run: its losses, a map of its images by class and cluster, its confusion if it was scored."""
    stages = list(dict.fromkeys(entry["stage"] for entry in run.metrics))
    drawn = []
    if stages:
        figure = Figure(figsize=(4.5 * len(stages), 4), layout="constrained")
        for axes, stage in zip(figure.subplots(1, len(stages), squeeze=False)[0], stages, strict=True):
            entries = [entry for entry in run.metrics if entry["stage"] == stage]
            for loss in entries[-1]["losses"]:
                axes.plot([float(np.mean(entry["losses"][loss])) for entry in entries], label=loss)
            axes.set(title=stage, xlabel="epochs", ylabel="loss")
            axes.legend()
        drawn.append(save(figure, folder / "losses.png"))
    classes: list[str] = run.config["run"]["data"]["class_names"]
    clusters, names = answers_of(run)
    known = [classes.index(record.label) for record in run.images if record.label is not None]
    places = np.array([*known, *clusters])
    both = np.concatenate([np.load(run.path / name) for name in ("features-labelled.npy", "features.npy")])
    some = np.random.default_rng(0).permutation(len(places))[:POINTS]
    drawn.append(draw_maps({"labelled and new": (both[some], places[some])}, names, folder / "tsne.png"))
    if "confusion" in run.summary:
        drawn.append(draw_confusion({"after matching": run.summary}, folder / "confusion.png"))
    return drawn


def answers_of(run: Folder) -> tuple[npt.NDArray[np.int64], list[str]]:
    """What a run says of each unlabelled image, and the names of the known and the new classes."""
    group, classes = run.machine.group, run.config["run"]["data"]["class_names"]  # a known class is below zero
    names = [*classes, *(f"new {c}" for c in range(int(group.max(initial=-1)) + 1))]
    return np.where(group >= 0, len(classes) + group, -1 - group), names


def save(figure: Figure, file: Path) -> Path:
    """Write it whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    figure.savefig(part, dpi=120, format="png", bbox_inches="tight")  # else titles over square panels are cut
    part.replace(file)
    return file
