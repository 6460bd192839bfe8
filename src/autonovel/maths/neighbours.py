"""Losses of clustering by nearest neighbours: neighbours agree, and sure answers teach the others.

Logarithms of probabilities have the shape (..., n, clusters), where the dots stand for heads side by side. Rows that do not
count are masked, as in :mod:`autonovel.maths.losses`; where none counts, a loss is zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def neighbour_loss(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """How far images and their neighbours are from certain answers that agree (SCAN; Van Gansbeke et al., 2020).

    Args:
        first, second: log-probabilities (..., n, clusters) of images and, row by row, of one neighbour of each.
        mask: bool (n,), the rows that count.

    Returns:
        (...), the mean of -log of the chance that both answers name the same cluster.
    """
    apart = -torch.logsumexp(first + second, -1)
    weight = mask.to(apart.dtype) / mask.sum().clamp(min=1)
    return (apart * weight).sum(-1)


def self_label_loss(plain: Tensor, varied: Tensor, mask: Tensor, threshold: float) -> Tensor:
    """Cross-entropy of varied views against what is surely answered for plain ones; every cluster counts the same.

    Args:
        plain: log-probabilities (..., n, clusters) of views that are easy to answer; no gradient flows into them.
        varied: those of other views of the same images.
        mask: bool (n,), the rows that count.
        threshold: the probability above which an answer is a target.

    Returns:
        (...), the mean over clusters that have a target of the mean over their images.
    """
    surest, target = plain.detach().max(-1)
    sure = mask & (surest > (math.log(threshold) if threshold else -math.inf))
    members = F.one_hot(target, plain.shape[-1]).to(varied.dtype) * sure.unsqueeze(-1)
    size = members.sum(-2)
    by_cluster = -(members * varied).sum(-2) / size.clamp(min=1)
    return by_cluster.sum(-1) / (size > 0).sum(-1).clamp(min=1)
