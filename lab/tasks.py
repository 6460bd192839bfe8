"""The studies of the laboratory: what was compared with what, as data.

Rows of a study differ in one thing. What the paper found for a row stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Fields = Mapping[str, Any]
"""Fields of a recipe by name, and what they are set to."""


@dataclass(frozen=True)
class Study:
    """One question.

    Attributes:
        title: for the table.
        task: on which data, in the words of :func:`make_task`.
        recipe: name and preset, joined by a colon.
        rows: name -> fields that the row sets.
        paper: ACC in the paper.
        raw: ACC in the paper of k-means on what the first stage alone says.
    """

    title: str
    task: str
    recipe: str
    rows: Mapping[str, Fields]
    paper: Mapping[str, float]
    raw: Mapping[str, float] = field(default_factory=dict)


DEPTHS = ("heads", "layer4", "layer3", "layer2", "layer1", "all")


def _depths(pretraining: str, *paper: float) -> Study:
    rows = {
        depth: {"pretrain.method": pretraining, "supervised.train_from+joint.train_from": depth} for depth in DEPTHS
    }
    title = f"Depth, after {pretraining}"
    return Study(title, "cifar10", "cifar10:fast", rows, dict(zip(DEPTHS, paper, strict=True)))


STUDIES: Mapping[str, Study] = {
    "pairs": Study(
        "Pair rules", "cifar10", "cifar10:fast",
        {
            "rank": {}, "nearest": {"joint.pairs": "nearest"}, "cosine": {"joint.pairs": "cosine"},
            "soft-15": {"joint.pairs": "soft", "joint.top_k": 15}, "soft-5": {"joint.pairs": "soft", "joint.top_k": 5},
            "kmeans-all": {"joint.pairs": "kmeans-all"}, "kmeans-batch": {"joint.pairs": "kmeans-batch"},
        },
        {
            "rank": 90.4, "nearest": 90.2, "cosine": 90.1, "soft-15": 89.7, "soft-5": 62.2, "kmeans-all": 62.2,
            "kmeans-batch": 42.9,
        },
    ),
    "pretraining": Study(
        "Pre-training", "cifar10", "cifar10:fast",
        {method: {"pretrain.method": method} for method in ("rotation", "simclr", "moco", "moco-v2")},
        {"rotation": 90.4, "simclr": 89.0, "moco": 87.6, "moco-v2": 89.0},
        {"rotation": 25.5, "simclr": 84.7, "moco": 58.7, "moco-v2": 61.8},
    ),
    "depth": _depths("rotation", 39.9, 90.4, 90.8, 88.4, 89.3, 88.9),
    "depth-simclr": _depths("simclr", 73.1, 89.0, 89.1, 89.5, 90.4, 88.6),
    "depth-moco": _depths("moco", 80.8, 87.6, 88.8, 89.3, 90.4, 89.5),
    "depth-moco-v2": _depths("moco-v2", 84.6, 89.0, 89.5, 89.0, 90.3, 89.2),
    "unlabelled": Study(
        "Without labels", "cifar10-all", "cluster:paper",
        {"full": {}, "no-consistency": {"joint.consistency": 0.0}, "no-rotation": {"pretrain.method": "none"}},
        {"full": 61.7, "no-consistency": 57.7, "no-rotation": 18.8},
    ),
    "neighbours": Study(
        "Without labels, from SimCLR", "cifar10-all", "cluster-neighbours:paper",
        {"kmeans": {"method": "kmeans"}, "neighbours": {}}, {},
    ),
}  # fmt: skip
"""By name; the laboratory's command takes these names."""
