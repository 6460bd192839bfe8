"""The loss functions. Pure functions on tensors of fixed shape: rows that do not count are masked, never taken out.

Masks make every step the same sequence of operations, whatever the mix of known and new images in the batch, so that one
captured graph serves all steps; a batch without any row that counts gives zero, not NaN.
"""

from __future__ import annotations

import math

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


def log_picked(scores: Tensor, by_class: float) -> Tensor:
    """Log-probabilities that an image picks a class, blended with those that the class picks the image out of the batch.

    By image, the gradient in the score of a class that is not the image's own is its probability: where the image is sure, it
    vanishes. By class it is how often the class would pick this image when it looks for one of its own: it depends on how close
    the image comes to the class compared with the class's own images, and not on how sure it is of another class.

    Args:
        scores: (..., n, classes).
        by_class: the share of the second kind.

    Returns:
        (..., n, classes).
    """
    return torch.lerp(scores.log_softmax(-1), scores.log_softmax(-2), by_class)


def mean_entropy_loss(probabilities: Tensor, mask: Tensor) -> Tensor:
    """How far the average prediction is from using all clusters equally: log(clusters) less its entropy (SimGCD).

    An alternative to balanced targets: as a loss it keeps clusters from dying out without forcing equal sizes.

    Args:
        probabilities: (..., n, clusters).
        mask: bool (n,), the rows that count.

    Returns:
        (...), between zero and log(clusters); zero where no row counts.
    """
    average = _mean_over_rows(probabilities, mask)
    entropy = -(average * average.clamp(min=torch.finfo(average.dtype).tiny).log()).sum(-1)
    return (math.log(probabilities.shape[-1]) - entropy) * mask.any()


def set_divergence(log_p: Tensor, first: Tensor, second: Tensor, *, bound: float = math.inf) -> Tensor:
    """How far apart the predictions of two sets of images are: the mean symmetric divergence of all pairs between them.

    For a pair it is half the sum of the Kullback-Leibler divergences both ways. NCD-IIC (Li et al., 2023) maximises it
    between labelled and unlabelled images over the joint softmax of known and new classes. No pair is enumerated: the mean
    over pairs of sum(e^a (a - b)) is the mean of sum(e^a a) less the inner product of the means of e^a and b.

    Args:
        log_p: log-probabilities (..., n, classes).
        first, second: bool (n,), the rows of each set.
        bound: log-probabilities below minus this count as that, so that no pair counts for more than this and nothing is
            gained by making a probability still smaller.

    Returns:
        (...), zero where one of the sets is empty.
    """
    a, p = log_p.clamp(min=-bound), log_p.exp()
    own = (p * a).sum(-1, keepdim=True)
    total: Tensor = log_p.new_zeros(log_p.shape[:-2])
    for here, there in ((first, second), (second, first)):
        crossed = _mean_over_rows(p, here) * _mean_over_rows(a, there)
        total = total + _mean_over_rows(own, here)[..., 0] - crossed.sum(-1)
    return total / 2 * (first.any() & second.any())


def _mean_over_rows(values: Tensor, mask: Tensor) -> Tensor:
    """(..., n, c) to (..., c): the mean of the rows of the mask (n,), zero where there are none."""
    weight = mask.to(values.dtype) / mask.sum().clamp(min=1)
    return (values * weight[:, None]).sum(-2)


def balanced_targets(
    scores: Tensor, mask: Tensor, *, epsilon: float, iterations: int, prior: Tensor | None = None
) -> Tensor:
    """Soft cluster assignments that use all clusters equally: Sinkhorn's balancing of exp(scores / epsilon).

    Args:
        scores: cosines (heads, n, clusters).
        mask: bool (n,), the rows that take part; the others come out as zeros.
        epsilon: smaller is harder.
        iterations: rounds of balancing clusters and images in turn.
        prior: (clusters,) or (heads, clusters), the share of the images that each cluster gets; equal when left out.

    Returns:
        (heads, n, clusters), rows of the mask sum to one.
    """
    # exp(-inf) = 0; multiplied by zero instead, a large score would give inf x 0
    scores = torch.where(mask[None, :, None], scores, -torch.inf)
    peak = scores.amax((1, 2), keepdim=True)
    q = torch.exp((scores - torch.where(peak.isfinite(), peak, 0.0)) / epsilon)
    tiny = torch.finfo(q.dtype).tiny
    for _ in range(iterations):
        q = q / q.sum(1, keepdim=True).clamp(min=tiny)
        if prior is not None:
            q = q * prior.unsqueeze(-2)
        q = q / q.sum(2, keepdim=True).clamp(min=tiny)
    return q


def kcl_loss(probabilities: Tensor, same: Tensor, mask: Tensor, *, margin: float = 2.0) -> Tensor:
    """Divergence of pairs that belong together, and its distance to a margin for the others (KCL, Hsu et al., 2018).

    Over all ordered pairs of masked rows: KL(i || j) where they belong together, max(0, margin - KL(i || j)) elsewhere. The
    first of the two is the target and gets no gradient; both orders occur, so both sides learn. Not the loss of MCL, which is
    :func:`pair_loss` with one view.

    Args:
        probabilities: class probabilities (n, c).
        same: pair labels (n, n) in [0, 1].
        mask: bool (n,), the unlabelled rows.
        margin: how far apart images of different classes are pushed.
    """
    p = probabilities + 1e-7
    target = p.detach()
    divergence = (target * target.log()).sum(1, keepdim=True) - target @ p.log().T
    loss = same * divergence + (1 - same) * F.relu(margin - divergence)
    pairs = (mask[:, None] & mask[None, :]).to(loss.dtype)
    return (loss * pairs).sum() / pairs.sum().clamp(min=1.0)
