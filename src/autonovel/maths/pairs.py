"""Rules that say which two unlabelled images belong together. Pure functions on features.

A rule maps features (n, d) to a matrix (n, n) of values in [0, 1]: 1 where the two images are taken for the same class. Every
rule is the same sequence of operations for every batch, so it can be part of a captured step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.errors import InputError, did_you_mean, option


@dataclass(frozen=True)
class PairInput:
    """What a rule may look at; each takes what it needs.

    A rule of your own is part of a training step that is compiled and captured on a GPU: it must give float (n, n) on the device
    of the features by operations on whole tensors, without asking for their values.

    Attributes:
        features: float (n, d) of the first view, without gradient.
        mask: bool (n,), the unlabelled images. Pairs of others are ignored later, whatever the rule says of them.
        clusters: int64 (n,), the cluster of each image when the whole pile was last clustered (kmeans-all), else -1.
        n_new: the number of new classes.
        top_k: how many of the largest features rank and soft compare.
        threshold: the cosine from which cosine takes two images for the same class.
    """

    features: Tensor
    mask: Tensor
    clusters: Tensor
    n_new: int
    top_k: int = 5
    threshold: float = 0.85


PairRule = Callable[[PairInput], Tensor]


def top_k_sets(features: Tensor, k: int) -> Tensor:
    """The places of the k largest values of each row as a multi-hot matrix (n, d); of equal values the first counts."""
    if not 1 <= k <= features.shape[1]:
        raise InputError(
            f"top_k is {k}, but features have {features.shape[1]} components; choose between 1 and that number."
        )
    # a stable sort, because topk leaves open which of several equal values it takes
    top = torch.sort(features, dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros_like(features).scatter_(1, top, 1.0)


def _shared(features: Tensor, k: int) -> Tensor:
    """How many of their k largest components each two rows share, (n, n)."""
    sets = top_k_sets(features.float(), k)
    return sets @ sets.T


def rank_statistics(features: Tensor, k: int = 5) -> Tensor:
    """1 where two rows have the same set of k largest components (eq. 2 of the paper), else 0.

    >>> z = torch.tensor([[5.0, 4.0, 0.0], [4.0, 9.0, 1.0], [0.0, 3.0, 4.0]])
    >>> rank_statistics(z, k=2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return (_shared(features, k) > k - 0.5).float()


def soft_rank_statistics(features: Tensor, k: int = 15) -> Tensor:
    """The share of their k largest components that two rows have in common.

    >>> z = torch.tensor([[5.0, 4.0, 0.0], [4.0, 9.0, 1.0], [0.0, 3.0, 4.0]])
    >>> soft_rank_statistics(z, k=2).tolist()
    [[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]]
    """
    return _shared(features, k) / k


def _cosines(features: Tensor) -> Tensor:
    unit = F.normalize(features.float(), dim=1)
    return unit @ unit.T


def _itself(n: int, like: Tensor) -> Tensor:
    """True on the diagonal: an image belongs together with itself, whatever rounding makes of it."""
    return torch.eye(n, dtype=torch.bool, device=like.device)


def cosine_pairs(features: Tensor, threshold: float = 0.85) -> Tensor:
    """1 where the cosine of two rows is above the threshold, and on the diagonal."""
    return (_cosines(features) > threshold).logical_or(_itself(len(features), features)).float()


def nearest_pairs(features: Tensor, mask: Tensor) -> Tensor:
    """1 where one row is the nearest of the other, or both have the same nearest row (the paper's first neighbours).

    Nearest by cosine among the other rows of the mask; of equally near ones the first. Rows outside the mask have no pair.
    """
    n = len(features)
    itself = _itself(n, features)
    similarity = torch.where(mask[None, :] & ~itself, _cosines(features), -torch.inf)
    best, nearest = similarity.max(1)
    has_nearest = best.isfinite() & mask  # an image alone has no nearest
    points_at = (nearest[:, None] == torch.arange(n, device=features.device)) & has_nearest[:, None]
    alike = (nearest[:, None] == nearest[None, :]) & has_nearest[:, None] & has_nearest[None, :]
    return ((points_at | points_at.T | alike | itself) & mask[:, None] & mask[None, :]).float()


def same_cluster(clusters: Tensor) -> Tensor:
    """1 where two rows have the same cluster (n,); a negative number belongs to no cluster."""
    return ((clusters[:, None] == clusters[None, :]) & (clusters >= 0)).float()


def cluster_batch(features: Tensor, mask: Tensor, k: int, iterations: int = 10) -> Tensor:
    """k-means among the rows of the mask: the cluster of each row, int64 (n,), -1 outside the mask.

    Nothing is left to chance: each first centre is the row that brings all rows nearest to their centres, given the centres
    before it. A fixed number of rounds follows; in a batch they settle after a few. With fewer rows than k, clusters stay empty.
    """
    points = features if features.dtype == torch.float64 else features.float()
    weight = mask.to(points.dtype)[:, None]
    points = torch.where(mask[:, None], points, 0)
    # around their mean: small numbers round less
    points = torch.where(mask[:, None], points - points.sum(0) / weight.sum().clamp(min=1), 0)
    norms = points.square().sum(1)
    distance = (norms[:, None] + norms[None, :] - 2 * points @ points.T).clamp(min=0)
    nearest, first = torch.full_like(norms, torch.inf), []  # nearest: to any centre so far
    for _ in range(k):
        reached = torch.minimum(nearest[:, None], distance)
        pick = torch.where(mask, (reached * weight).sum(0), torch.inf).argmin(keepdim=True)
        nearest = reached.index_select(1, pick)[:, 0]
        first.append(pick)
    centres = points.index_select(0, torch.cat(first))
    places = torch.arange(k, device=points.device)
    for _ in range(iterations):
        member = (_nearest_centre(points, centres)[:, None] == places).to(points.dtype) * weight
        count = member.sum(0)[:, None]
        centres = torch.where(count > 0, member.T @ points / count.clamp(min=1), centres)
    return torch.where(mask, _nearest_centre(points, centres), -1)


def _nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    return (centres.square().sum(1) - 2 * points @ centres.T).argmin(1)


PAIR_RULES: dict[str, PairRule] = {
    "rank": lambda x: rank_statistics(x.features, x.top_k),
    "soft": lambda x: soft_rank_statistics(x.features, x.top_k),
    "cosine": lambda x: cosine_pairs(x.features, x.threshold),
    "nearest": lambda x: nearest_pairs(x.features, x.mask),
    "kmeans-batch": lambda x: same_cluster(cluster_batch(x.features, x.mask, x.n_new)),
    "kmeans-all": lambda x: same_cluster(x.clusters),
}


def find_rule(name: str) -> PairRule:
    """The rule of this name, or the function that MODULE:FUNCTION names."""
    if name in PAIR_RULES:
        return PAIR_RULES[name]
    module, colon, function = name.partition(":")
    if not colon:
        hint = did_you_mean(name, PAIR_RULES)
        raise InputError(
            f"{option('joint.pairs')} is '{name}'; choose one of {', '.join(PAIR_RULES)}, learned, or MODULE:FUNCTION{hint}."
        )
    try:
        rule: PairRule = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{option('joint.pairs')} is '{name}', but that cannot be imported ({error}).") from None
    return rule
