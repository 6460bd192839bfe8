"""The loss functions. Pure functions on tensors of fixed shape: rows that do not count are masked, never taken out.

Masks make every step the same sequence of operations, whatever the mix of known and new images in the batch, so that one
captured graph serves all steps; a batch without any row that counts gives zero, not NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values (n,) where the mask (n,) is true; zero where it is true nowhere."""
    weight = mask.to(values.dtype)
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


def cross_entropy(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Mean cross-entropy of scores (n, c) over the rows of the mask; labels elsewhere are ignored."""
    safe = torch.where(mask, labels, 0)
    return masked_mean(F.cross_entropy(scores, safe, reduction="none"), mask)


def pair_loss(first: Tensor, second: Tensor, same: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy over all ordered pairs of masked rows (eq. 3 of the paper).

    The score of (i, j) is the inner product of the class probabilities of i in the first view and of j in the second.

    Args:
        first, second: class probabilities (n, c) of the two views.
        same: pair labels (n, n) in [0, 1].
        mask: bool (n,), the unlabelled rows.
    """
    score = first @ second.T
    loss = -torch.log(same * score + (1 - same) * (1 - score) + 1e-7)
    pairs = (mask[:, None] & mask[None, :]).to(loss.dtype)
    return (loss * pairs).sum() / pairs.sum().clamp(min=1.0)


def consistency(first: Tensor, second: Tensor) -> Tensor:
    """Mean squared difference of the class probabilities (n, c) of two views, over images and classes."""
    return (first - second).square().mean()


def balanced_targets(scores: Tensor, mask: Tensor, *, epsilon: float, iterations: int) -> Tensor:
    """Soft cluster assignments that use all clusters equally: Sinkhorn's balancing of exp(scores / epsilon).

    Args:
        scores: cosines (heads, n, clusters).
        mask: bool (n,), the rows that take part; the others come out as zeros.
        epsilon: smaller is harder.
        iterations: rounds of balancing clusters and images in turn.

    Returns:
        (heads, n, clusters), rows of the mask sum to one.
    """
    # rows outside the mask become exp(-inf) = 0; multiplied by zero instead, a large score would give inf x 0
    scores = torch.where(mask[None, :, None], scores, -torch.inf)
    peak = scores.amax((1, 2), keepdim=True)
    q = torch.exp((scores - torch.where(peak.isfinite(), peak, 0.0)) / epsilon)
    tiny = torch.finfo(q.dtype).tiny
    for _ in range(iterations):
        q = q / q.sum(1, keepdim=True).clamp(min=tiny)
        q = q / q.sum(2, keepdim=True).clamp(min=tiny)
    return q
