"""Clusters that sharpen themselves: the assignments and targets of DEC (Xie et al., 2016) and DTC (Han et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def student_scores(points: Tensor, centres: Tensor) -> Tensor:
    """Scores (n, k) whose softmax is Student's t with one degree of freedom: q ~ 1 / (1 + squared distance)."""
    squared = points.square().sum(1, keepdim=True) + centres.square().sum(1) - 2 * points @ centres.T
    return -squared.clamp(min=0).log1p()


def sharpened(q: Tensor) -> Tensor:
    """Targets (n, k) from the probabilities of all images: what is sure becomes surer, and large clusters count less.

    p ~ q^2 / sum over images of q, normalised over clusters. An empty cluster gets nothing.
    """
    tiny = torch.finfo(q.dtype).tiny
    weight = q.square() / q.sum(0).clamp(min=tiny)
    return weight / weight.sum(1, keepdim=True).clamp(min=tiny)


def divergence_from(targets: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
    """KL(targets || softmax of the scores) over the rows of the mask, the mean over images and clusters alike.

    That is a k-th of the usual mean over images: the weight of a second loss beside it is meant for that.
    """
    log_q = scores.log_softmax(1)
    each = F.kl_div(log_q, targets, reduction="none").mean(1)
    weight = mask.to(each.dtype)
    return (each * weight).sum() / weight.sum().clamp(min=1.0)


def moved_average(average: Tensor, now: Tensor, momentum: float) -> Tensor:
    """The running average one step further."""
    return momentum * average + (1 - momentum) * now


def unbiased(average: Tensor, momentum: float, steps: int) -> Tensor:
    """A running average that began at zero, as if it had begun at the first value."""
    return average / (1.0 - float(momentum**steps))


def principal_axes(features: Tensor, dimensions: int) -> Tensor:
    """Features (n, d) along their strongest axes, (n, dimensions); not whitened. Of fewer axes there are as many as there are."""
    centred = (features - features.mean(0)).double()
    vectors: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors  # the weakest axis comes first
    return (centred @ vectors.flip(1)[:, :dimensions]).to(features.dtype)
