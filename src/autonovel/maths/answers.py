"""Which of several groupings of the same images to answer with, judged in the space that a run has learned. No labels are asked.

Heads are trained to make clusters of one size, and what they took for a cluster in the first steps they keep; the features
that they train are often better than their own answer. So other groupings of those features stand beside it: k-means, and a tree
for small piles, which does not care for sizes. The one whose clusters are most compact and apart is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.errors import InputError
from autonovel.maths.kmeans import kmeans
from autonovel.maths.silhouette import silhouette

TREE_POINTS = 5000
"""A tree looks at all pairs; larger piles go without."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why."""

    name: str
    """Of the grouping."""
    labels: Tensor
    """int64 (n,), the cluster of each image."""
    scores: dict[str, float]
    """The mean silhouette of each grouping; -1 for one that puts all images into one cluster."""


def unit_features(features: Tensor, networks: int = 1) -> Tensor:
    """Features (n, d) of several networks side by side, each network's part scaled to length one."""
    if features.shape[1] % networks:
        raise InputError(f"{features.shape[1]} features cannot be those of {networks} networks of equal width.")
    return F.normalize(features.float().unflatten(1, (networks, -1)), dim=2).flatten(1)


def groupings(features: Tensor, k: int, *, seed: int = 0) -> dict[str, Tensor]:
    """Groupings of features (n, d) into k clusters that know nothing of heads: 'kmeans' and, for small piles, 'tree'.

    The tree joins the two clusters whose points are nearest on average (average linkage). It finds classes of very different
    sizes, and now and then takes a single odd image for a class.
    """
    found = {"kmeans": kmeans(features, k, seed=seed).labels.cpu()}
    if k < len(features) <= TREE_POINTS:
        from scipy.cluster.hierarchy import cut_tree, linkage

        tree = linkage(features.cpu().double().numpy(), "average")
        found["tree"] = torch.from_numpy(cut_tree(tree, k)[:, 0]).long()
    return found


def choose_answer(
    features: Tensor, candidates: Mapping[str, Tensor], *, margin: float = 0.02, sample: int = 10_000, seed: int = 0
) -> Choice:
    """The grouping with the highest mean silhouette, or the first one where none is better by the margin.

    Args:
        features: (n, d), as :func:`unit_features` gives them.
        candidates: name -> int64 (n,); the answer that stands unless another is better comes first.
        margin: by how much the silhouette of another must be higher.
        sample: points over which the silhouette is averaged, the same for all candidates.
        seed: of that sample.
    """
    if not candidates:
        raise InputError("There is no grouping to choose from; give at least one.")
    rows = torch.stack([labels.cpu() for labels in candidates.values()])
    found = silhouette(features, rows.to(features.device), sample=sample, seed=seed).score.tolist()
    scores = {name: -1.0 if math.isnan(score) else score for name, score in zip(candidates, found, strict=True)}
    first, best = next(iter(scores)), max(scores, key=lambda name: scores[name])
    best = best if scores[best] > scores[first] + margin else first
    return Choice(best, candidates[best].cpu(), scores)
