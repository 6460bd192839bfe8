"""Pictures of runs, made after them from what their folders keep: true classes colour them and reach nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.base.chance import host_generator
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, Truth
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.pairs import PairInput, find_rule
from autonovel.paper.cells import Plan
from autonovel.paper.drawing import POINTS, answers_of, draw_curves, draw_maps
from autonovel.paper.tables import PAIRS
from autonovel.runs.folder import Folder

SHARES = (0.0, 0.05, 0.15, 0.3, 0.45, 0.7, 1.0)
"""Of the epochs of the last stage, after which features are kept: of 200 the start, 10, 30, 60, 90, 140 and the end."""
SHOWN = (0.0, 0.15, 0.45)
"""Of these, those that the paper's t-SNE shows."""
BATCHES, BATCH = 50, 64
"""Draws of unlabelled images in which rules are compared: as many as a batch of 128 of CIFAR-10 holds on average."""

Labels = npt.NDArray[np.int64]


def kept_after(epochs: int) -> tuple[int, ...]:
    """The epochs after which features are kept."""
    return tuple(sorted({round(share * epochs) for share in SHARES}))


def kept_epochs(run: Folder) -> list[int]:
    """After how many epochs a run has kept features."""
    return sorted(int(file.stem.removeprefix("kept-")) for file in run.path.glob("kept-*.safetensors"))


def read_kept(run: Folder, epochs: int) -> npt.NDArray[np.float32]:
    """The features (m, d) of the pile after some epochs."""
    return run.read_tensors(f"kept-{epochs:04d}.safetensors")[0]["features"].float().numpy()


def sample(classes: Labels) -> Labels:
    """The places of the images of a map, the same ones each time."""
    return torch.randperm(len(classes), generator=host_generator(0, "map"))[:POINTS].numpy()


def draw_epochs(run: Folder, at: Sequence[int], classes: Labels, names: Sequence[str], file: Path) -> Path:
    """The pile at the start of the last stage and after some epochs of it."""
    places = sample(classes)
    panels = {f"epoch {e}" if e else "start": (read_kept(run, e)[places], classes[places]) for e in at}
    return draw_maps(panels, names, file)


def draw_kept(run: Folder, folder: Path, scored: tuple[ImageSet, Truth] | None) -> list[Path]:
    """What the features that a run kept show: maps, in the colours of its clusters or of the true classes; with these, accuracy
    and pair labels over the epochs."""
    at = kept_epochs(run)
    if not at:
        return []
    file = folder / "epochs.png"
    if scored is None:
        return [draw_epochs(run, at, *answers_of(run), file)]
    data, truth = scored
    classes = truth.labels[~data.is_labelled]
    if len(classes) != len(read_kept(run, at[0])):
        raise InputError(f"The run in {run.path} is about other images: it has {len(read_kept(run, at[0]))} unlabelled ones, "
                         f"and these are {len(classes)}; name its own data.")  # fmt: skip
    return [
        draw_epochs(run, at, classes, truth.class_names, file),
        draw_accuracy({"ACC": run}, data, truth, folder / "accuracy.png"),
        draw_rules(run, data, truth, folder / "ranking.png"),
    ]


def draw_old_and_new(runs: Mapping[str, Folder], data: ImageSet, truth: Truth, file: Path) -> Path:
    """Labelled and unlabelled images of each run in one map."""
    classes = np.concatenate([truth.labels[data.is_labelled], truth.labels[~data.is_labelled]])
    places = sample(classes)
    panels = {}
    for title, run in runs.items():
        both = [np.load(run.path / name) for name in ("features-labelled.npy", "features.npy")]
        panels[title] = (np.concatenate(both)[places].astype(np.float32), classes[places])
    return draw_maps(panels, truth.class_names, file)


def draw_accuracy(runs: Mapping[str, Folder], data: ImageSet, truth: Truth, file: Path) -> Path:
    """ACC on the pile over the epochs, a line for each run; all of them kept the same epochs."""
    classes = truth.labels[~data.is_labelled]
    at = kept_epochs(next(iter(runs.values())))
    lines = {
        title: [
            cluster_accuracy(classes, run.read_tensors(f"kept-{e:04d}.safetensors")[0]["clusters"].numpy()) for e in at
        ]
        for title, run in runs.items()
    }
    return draw_curves({"ACC": lines}, at, file)


def draw_rules(run: Folder, data: ImageSet, truth: Truth, file: Path) -> Path:
    """Precision and recall of "alike" over the epochs, for each rule of pair labels on the features of one run."""
    classes = truth.labels[~data.is_labelled]
    n_new, at = len(np.unique(classes)), kept_epochs(run)
    rules = {PAIRS.rows[c.row]: c.way.changes for c in PAIRS.cells if c.column == "cifar10" and isinstance(c.way, Plan)}
    curves: dict[str, dict[str, list[float]]] = {"precision of 'alike'": {}, "recall of 'alike'": {}}
    for epoch in at:
        features = torch.from_numpy(read_kept(run, epoch))
        clusters = kmeans(features, n_new, restarts=3).labels
        for title, settings in rules.items():
            compared = compare_rule(features, clusters, torch.from_numpy(classes), n_new, settings)
            for lines, value in zip(curves.values(), compared, strict=True):
                lines.setdefault(title, []).append(value)
    return draw_curves(curves, at, file)


def compare_rule(
    features: Tensor, clusters: Tensor, classes: Tensor, n_new: int, settings: Mapping[str, Any]
) -> tuple[float, float]:
    """Precision and recall of a rule over pairs of different images in many draws.

    Args:
        features: (m, d) of the pile.
        clusters: (m,) of k-means over all of it.
        classes: (m,) the true ones.
        n_new: how many there are.
        settings: ``joint.pairs`` and what belongs to it.
    """
    rule, k = find_rule(settings.get("joint.pairs", "rank")), settings.get("joint.top_k", 5)
    right = said = there = 0.0
    for number in range(BATCHES):
        index = torch.randperm(len(features), generator=host_generator(0, "rules", number))[:BATCH]
        mask = torch.ones(len(index), dtype=torch.bool)
        pair_input = PairInput(features[index], mask, clusters[index], n_new, k, settings.get("joint.threshold", 0.85))
        alike = rule(pair_input).fill_diagonal_(0)
        true = (classes[index][:, None] == classes[index][None]).float().fill_diagonal_(0)
        right, said, there = right + float((alike * true).sum()), said + float(alike.sum()), there + float(true.sum())
    return right / max(said, 1e-9), right / max(there, 1e-9)
