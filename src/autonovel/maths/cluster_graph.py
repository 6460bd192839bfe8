"""Clusters of one head as a graph: which of them are one class, and which hold several.

A head gives each image a probability for each cluster. Two clusters are linked by the images that could be in either: halves
of one class have many of them, since nothing in the images says where one half ends; different classes have few, once the
head has learned to tell them apart. Where it has not, this tells nothing, and that shows too: then even the most different
parts of the pile have images between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from autonovel.base.errors import InputError

POSSIBLE = 0.2
"""An image could be in every cluster that has at least this probability."""

ONE_CLASS = 0.15
"""Two clusters are one class where this share of the images of the smaller one could be in either."""

TWO_CLASSES = 0.05
"""Below this share they are two. In between, halves of a class and classes that look alike have both been seen; then the sizes
decide. Also, with such a share between the two most different parts of the pile a head cannot tell classes apart at all."""

MORE_EVEN = 0.1
"""By how much the unevenness of classes (standard deviation of their sizes over the mean) must fall for doubtful clusters to be
merged. Without it, equal clusters in pairs would be: pairs of equals are as equal."""

TIE = 1e-6
"""How much the likeness of probabilities counts beside the images between two clusters: only where those say nothing."""

TOO_FEW = 1.5
"""Over-clustering heads must count this many times the number of classes asked for before anything is said about it: on digits
they sometimes count one of three too many."""

PART = 0.25
"""A class that has this share of a cluster is a part of it."""


class Join(NamedTuple):
    """Two clusters that belong together; ``between`` counts the images that could be in either, for one of the smaller."""

    into: int
    other: int
    between: float


def merging_order(probabilities: Tensor) -> list[Join]:
    """In which order clusters belong together, by the probabilities (n, k) that one head gives to images; all k - 1 merges.

    Again and again those two are merged that have most images between them, for the size of the smaller one; of several, or
    where there are none, those whose probabilities are most alike. A merged cluster has the sum of the probabilities, and the
    smaller number.
    """
    columns = probabilities.float().clone()
    alive = list(range(columns.shape[1]))
    sizes = cluster_sizes(columns).double()
    possible = (columns >= POSSIBLE).float()
    shared = (possible.T @ possible).double()
    product = (columns.T @ columns).double()
    order = []
    while len(alive) > 1:
        smaller = torch.minimum(sizes[alive][:, None], sizes[alive]).clamp(min=1)
        between = shared[alive][:, alive] / smaller
        length = product.diagonal()[alive].clamp(min=1e-30).sqrt()
        rank = between + TIE * product[alive][:, alive] / (length[:, None] * length)
        rank[torch.ones_like(rank, dtype=torch.bool).tril()] = -1  # so that into is the smaller number
        place = int(rank.argmax())
        share, into, other = float(between.flatten()[place]), alive[place // len(alive)], alive[place % len(alive)]
        columns[:, into] += columns[:, other]
        possible[:, into] = (columns[:, into] >= POSSIBLE).float()
        shared[into] = shared[:, into] = (possible.T @ possible[:, into]).double()
        sizes[into] += sizes[other]
        product[into] += product[other].clone()
        product[:, into] += product[:, other].clone()
        alive.remove(other)
        order.append(Join(into, other, share))
    return order


def number_left(order: Sequence[Join], sizes: Tensor) -> int | None:
    """How many classes are left when clusters of these sizes (k,) are merged in this order as long as they are one class.

    Where that is doubtful, they are merged if it makes classes clearly more equal in size: training made the clusters equal, so
    the halves of a class that it cut add up to a class like the others.
    None where the head cannot tell classes apart, or all would be one.
    """
    if not order or order[-1].between >= TWO_CLASSES:
        return None
    most, fewest = (
        len(order) + 1 - next(done for done, merge in enumerate(order) if merge.between < share)
        for share in (ONE_CLASS, TWO_CLASSES)
    )
    unevenness = {left: _unevenness(order, sizes, left) for left in range(fewest, most + 1)}
    best = min(unevenness, key=lambda left: unevenness[left])
    return best if unevenness[best] < unevenness[most] - MORE_EVEN else most


def _unevenness(order: Sequence[Join], sizes: Tensor, left: int) -> float:
    """The standard deviation of the sizes of classes over their mean, when this many are left."""
    to = merged(order, left)
    classes = torch.zeros(len(to), dtype=torch.float64).index_add_(0, to, sizes.double().cpu())[to.unique()]
    return float(classes.std(correction=0) / classes.mean().clamp(min=1e-12))


def number_by_heads(heads: Sequence[Tensor]) -> int | None:
    """How many classes several heads see, by what each of them says of the images, (n, k) each; None where they cannot tell."""
    return _vote([number_left(merging_order(head), cluster_sizes(head)) for head in heads])


def cluster_sizes(probabilities: Tensor) -> Tensor:
    """int64 (k,): how many images have each cluster as their most likely one."""
    return torch.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])


def _vote(numbers: Sequence[int | None]) -> int | None:
    """The median, of two in the middle the larger; None where half of the heads cannot tell."""
    said = [number for number in numbers if number is not None]
    return statistics.median_high(said) if 2 * len(said) > len(numbers) else None


def merged(order: Sequence[Join], left: int) -> Tensor:
    """int64 (k,): for each of the k clusters of a merging order, the cluster that it is a part of when `left` are left."""
    k = len(order) + 1
    if not 1 <= left <= k:
        raise InputError(f"{k} clusters cannot be merged into {left}; ask for 1 to {k}.")
    to = torch.arange(k)
    for merge in order[: k - left]:
        to[to == merge.other] = merge.into
    return to


def holding_several(clusters: Tensor, classes: Tensor, k: int) -> list[int]:
    """Those of the k `clusters` (n,) of which two or more of the `classes` (n,) are parts, classes that lie mostly in it."""
    table = torch.bincount(clusters * (int(classes.max()) + 1) + classes, minlength=k * (int(classes.max()) + 1))
    table = table.view(k, -1).double()
    part = table >= PART * table.sum(1, keepdim=True).clamp(min=1)
    mostly = 2 * table > table.sum(0)
    return torch.nonzero((part & mostly).sum(1) > 1)[:, 0].tolist()


def about_number(
    answers: Tensor, new: Sequence[Tensor], over: Sequence[Tensor], numbering: Tensor | None = None
) -> dict[str, Any]:
    """What heads say about the number of clusters that they were asked for, as plain values for the run folder.

    Each head speaks for itself: in a mean of several heads their different opinions look like doubt. So where several heads
    answer together, the order in which clusters belong together counts what each of them says of an image as an image of its
    own, and each says how many classes there are.

    Args:
        answers: probabilities (n, k) of the new classes, of images that were taken for new.
        new: what each head says of these images, (n, k) each.
        over: what each over-clustering head says, (n, k') each.
        numbering: int64 (heads, k), which cluster of each head is new class 0, 1, ..., where the heads answer together.

    Returns:
        ``order`` as [into, other, images between them for one of the smaller], ``n_new``, how many classes the heads tell
        apart (None where they cannot), and ``mixed``, the clusters that seem to hold several.
    """
    said = answers if numbering is None else torch.cat([head[:, own] for head, own in zip(new, numbering, strict=True)])
    order, k, clusters = merging_order(said), answers.shape[1], answers.argmax(1)
    number, mixed = number_by_heads(new), list[int]()
    if number == k:  # nothing to merge: are there more?
        orders = [merging_order(head) for head in over]
        finer = _vote([number_left(order, cluster_sizes(head)) for order, head in zip(orders, over, strict=True)])
        if finer is not None and finer >= TOO_FEW * k:
            number, votes = finer, torch.zeros(k, dtype=torch.int64)
            for finer_order, head in zip(orders, over, strict=True):
                classes = merged(finer_order, finer).to(head.device)[head.argmax(1)]
                votes[holding_several(clusters.to(head.device), classes, k)] += 1
            mixed = torch.nonzero(2 * votes > len(over))[:, 0].tolist()
    return {"order": [list(merge) for merge in order], "n_new": number, "mixed": mixed}
