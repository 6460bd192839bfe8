"""Answers by k-means on the features of the first stages: the baseline that a method for discovery has to beat.

A class is what lies nearest to a centre: that of a known class is its mean, those of the new ones come by k-means.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.maths.kmeans import kmeans
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net


def add_heads(net: Net, n_known: int, n_new: int) -> None:
    """Heads of nearest centres."""
    if n_known:
        net.add_head("known", HeadSpec("nearest", net.n_features, n_known))
    net.add_head("new", HeadSpec("nearest", net.n_features, n_new, stacked=True))


def fill_heads(net: Net, labelled: Tensor, labels: Tensor, pile: Tensor, n_new: int, seed: int) -> None:
    """Find the centres, given features of labelled images (n, d) of `labels` (n,) and of the pile (m, d)."""
    net.heads["new"][0].centres.copy_(kmeans(pile, n_new, seed=seed).centres)  # type: ignore[index]
    if len(labelled):
        means = [labelled[labels == c].mean(0) for c in range(int(labels.max()) + 1)]
        net.heads["known"].centres.copy_(torch.stack(means))  # type: ignore[operator]
