"""Known classes treated as new ones: whether learning from the others helps to group them, and what votes mean there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autonovel.machine.cpu import side_by_side
from autonovel.maths.confidence import (
    Calibration,
    KnownProblem,
    calibrate,
    fit_calibration,
    log_odds,
    majority_right,
    power_for,
    reliability,
)
from autonovel.maths.grouping import Grouping, are_clearer, group_pile, how_apart
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import number_of_classes, some_of_each
from autonovel.maths.metrics import cluster_accuracy

MOST_PROBLEMS, FEWEST_PROBLEMS, ENOUGH = 10, 4, 2000
"""Known problems, at most and at least; between the two no further one is made once this many images were taken for new."""
PLAIN_RESTARTS = 5
"""Of plain k-means, with which the groups are compared."""
PROBLEM_IMAGES, MOST_IMAGES, FEWEST_IMAGES = 1500, 300, 30
"""Images that are taken for new in a known problem, about: as many of each class, which are so many at most and at least."""
WORSE = 0.01
"""By how much plain k-means must be more accurate on known problems before its answer is taken instead; and by more than
twice the standard error of the difference, lest chance decide."""


@dataclass(frozen=True)
class Trial:
    """What treating known classes as new ones shows."""

    plain: bool
    problems: tuple[KnownProblem, ...]
    report: dict[str, Any] | None
    scores: dict[str, float]
    notes: tuple[str, ...] = ()


def try_on_known(
    known: Tensor, labels: Tensor, k: int, seed: int, *, tree: bool = True, sizes: Tensor | None = None
) -> Trial:
    """Group some of the known classes as if they were new: is that better than k-means, and what do votes mean there?

    `tree` as in :func:`group_pile`: the pile is to be grouped in the same way. Where the `k` groups of the pile differ in size,
    the classes of these problems are to differ likewise: `sizes`.
    """
    n_known = number_of_classes(labels)
    if n_known < 3:
        return Trial(False, (), None, {})
    generator = torch.Generator().manual_seed(seed)
    problems: list[KnownProblem] = []
    accuracy: dict[str, list[float]] = {"learned": [], "plain": []}
    n_probes = min(max(2, k), n_known - 1 if n_known < 5 else n_known - 2)
    jobs, taken = [], 0
    most = min(MOST_IMAGES, max(FEWEST_IMAGES, PROBLEM_IMAGES // n_probes))
    for number, order in enumerate(_orders(n_known, n_probes, generator)):
        if number >= FEWEST_PROBLEMS and taken >= ENOUGH:
            break
        place = torch.argsort(order).to(labels.device)[labels]
        few = some_of_each(place, torch.full((n_known,), most), generator)
        old, new = few & (place < n_known - n_probes), few & (place >= n_known - n_probes)
        if sizes is not None:
            new &= _like(sizes, place - (n_known - n_probes), new, n_probes, generator)
        truth = place[new] - (n_known - n_probes)
        taken += len(truth)
        jobs.append(partial(_problem, known[old], place[old], known[new], truth, n_probes, tree, seed + number))
    for problem, by_plain in side_by_side(jobs) if known.device.type == "cpu" else [job() for job in jobs]:
        problems.append(problem)
        accuracy["learned"].append(problem.accuracy)
        accuracy["plain"].append(by_plain)
    scores = {name: sum(values) / len(values) for name, values in accuracy.items()}
    # each problem is judged by what the others teach
    judged = [
        calibrate(problems[:i] + problems[i + 1 :], p.votes, p.agreement).apply(p.votes).amax(1)
        for i, p in enumerate(problems)
    ]
    how = f"{len(problems)} problems with {n_probes} of the {n_known} known classes taken for new, each judged by the others"
    report = reliability(torch.cat(judged), torch.cat([p.right for p in problems]), how)
    plain_is_better = _clearly_better(accuracy["plain"], accuracy["learned"])
    notes = ("Plain k-means does better on the known classes, so its groups are taken.",) if plain_is_better else ()
    return Trial(plain_is_better, tuple(problems), report, scores, notes)


def _problem(
    old: Tensor, labels: Tensor, new: Tensor, truth: Tensor, k: int, tree: bool, seed: int
) -> tuple[KnownProblem, float]:
    """The groups of some known classes taken for new ones, and the accuracy of plain k-means on them."""
    groups = group_pile(old, labels, new, k, tree=tree, seed=seed)
    plain = kmeans(new, k, restarts=PLAIN_RESTARTS, seed=seed).labels
    right = majority_right(groups.labels, truth, k)
    accuracy = _matched(truth, groups.labels)
    return KnownProblem(groups.votes, right, accuracy, _matched(plain, groups.labels)), _matched(truth, plain)


def best_groups(
    known: Tensor, labels: Tensor, pile: Tensor, k: int, *, trained: bool = False, seed: int = 0
) -> tuple[Trial, Grouping, dict[str, float]]:
    """`k` groups of `pile`, in the space that the known classes teach or as plain k-means has them, whichever is better.

    Tried on the known classes or, where these were `trained` on and decide nothing, by the silhouettes, which are returned too.
    """
    groups = group_pile(known, labels, pile, k, tree=not trained, seed=seed)
    sizes = torch.bincount(groups.labels, minlength=k) if groups.way == "tree" else None
    trial = try_on_known(known, labels, k, seed, tree=not trained, sizes=sizes)
    if not trial.plain and not trained:
        return trial, groups, {}
    plain = group_pile(known, labels, pile, k, plain=True, seed=seed)
    if trial.plain:
        return trial, plain, {}
    if groups.way == "neighbours" and are_clearer(pile, groups, plain):
        return trial, groups, {}
    apart = how_apart(pile, groups, plain, seed=seed)
    return trial, plain if apart["plain"] > apart["learned"] else groups, apart


def calibration_of_new(
    trial: Trial, pile: Tensor, groups: Grouping, seed: int, *, plain: bool
) -> tuple[Calibration, float | None]:
    """What the votes for the groups of `pile` mean, and how far plain k-means agrees with them where that was asked."""
    if plain:  # it would agree with itself
        return fit_calibration([(p.votes, p.right) for p in trial.problems]) if trial.problems else Calibration(), None
    k = groups.votes.shape[1]
    agreement = _matched(kmeans(pile, k, restarts=PLAIN_RESTARTS, seed=seed).labels, groups.labels)
    if not trial.problems:
        return Calibration(power_for(log_odds(agreement), groups.votes)), agreement
    return calibrate(trial.problems, groups.votes, agreement), agreement


def unvouched(n_known: int, agreement: float | None) -> str:
    """What probabilities rest on where known classes are too few for a known problem."""
    taught = f"With {n_known} known class{'es' if n_known > 1 else ''}" if n_known else "Without known classes"
    rest = (
        "only say how far two ways of grouping agree"
        if agreement is not None
        else "are the votes of repeated runs as they are"
    )
    return f"{taught} the probabilities {rest}; they could not be checked."


def _matched(first: Tensor, second: Tensor) -> float:
    return cluster_accuracy(first.cpu().numpy(), second.cpu().numpy())


def _orders(n_known: int, n_probes: int, generator: torch.Generator) -> list[Tensor]:
    """Orders of the known classes of which the last `n_probes` are taken for new, another choice each time."""
    orders: dict[frozenset[int], Tensor] = {}
    for _ in range(20 * MOST_PROBLEMS):
        order = torch.randperm(n_known, generator=generator)
        orders.setdefault(frozenset(order[-n_probes:].tolist()), order)
        if len(orders) == MOST_PROBLEMS:
            break
    return list(orders.values())


def _clearly_better(first: list[float], second: list[float]) -> bool:
    gain = torch.tensor(first, dtype=torch.float64) - torch.tensor(second, dtype=torch.float64)
    error = gain.std().item() / len(gain) ** 0.5
    return bool(gain.mean().item() > max(WORSE, 2 * error))


def _like(sizes: Tensor, classes: Tensor, among: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """bool (n,): of the images of `k` classes (n,), as many as make them differ in size as `sizes` do."""
    ordered = sizes.sort().values.double().cpu()
    wanted = ordered[torch.linspace(0, len(sizes) - 1, k).round().long()][torch.randperm(k, generator=generator)]
    keep = torch.zeros_like(among)
    for number in range(k):
        members = (among & (classes == number)).nonzero()[:, 0]
        count = max(2, round(len(members) * float(wanted[number] / ordered[-1])))
        keep[members[torch.randperm(len(members), generator=generator).to(members.device)[:count]]] = True
    return keep
