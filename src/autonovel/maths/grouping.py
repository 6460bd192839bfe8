"""The groups of a pile, with the votes of repeated runs: how an answer is found and how far it can be trusted.

One run is whitening by the known classes, smoothing over neighbours and k-means. The groups that it finds are then classes
too, so their scatter joins that of the known ones for a second run. Where pieces of the pile that are linked by neighbours make
groups that clearly fewer links leave, these are taken instead: classes are of different sizes then. What changes when a third of
the pile is left out was never certain: each image is given to the group that most of such runs give it to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from autonovel.maths.known_space import (
    Space,
    find_groups,
    group_means,
    nearest,
    number_of_classes,
    smooth,
    unit,
    whitening,
    without_empty,
)
from autonovel.maths.linking import NEIGHBOURS, leaving, link_groups, neighbours
from autonovel.maths.silhouette import silhouette
from autonovel.maths.uneven import answer, are_uneven, uneven_groups

RUNS = 8
KEPT = 0.7
"""Share of the pile in each of the repeated runs."""
SAMPLE, TREE_SAMPLE = 10_000, 3000
"""Points over which a silhouette is averaged."""
CLEARER = 0.7
"""Linked groups are taken where the share of links that leave them is below this part of what leaves those of k-means."""
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
    way: Literal["k-means", "neighbours", "tree"] = "k-means"
    """Whether they come from k-means, are pieces linked by neighbours, or branches of a tree."""
    learned: bool = True
    """Whether they rest on what the known classes teach, or are those of plain k-means."""


def group_pile(
    labelled: Tensor,
    labels: Tensor,
    pile: Tensor,
    k: int,
    *,
    plain: bool = False,
    tree: bool = True,
    seed: int = 0,
    runs: int = RUNS,
) -> Grouping:
    """`k` groups of `pile` (m, r), given `labelled` (n, r) with `labels` (n,), both in the same principal components.

    With `plain` they are those of k-means on the pile as it is, which known classes teach nothing. Without `tree` they are never
    its branches.
    """
    both = torch.cat([labelled, pile])
    n_known = number_of_classes(labels)
    matrix = torch.eye(pile.shape[1], device=pile.device)
    if plain:
        return _voted(pile, matrix, _PLAIN, find_groups(pile, k, plain=True, seed=seed), k, seed=seed, runs=runs)
    of_pile = torch.full((len(pile),), -1, device=pile.device)
    taught = matrix
    for time in range(2):
        groups = torch.cat([labels.to(pile.device), of_pile])
        if (groups >= 0).any():
            matrix = whitening(both, groups)
        taught = taught if time else matrix
        points = unit(pile @ matrix)
        smoothed = find_groups(points, k, seed=seed)
        of_pile = smoothed + n_known
    near = neighbours(points)
    linked = link_groups(points, near, k, seed=seed)
    if linked is not None and leaving(near, linked, k) < CLEARER * leaving(near, smoothed, k):
        return _voted(points, matrix, _LINKED, linked, k, seed=seed, runs=runs)
    apart = unit(pile @ taught)
    branches = uneven_groups(apart, k, seed=seed) if tree else None
    if branches is not None and _fit_better(apart, points, branches, smoothed, k, seed=seed):
        return _voted(apart, taught, _BRANCHES, branches, k, seed=seed, runs=runs)
    return _voted(points, matrix, _SMOOTHED, smoothed, k, seed=seed, runs=runs)


def _fit_better(taught: Tensor, points: Tensor, branches: Tensor, groups: Tensor, k: int, *, seed: int) -> bool:
    """Whether branches of a tree are to be taken rather than the `groups` (n,) by k-means.

    They must lie further apart in the space that the known classes alone have taught, `taught` (n, d): in that of `points` the
    groups of k-means are classes already, and a class that k-means has cut stays cut. There is also to be a reason: groups of
    k-means that differ in size, or branches that lie further apart there after smoothing, for which k-means does all it can.
    """
    both = torch.stack([branches, groups])

    def further(where: Tensor) -> bool:
        ours, theirs = silhouette(where, both, sample=TREE_SAMPLE, seed=seed).score.tolist()
        return bool(ours > theirs)

    return further(taught) and (are_uneven(groups, k) or further(smooth(points)))


class _Way(NamedTuple):
    """How groups are found, and what those of some points say of others.

    Attributes:
        name: of it.
        find: gives this many groups of points, with a seed; None where it finds none.
        answer: (n, k), rows sum to 1, for points (n, d) from some of them, the groups of these, and how many groups there are.
    """

    name: Literal["k-means", "neighbours", "tree"]
    find: Callable[[Tensor, int, int], Tensor | None]
    answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]


def _by_mean(points: Tensor, some: Tensor, groups: Tensor, k: int) -> Tensor:
    return soft_answer(unit(points), group_means(some, groups, k))


def _by_neighbours(points: Tensor, some: Tensor, groups: Tensor, k: int) -> Tensor:
    """Groups of any shape, which the nearest mean would cut."""
    near = groups[nearest(points, min(NEIGHBOURS, len(some)), among=some)]
    share = torch.full(near.shape, 1 / near.shape[1], device=points.device)
    return torch.zeros(len(points), k, device=points.device).scatter_add_(1, near, share)


def _by_share(points: Tensor, some: Tensor, groups: Tensor, k: int) -> Tensor:
    return answer(points, group_means(some, groups, k), torch.bincount(groups, minlength=k) / len(groups))


_PLAIN = _Way("k-means", lambda points, k, seed: find_groups(points, k, plain=True, restarts=3, seed=seed), _by_mean)
_SMOOTHED = _Way("k-means", lambda points, k, seed: find_groups(points, k, restarts=3, seed=seed), _by_mean)
_LINKED = _Way(
    "neighbours", lambda points, k, seed: link_groups(points, neighbours(points), k, seed=seed), _by_neighbours
)
_BRANCHES = _Way("tree", lambda points, k, seed: uneven_groups(points, k, seed=seed), _by_share)


def _voted(points: Tensor, matrix: Tensor, way: _Way, first: Tensor, k: int, *, seed: int, runs: int) -> Grouping:
    """Repeat the search on parts of `points` and let all runs vote; `first` is the answer of the whole.

    A run that finds nothing agrees with nothing. With fewer than two images for each group there are no parts to repeat it on.
    """
    runs = runs if len(points) >= 2 * k else 0
    generator = torch.Generator().manual_seed(seed)
    index = torch.arange(len(points), device=points.device)
    votes = way.answer(points, points, first, k) + one_hot(first, k)
    agree = torch.zeros(len(points), k, device=points.device)
    kept = max(k, round(KEPT * len(points)))
    for run in range(runs):
        part = torch.randperm(len(points), generator=generator)[:kept].to(points.device)
        again = way.find(points[part], k, seed + 1 + run)
        if again is None:
            continue
        groups = matched(first[part], again, k)[again]
        said = way.answer(points, points[part], groups, k)
        agree[index, said.argmax(1)] += 1
        said[part] = (said[part] + one_hot(groups, k)) / 2
        votes = votes + 2 * said
    votes = votes / votes.sum(1, keepdim=True)
    labels = without_empty(points, votes.argmax(1), k)
    moved = labels != votes.argmax(1)  # to a group that no image had voted for
    votes[moved] = (votes[moved] + 2 * one_hot(labels[moved], k)) / 3  # two to one, so that the label has most votes
    stability = (agree[index, labels] / runs).mean().item() if runs else 1.0
    return Grouping(labels, votes, matrix, stability, way.name, way is not _PLAIN)


def how_apart(pile: Tensor, learned: Grouping, plain: Grouping, *, seed: int = 0) -> dict[str, float]:
    """How far apart the groups of two answers for `pile` (m, r) lie: the mean silhouette over the spaces of both.

    Every space prefers the groups that were found in it. What counts is how much the other space minds.
    """
    rows = torch.stack([learned.labels, plain.labels])
    spaces = [smooth(unit(pile @ grouping.matrix)) for grouping in (learned, plain)]
    silhouettes = torch.stack([silhouette(points, rows, sample=SAMPLE, seed=seed).score for points in spaces]).cpu()
    # of a single group there is no silhouette
    scores = torch.where(silhouettes.isnan(), -1.0, silhouettes).mean(0).tolist()
    return dict(zip(("learned", "plain"), scores, strict=True))


def are_clearer(pile: Tensor, learned: Grouping, plain: Grouping) -> bool:
    """Whether clearly fewer links to neighbours leave the groups of `learned` than those of `plain`, in the spaces of both.

    For groups of different sizes, which :func:`how_apart` does not do justice: a silhouette prefers them to be of one size.
    """
    return bool(_clearer(pile, (learned.matrix, plain.matrix), learned.labels, plain.labels[None])[0])


def clearer_groups(
    labelled: Tensor, labels: Tensor, pile: Tensor, others: Tensor, k: int, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """`k` groups (m,) of `pile`, and for each of `others` (h, m) whether clearly fewer links to neighbours leave these groups.

    Links are those of the space in which the groups were found and of the pile as it is. For the rest see :func:`group_pile`.
    """
    groups = group_pile(labelled, labels, pile, k, tree=False, seed=seed, runs=0)
    spaces = groups.matrix, torch.eye(pile.shape[1], device=pile.device)
    return groups.labels, _clearer(pile, spaces, groups.labels, others)


def _clearer(pile: Tensor, spaces: Sequence[Tensor], groups: Tensor, others: Tensor) -> Tensor:
    """bool (h,): whether clearly fewer links leave `groups` (m,) than each of `others` (h, m), over the spaces together."""
    graphs = [neighbours(unit(pile @ matrix)) for matrix in spaces]
    k = int(torch.stack([groups.max(), others.max()]).max()) + 1

    def share(labels: Tensor) -> float:
        return sum(leaving(near, labels, k) for near in graphs)

    ours = share(groups)
    return torch.tensor([ours < CLEARER * share(other) for other in others])


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
