"""Silhouette of one or of many clusterings of the same points, exact in chunks or by sample.

The silhouette of a point is (b - a) / max(a, b): a is its mean Euclidean distance to the other points of its cluster,
b the mean distance to the points of the nearest other cluster. All the clusterings of a sweep share the one expensive
thing, the distances: each block of them is computed once and then summed by cluster for every clustering.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from autonovel.base.errors import InputError
from autonovel.maths.points import check_features, standardise

# Edge of a block of distances: small enough for the cache of a CPU, large enough to fill a GPU.
_CPU_EDGE, _GPU_EDGE = 2048, 8192
# Floats of the sums by cluster that are kept for one block of rows.
_MAX_SUMS = 1 << 26


@dataclass(frozen=True)
class Silhouette:
    """Mean silhouette of each clustering."""

    score: Tensor
    """float64 (clusterings,), from -1 to 1; NaN for a clustering that uses a single cluster."""
    standard_error: Tensor
    """float64 (clusterings,): how far the score of the whole set may lie from that of the sample; 0 when exact."""


def silhouette(features: Tensor, labels: Tensor, *, sample: int | None = None, seed: int = 0) -> Silhouette:
    """Mean silhouette of the clusterings `labels` (n,) or (clusterings, n) of `features` (n, d).

    With `sample`, the mean is taken over that many points drawn without replacement. Each drawn point is still compared
    with all others, so its silhouette is exact and the mean is unbiased. All clusterings share the draw, which
    makes the differences between them more certain than the scores.
    """
    n = len(features)
    if sample is not None and sample < 2:
        raise InputError(f"A silhouette by sample needs at least 2 points, not {sample}.")
    if sample is None or sample >= n:
        values = silhouette_samples(features, labels)
        return Silhouette(values.mean(1), torch.zeros(len(values), dtype=torch.float64))
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:sample]
    values = silhouette_samples(features, labels, rows=rows)
    error = values.std(1) * ((1 / sample) * (1 - sample / n)) ** 0.5
    return Silhouette(values.mean(1), error)


def silhouette_samples(features: Tensor, labels: Tensor, *, rows: Tensor | None = None) -> Tensor:
    """Silhouette of every point, or of the points `rows`: float64 (clusterings, points) on the CPU.

    Memory is bounded by blocks, whatever n and the number of clusterings, but for the result. float64 features are
    worked on in float64, all others in float32, where points that coincide may seem 0.0005 standard deviations apart.
    """
    check_features(features)
    labels = labels[None] if labels.ndim == 1 else labels
    if labels.shape[1:] != features.shape[:1] or labels.is_floating_point():
        raise InputError(f"Labels must be integers, one for each of the {len(features)} points.")
    device = features.device
    # Numbered from 0 without gaps, clustering by clustering, so that no time goes into unused labels.
    ids, counts = zip(*(torch.unique(row, return_inverse=True, return_counts=True)[1:] for row in labels), strict=True)
    columns = torch.stack(ids).to(device)
    sizes = [count.to(device) for count in counts]

    x, _, _ = standardise(features)  # the silhouette does not depend on the place of the origin or on the scale
    rows = torch.arange(len(x), device=device) if rows is None else rows.to(device)
    result = torch.empty(len(labels), len(rows), dtype=torch.float64)
    edge = _CPU_EDGE if device.type == "cpu" else _GPU_EDGE
    total = sum(len(size) for size in sizes)
    height = max(1, min(edge, _MAX_SUMS // total))
    for begin in range(0, len(rows), height):
        picked = rows[begin : begin + height]
        sums = _sums_by_cluster(x, picked, columns, [len(size) for size in sizes], edge)
        for i, (block, size) in enumerate(zip(sums, sizes, strict=True)):
            result[i, begin : begin + height] = _silhouette(block, columns[i, picked], size).cpu()
    return result


def _sums_by_cluster(x: Tensor, rows: Tensor, columns: Tensor, clusters: list[int], edge: int) -> tuple[Tensor, ...]:
    """For each clustering (clusters, rows): the sum of distances from each row to all points of a cluster."""
    sums = torch.zeros(sum(clusters), len(rows), dtype=x.dtype, device=x.device)
    first = torch.tensor([0, *clusters[:-1]], device=x.device).cumsum(0)
    for begin, block in _distance_blocks(x, rows, edge):
        # One bag per cluster of each clustering; a bag lists the points of the block that belong to it.
        bag = (columns[:, begin : begin + len(block)] + first[:, None]).flatten()
        order = torch.argsort(bag, stable=True)
        count = torch.bincount(bag, minlength=len(sums))
        sums += embedding_bag(order % len(block), block, count.cumsum(0) - count, mode="sum")
    return torch.split(sums, clusters)


def _distance_blocks(x: Tensor, rows: Tensor, edge: int) -> Iterator[tuple[int, Tensor]]:
    """(first point, distances (points of the block, rows)) over all points."""
    picked = x[rows]
    picked_sq = picked.square().sum(1)
    # The position of each row among the points, to set its distance to itself to exactly 0.
    column = torch.arange(len(rows), device=x.device)
    for begin in range(0, len(x), edge):
        points = x[begin : begin + edge]
        block = torch.addmm(picked_sq, points, picked.T, alpha=-2)
        block.add_(points.square().sum(1, keepdim=True)).clamp_(min=0).sqrt_()
        inside = (rows >= begin) & (rows < begin + len(points))
        block[rows[inside] - begin, column[inside]] = 0
        yield begin, block


def _silhouette(sums: Tensor, own: Tensor, size: Tensor) -> Tensor:
    """Silhouettes of the rows from the `sums` (clusters, rows) of distances, their cluster and the cluster sizes."""
    if len(size) < 2:
        return torch.full(own.shape, torch.nan, dtype=torch.float64)
    sums = sums.double()
    inner = sums.gather(0, own[None])[0] / (size[own] - 1).clamp(min=1)
    outer = (sums / size[:, None]).scatter_(0, own[None], torch.inf).amin(0)
    value = (outer - inner) / torch.maximum(inner, outer)
    # A point alone in its cluster counts 0 by definition; 0/0 means that all points coincide.
    return torch.where(size[own] > 1, value, 0.0).nan_to_num(0.0)
