"""Clusters of one head as a graph: which of them are one class.

A head gives each image a probability for each cluster. Two clusters are linked by the images that could be in either: halves
of one class have many of them, since nothing in the images says where one half ends; different classes have few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from autonovel.errors import InputError

POSSIBLE = 0.2
"""An image could be in every cluster that has at least this probability."""

ONE_CLASS = 0.1
"""Two clusters are taken for one class where this share of the images of the smaller one could be in either."""


class Merge(NamedTuple):
    """Two clusters that belong together; ``between`` is the share of the smaller one's images that could be in either."""

    into: int
    other: int
    between: float


def merging_order(probabilities: Tensor) -> list[Merge]:
    """In which order clusters belong together, by the probabilities (n, k) that one head gives to images; all k - 1 merges.

    Again and again those two are merged that have most images between them, for the size of the smaller one. A merged
    cluster has the sum of the probabilities, and the smaller number.
    """
    columns = probabilities.float().clone()
    alive = list(range(columns.shape[1]))
    sizes = torch.bincount(columns.argmax(1), minlength=len(alive)).double()
    possible = (columns >= POSSIBLE).float()
    shared = (possible.T @ possible).double()
    order = []
    while len(alive) > 1:
        smaller = torch.minimum(sizes[alive][:, None], sizes[alive]).clamp(min=1)
        between = shared[alive][:, alive] / smaller
        between[torch.ones_like(between, dtype=torch.bool).tril()] = -1  # so that into is the smaller number
        into, other = divmod(int(between.argmax()), len(alive))
        share = float(between[into, other])
        into, other = alive[into], alive[other]
        columns[:, into] += columns[:, other]
        possible[:, into] = (columns[:, into] >= POSSIBLE).float()
        shared[into] = shared[:, into] = (possible.T @ possible[:, into]).double()
        sizes[into] += sizes[other]
        alive.remove(other)
        order.append(Merge(into, other, share))
    return order


def number_left(order: Sequence[Merge]) -> int:
    """How many classes are left when clusters are merged in this order as long as they seem to be one class."""
    k = len(order) + 1
    return k - next((done for done, merge in enumerate(order) if merge.between < ONE_CLASS), len(order))


def merged(order: Sequence[Merge], left: int) -> Tensor:
    """int64 (k,): for each of the k clusters of a merging order, the cluster that it is a part of when `left` are left."""
    k = len(order) + 1
    if not 1 <= left <= k:
        raise InputError(f"{k} clusters cannot be merged into {left}; ask for 1 to {k}.")
    to = torch.arange(k)
    for merge in order[: k - left]:
        to[to == merge.other] = merge.into
    return to
