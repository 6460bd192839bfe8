"""Clusters of one network as a graph: which of them are one class, and what all of its heads say together.

A head gives each image a probability for each of its clusters. Two clusters are linked by the images that could be in either.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autonovel.errors import InputError
from autonovel.maths.kmeans import kmeans
from autonovel.maths.silhouette import silhouette

SAMPLE = 2_000
"""Images whose silhouettes are averaged; each is compared with all others."""


def merging_order(probabilities: Tensor) -> list[tuple[int, int]]:
    """In which order clusters belong together, as (into, from) pairs, by the probabilities (n, k) of one head.

    Again and again the two are merged whose columns of probabilities have the largest cosine; the merged cluster has the sum
    of both, and the smaller number. The order ends with one cluster.
    """
    shared = probabilities.double().T @ probabilities.double()
    alive = list(range(len(shared)))
    order = []
    while len(alive) > 1:
        part = shared[alive][:, alive]
        length = part.diagonal().clamp(min=1e-300).sqrt()
        cosine = (part / (length[:, None] * length)).tril(-1)
        place = int(cosine.argmax()) if cosine.any() else len(alive)  # clusters that share nothing: the first two
        first, second = sorted((alive[place // len(alive)], alive[place % len(alive)]))
        shared[first] += shared[second].clone()
        shared[:, first] += shared[:, second].clone()
        alive.remove(second)
        order.append((first, second))
    return order


def merged(order: Sequence[tuple[int, int]], left: int) -> Tensor:
    """int64 (k,): for each of the k clusters of a merging order, the cluster that it is a part of when `left` are left."""
    k = len(order) + 1
    if not 1 <= left <= k:
        raise InputError(f"{k} clusters cannot be merged into {left}; ask for 1 to {k}.")
    to = torch.arange(k)
    for into, other in order[: k - left]:
        to[to == other] = into
    return to


def silhouettes_by_number(
    points: Tensor, clusters: Tensor, order: Sequence[tuple[int, int]], *, seed: int = 0
) -> dict[int, float]:
    """The silhouette among `points` (n, d) of the `clusters` (n,) when so many of them are left, from 2 to all."""
    numbers = range(2, len(order) + 2)
    labels = torch.stack([merged(order, left).to(clusters.device)[clusters] for left in numbers])
    found = silhouette(points, labels, sample=SAMPLE, seed=seed).score
    return dict(zip(numbers, found.nan_to_num(-1.0).tolist(), strict=True))


def common_groups(heads: Tensor, k: int, *, seed: int = 0) -> Tensor:
    """int64 (n,): `k` groups of images by what several heads (heads, n, clusters) say of them together.

    Images and clusters of all heads are the two sides of a graph, whose links are probabilities. The groups are those of
    k-means in its first k singular directions, rows of length 1 (spectral clustering).
    """
    links = heads.double().transpose(0, 1).flatten(1) / len(heads)
    links = links[:, links.sum(0) > 1e-9]
    weight = links.sum(0)
    _, vectors = torch.linalg.eigh((links.T @ links) / (weight[:, None] * weight).sqrt())
    places = links @ (vectors[:, -k:] / weight.sqrt()[:, None])
    places = places / places.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return kmeans(places.float(), k, seed=seed).labels
