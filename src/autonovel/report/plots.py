"""Pictures of what was found."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autonovel.data.images import ImageSet, Truth
from autonovel.runs.folder import Run


def draw_clusters(run: Run, images: ImageSet, truth: Truth | None = None, *, per_cluster: int = 16) -> Path:
    """Save clusters.png into the run folder: a row per cluster, its surest images first.

    With a truth, images that are not of the cluster's matched class have a red frame.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = run.predictions
    labels = np.array([int(row["cluster"]) for row in rows])
    sure = np.array([float(row["probability"]) for row in rows])
    places = np.flatnonzero(~images.is_labelled)
    matched = run.summary.get("matched", {})
    n_new = run.summary["n_new"]
    figure, axes = plt.subplots(
        n_new, per_cluster, figsize=(per_cluster * 0.5 + 1.6, n_new * 0.52 + 0.5), squeeze=False
    )
    for cluster in range(n_new):
        members = np.flatnonzero(labels == cluster)
        # evenly from the surest to the least sure: the least sure ones show where the cluster ends
        order = members[np.argsort(-sure[members], kind="stable")]
        chosen = (
            order[np.linspace(0, len(order) - 1, min(per_cluster, len(order))).astype(int)] if len(order) else order
        )
        name = matched.get(str(cluster), (None,))[0]
        for column, axis in enumerate(axes[cluster]):
            axis.set_xticks([])
            axis.set_yticks([])
            axis.axis("off")
            if column < len(chosen):
                place = places[chosen[column]]
                axis.imshow(images.images[place].squeeze(), cmap="gray_r" if images.channels == 1 else None)
                if truth is not None and name is not None and truth.class_names[truth.labels[place]] != name:
                    axis.axis("on")
                    for spine in axis.spines.values():
                        spine.set_edgecolor("red")
                        spine.set_linewidth(2)
        label = f"cluster {cluster}\n{len(members)} images" + (f"\n= {name}" if name else "")
        axes[cluster][0].text(
            -0.25, 0.5, label, transform=axes[cluster][0].transAxes, ha="right", va="center", fontsize=7
        )
    figure.suptitle("Each row: one discovered class, from its surest image to its least sure", fontsize=8)
    figure.tight_layout(pad=0.3)
    path = run.path / "clusters.png"
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)
    return path


def draw_estimate(run: Run) -> Path:
    """Save estimate.png into the run folder: how the number of new classes was found.

    Above the numbers of classes: the indices of Algorithm 1 or the silhouette, or the heights of the tree with the
    place where it is cut. The estimate is a line, its interval a band.
    """
    from matplotlib.figure import Figure  # without pyplot, which is not made for several threads

    found = run.read_json("estimate.json")
    curve = {name: np.array(values, dtype=float) for name, values in found["curve"].items()}
    names = [name for name in curve if name not in ("k", "threshold")]
    figure = Figure(figsize=(6, 2 + 1.6 * len(names)))
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    for axis, name in zip(axes[:, 0], names, strict=True):
        looked_at = ~np.isnan(curve[name])
        axis.plot(curve["k"][looked_at], curve[name][looked_at], marker="." if len(names) > 1 else "", color="C0")
        if name == "height":
            axis.plot(curve["k"], curve["threshold"], color="C1", label="the tree is cut here")
            axis.set_yscale("log")
        if found["interval"] is not None:
            axis.axvspan(*found["interval"], color="C2", alpha=0.2, label="interval")
        axis.axvline(found["n_new"], color="C2", label=f"estimate: {found['n_new']}")
        if found.get("second") is not None:
            axis.axvline(found["second"], color="C3", linestyle=":", label=f"second peak: {found['second']}")
        axis.set_ylabel({"height": "height of the tree", "accuracy": "accuracy on probe classes"}.get(name, name))
    axes[0, 0].legend(fontsize=8)
    axes[-1, 0].set_xlabel("number of new classes")
    between = "" if found["interval"] is None else ", between {} and {}".format(*found["interval"])
    axes[0, 0].set_title(f"{found['n_new']} new classes{between} ({found['method']})", fontsize=10)
    figure.tight_layout()
    path = run.path / "estimate.png"
    figure.savefig(path, dpi=120)
    return path
