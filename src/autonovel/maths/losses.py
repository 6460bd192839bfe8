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


def crossed_entropy(log_p: Tensor, first: Tensor, second: Tensor, *, bound: float = math.inf) -> Tensor:
    """How little the predictions of two sets of images expect of each other.

    The mean, over the images of both, of the cross-entropy between the mean prediction of the other set and the image's own.
    It is :func:`set_divergence` without the entropies of the predictions, with two differences. The mean prediction of a set
    is taken as it is: nothing is learned through it. So an image is pushed off what the other set is on average, but is not
    made surer of whatever it says, and no cluster is preferred for lying far from the other set. And every image counts the
    same: where each set has half of the weight, the images of a small set are pushed the harder, the fewer they are.

    Args:
        log_p: log-probabilities (..., n, classes).
        first, second: bool (n,), the rows of each set.
        bound: log-probabilities below minus this count as that.

    Returns:
        (...), zero where one of the sets is empty.
    """
    a, p = log_p.clamp(min=-bound), log_p.detach().exp()
    total: Tensor = log_p.new_zeros(log_p.shape[:-2])
    for here, there in ((first, second), (second, first)):
        share = there.sum() / (first.sum() + second.sum()).clamp(min=1)
        total = total - share * (_mean_over_rows(p, here) * _mean_over_rows(a, there)).sum(-1)
    return total * (first.any() & second.any())


def view_divergence(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Mean symmetric divergence of the predictions of two views of the same images (NCD-IIC's intra-class term).

    Args:
        first, second: log-probabilities (..., n, classes).
        mask: bool (n,), the rows that count.

    Returns:
        (...), half the sum of the divergences both ways; zero where no row counts.
    """
    each = (first.exp() - second.exp()) * (first - second)
    return _mean_over_rows(each.sum(-1, keepdim=True), mask)[..., 0] / 2


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
    q = _kernel(scores, mask, epsilon)
    tiny = torch.finfo(q.dtype).tiny
    for _ in range(iterations):
        q = q / q.sum(1, keepdim=True).clamp(min=tiny)
        if prior is not None:
            q = q * prior.unsqueeze(-2)
        q = q / q.sum(2, keepdim=True).clamp(min=tiny)
    return q


def pulled(scores: Tensor, pull: Tensor, epsilon: float) -> Tensor:
    """Scores with the pull of each cluster in them, from which :func:`balanced_targets` can start.

    Balancing begins by giving every cluster its size, whatever it was multiplied by before; so each image first chooses between
    the clusters as they are pulled.

    Args:
        scores: cosines (heads, n, clusters).
        pull: (heads, clusters), see :func:`moved_pull`.
        epsilon: that of the targets.

    Returns:
        (heads, n, clusters), the logarithm of shares that sum to one over clusters, times epsilon.
    """
    return epsilon * ((scores + pull[:, None]) / epsilon).log_softmax(2)


def moved_pull(
    pull: Tensor, targets: Tensor, mask: Tensor, rate: Tensor | float, *, prior: Tensor | None = None
) -> Tensor:
    """What is added to the cosines of each cluster before targets are balanced, moved by what the targets leave it short of.

    A few rounds of balancing move only images that fit another cluster almost as well. A pull that moves a little with every
    batch grows until clusters have the wanted size over all images. The shortfall itself counts and not its logarithm, so that
    batches with more and with fewer images of a cluster than usual cancel out.

    Args:
        pull: (heads, clusters), kept between -1 and 1: more than that no cosine could answer.
        targets: (heads, n, clusters) that this pull has led to.
        mask: bool (n,), the rows that count.
        rate: how far, for a cluster that gets nothing where all should get the same; 0 leaves the pull as it is.
        prior: (clusters,) or (heads, clusters), the wanted shares; equal when left out.

    Returns:
        (heads, clusters), `pull` where no row counts.
    """
    clusters = targets.shape[2]
    wanted = 1 / clusters if prior is None else prior
    short = (wanted - _mean_over_rows(targets, mask)) * mask.any()
    return (pull + rate * clusters * short).clamp(-1, 1)


def relaxed_targets(
    scores: Tensor, mask: Tensor, *, epsilon: float, iterations: int, strength: float, prior: Tensor | None = None
) -> Tensor:
    """Balanced targets whose cluster sizes may leave the prior where the scores are clear (unbalanced optimal transport).

    Args:
        scores, mask, epsilon, iterations, prior: as for :func:`balanced_targets`.
        strength: how strongly sizes are held to the prior. 0: not at all, each image for itself; 1: as balanced targets. It
            is penalty / (penalty + epsilon), where the penalty weighs the divergence of the sizes from the prior.

    Returns:
        (heads, n, clusters), rows of the mask sum to one.
    """
    kernel = _kernel(scores, mask, epsilon)
    tiny = torch.finfo(kernel.dtype).tiny
    share = kernel.new_full(kernel.shape[2:], 1 / kernel.shape[2]) if prior is None else prior
    wanted = share.unsqueeze(-2) * mask.sum()
    by_cluster = torch.ones_like(kernel[:, :1])
    for _ in range(iterations):
        by_image = 1 / (kernel * by_cluster).sum(2, keepdim=True).clamp(min=tiny)
        by_cluster = (wanted / (kernel * by_image).sum(1, keepdim=True).clamp(min=tiny)) ** strength
    q = kernel * by_cluster
    return q / q.sum(2, keepdim=True).clamp(min=tiny)


def _kernel(scores: Tensor, mask: Tensor, epsilon: float) -> Tensor:
    """exp(scores / epsilon), its largest value one; zero in rows outside the mask."""
    # exp(-inf) = 0; multiplied by zero instead, a large score would give inf x 0
    scores = torch.where(mask[None, :, None], scores, -torch.inf)
    peak = scores.amax((1, 2), keepdim=True)
    return torch.exp((scores - torch.where(peak.isfinite(), peak, 0.0)) / epsilon)


def with_past(scores: Tensor, mask: Tensor, past: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and mask of a batch with those of earlier images behind them, so that targets are balanced over all of them.

    The targets of the batch are then the first n rows. A batch with few images of a cluster, or fewer images than clusters,
    says little about what balanced means.

    Args:
        scores: (heads, n, clusters).
        mask: bool (n,).
        past: (q, heads, clusters), a queue of the scores of earlier images.
        filled: bool (q,), the rows of the queue that hold any.

    Returns:
        (heads, n + q, clusters) and bool (n + q,).
    """
    return torch.cat([scores, past.to(scores.dtype).transpose(0, 1)], 1), torch.cat([mask, filled])


def moved_prior(prior: Tensor, probabilities: Tensor, mask: Tensor, rate: float) -> Tensor:
    """An estimate of the cluster sizes, moved towards the mean prediction of a batch; unchanged where no row counts.

    Args:
        prior: (..., clusters), sums to one.
        probabilities: (..., n, clusters) of the new classes.
        mask: bool (n,), the rows that count.
        rate: how far, between 0 and 1; about the batch's share of the images that one estimate should rest on.
    """
    average = _mean_over_rows(probabilities, mask)
    average = average / average.sum(-1, keepdim=True).clamp(min=torch.finfo(average.dtype).tiny)
    return torch.where(mask.any(), torch.lerp(prior, average.to(prior.dtype), rate), prior)
