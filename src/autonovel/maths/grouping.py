"""The groups of a pile, with the votes of repeated runs: how an answer is found and how far it can be trusted.

One run is whitening by the known classes, smoothing over neighbours and k-means. The groups that it finds are then classes
too, so their scatter joins that of the known ones for a second run. What changes when a third of the pile is left out was
never certain: each image is given to the group that most of such runs give it to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from autonovel.maths.known_space import Space, find_groups, group_means, smooth, unit, whitening
from autonovel.maths.silhouette import silhouette

RUNS = 8
KEPT = 0.7
"""Share of the pile in each of the repeated runs."""
SAMPLE = 10_000
"""Points over which a silhouette is averaged."""
SHARPNESS = 15.0
"""Of the softmax over similarities by which one run votes; calibration sets what the votes mean."""


@dataclass(frozen=True)
class Grouping:
    """The groups of a pile."""

    labels: Tensor
    """int64 (m,), 0 .. k-1."""
    votes: Tensor
    """(m, k): mean of the soft answers of all runs; rows sum to 1 and are largest at the label."""
    matrix: Tensor
    """(r, r): the whitening in which the groups were found; see `known_space.whitening`."""
    stability: float
    """Mean share of the repeated runs that agree with the label."""


def group_pile(
    labelled: Tensor, labels: Tensor, pile: Tensor, k: int, *, plain: bool = False, seed: int = 0, runs: int = RUNS
) -> Grouping:
    """`k` groups of `pile` (m, r), given `labelled` (n, r) with `labels` (n,), both in the same principal components.

    With `plain` they are those of k-means on the pile as it is, which known classes teach nothing.
    """
    both = torch.cat([labelled, pile])
    n_known = int(labels.max()) + 1 if len(labels) else 0
    matrix = torch.eye(pile.shape[1], device=pile.device)
    if plain:
        return _voted(pile, find_groups(pile, k, plain=True, seed=seed), k, matrix, plain=True, seed=seed, runs=runs)
    of_pile = torch.full((len(pile),), -1, device=pile.device)
    for _ in range(2):
        groups = torch.cat([labels.to(pile.device), of_pile])
        if (groups >= 0).any():
            matrix = whitening(both, groups)
        points = unit(pile @ matrix)
        found = find_groups(points, k, seed=seed)
        of_pile = found + n_known
    return _voted(points, found, k, matrix, plain=False, seed=seed, runs=runs)


def _voted(points: Tensor, found: Tensor, k: int, matrix: Tensor, *, plain: bool, seed: int, runs: int) -> Grouping:
    """Repeat the search on parts of `points` and let all runs vote; `found` is the answer of the whole."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.arange(len(points), device=points.device)
    votes = soft_answer(unit(points), group_means(points, found, k)) + one_hot(found, k)
    agree = torch.zeros(len(points), k, device=points.device)
    kept = max(k, round(KEPT * len(points)))
    for run in range(runs):
        part = torch.randperm(len(points), generator=generator)[:kept].to(points.device)
        groups = find_groups(points[part], k, plain=plain, restarts=3, seed=seed + 1 + run)
        groups = matched(found[part], groups, k)[groups]
        answer = soft_answer(unit(points), group_means(points[part], groups, k))
        agree[index, answer.argmax(1)] += 1
        answer[part] = (answer[part] + one_hot(groups, k)) / 2
        votes = votes + 2 * answer
    votes = votes / votes.sum(1, keepdim=True)
    labels = votes.argmax(1)
    return Grouping(labels, votes, matrix, (agree[index, labels] / runs).mean().item() if runs else 1.0)


def how_apart(pile: Tensor, learned: Grouping, plain: Grouping, *, seed: int = 0) -> dict[str, float]:
    """How far apart the groups of two answers for `pile` (m, r) lie: the mean silhouette over the spaces of both.

    Every space prefers the groups that were found in it. What counts is how much the other space minds.
    """
    rows = torch.stack([learned.labels, plain.labels])
    spaces = [smooth(unit(pile @ grouping.matrix)) for grouping in (learned, plain)]
    found = torch.stack([silhouette(points, rows, sample=SAMPLE, seed=seed).score for points in spaces]).cpu()
    scores = torch.where(found.isnan(), -1.0, found).mean(0).tolist()  # of a single group there is no silhouette
    return dict(zip(("learned", "plain"), scores, strict=True))


def soft_answer(points: Tensor, centres: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """(n, k): softmax over the similarity to each centre."""
    return (sharpness * points @ centres.T).softmax(1)


def matched(reference: Tensor, groups: Tensor, k: int) -> Tensor:
    """int64 (k,): the group of `reference` that each of `groups` is, where most images agree."""
    from scipy.optimize import linear_sum_assignment

    table = torch.bincount(groups * k + reference, minlength=k * k).view(k, k).cpu().numpy()
    _, to = linear_sum_assignment(table, maximize=True)
    return torch.from_numpy(np.asarray(to, np.int64)).to(groups.device)


def compose(axes: Space, matrix: Tensor) -> Space:
    """The space of `axes` followed by `matrix`, as one affine map."""
    return Space(axes.mean, axes.matrix @ matrix)
