"""Probabilities that mean something: of the answers given with probability 0.8, four in five are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

BINS = 15


@dataclass(frozen=True)
class Calibration:
    """How raw votes become probabilities: raised to a power, then mixed with ignorance. The answer stays the same."""

    power: float = 1.0
    doubt: float = 0.0
    """Share of all probability that is spread evenly over the classes: for mistakes of which the votes know nothing."""

    def apply(self, votes: Tensor) -> Tensor:
        """(n, k) rows that sum to 1, made from rows that do."""
        sharp = votes.clamp(min=1e-9) ** self.power
        return (1 - self.doubt) * sharp / sharp.sum(1, keepdim=True) + self.doubt / votes.shape[1]


_POWERS = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
_DOUBTS = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4)


def fit_calibration(problems: Sequence[tuple[Tensor, Tensor]]) -> Calibration:
    """The calibration under which known problems, each (votes (n, k), right (n,) bool), are most likely as they are."""
    return _least_surprising([_surprises(votes, right) for votes, right in problems])


def _least_surprising(tables: Sequence[Tensor]) -> Calibration:
    place = int(torch.stack(list(tables)).sum(0).argmin())
    return Calibration(_POWERS[place // len(_DOUBTS)], _DOUBTS[place % len(_DOUBTS)])


def _surprises(votes: Tensor, right: Tensor) -> Tensor:
    """(powers, doubts) on the CPU: the mean surprise at which answers are right and wrong, for each calibration tried."""
    table = torch.empty(len(_POWERS), len(_DOUBTS), dtype=torch.float64)
    for row, power in enumerate(_POWERS):
        sure = Calibration(power).apply(votes).amax(1)
        for column, doubt in enumerate(_DOUBTS):
            top = ((1 - doubt) * sure + doubt / votes.shape[1]).double().clamp(1e-6, 1 - 1e-6)
            table[row, column] = -torch.where(right, top.log(), (1 - top).log()).mean()
    return table


@dataclass(frozen=True)
class KnownProblem:
    """Classes that are known, grouped as if they were new.

    Attributes:
        votes: (n, k), rows sum to 1.
        right: bool (n,), whether the group with most votes is the right one.
        accuracy: of the groups, under the best matching.
        agreement: with the groups of another way of grouping the same images, counted likewise.
    """

    votes: Tensor
    right: Tensor
    accuracy: float
    agreement: float

    @cached_property
    def surprises(self) -> Tensor:
        """How badly each calibration that is tried fits."""
        return _surprises(self.votes, self.right)


def calibrate(problems: Sequence[KnownProblem], votes: Tensor, agreement: float) -> Calibration:
    """The calibration for the `votes` (n, k) of a pile, given how far its groups agree with those of another way.

    Two things tell how many answers are right. What such votes meant on known problems, which new classes that are harder or
    easier than the known ones belie; and how far two ways of grouping the pile agree, put right by how much more often than
    that the answers to known problems were right. Their mean (of log-odds) is what the probabilities are brought to.
    """
    said = _least_surprising([p.surprises for p in problems]).apply(votes).amax(1).mean().item()
    share = sum(log_odds(p.accuracy) - log_odds(p.agreement) for p in problems) / len(problems)
    return Calibration(power_for((log_odds(said) + log_odds(agreement) + share) / 2, votes))


def power_for(odds: float, votes: Tensor) -> float:
    """The power to which `votes` (n, k) are raised so that the mean of the largest in a row has these log-odds."""
    wanted = 1 / (1 + math.exp(-odds))
    low, high = 0.02, 8.0
    for _ in range(25):
        middle = math.sqrt(low * high)
        sure = Calibration(middle).apply(votes).amax(1).mean().item()
        low, high = (middle, high) if sure < wanted else (low, middle)
    return middle


def log_odds(share: float) -> float:
    """Of a share of right answers."""
    share = min(max(share, 0.005), 0.995)  # no finite number of images shows more
    return math.log(share / (1 - share))


def expected_calibration_error(probability: Tensor, right: Tensor, bins: int = BINS) -> float:
    """Mean gap between the probability of an answer and how often it is right, over bins of equal width."""
    place = (probability * bins).long().clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(
        0, place.cpu(), (right.double() - probability.double()).cpu()
    )
    return gap.abs().sum().item() / max(1, len(probability))


def reliability(probability: Tensor, right: Tensor, how: str, bins: int = BINS) -> dict[str, Any]:
    """The calibration error, the points of its curve and a sentence on how it was measured; ready for JSON."""
    place = (probability * bins).long().clamp(0, bins - 1).cpu()
    curve = [
        {
            "probability": round(probability.cpu()[place == b].mean().item(), 4),
            "right": round(right.cpu()[place == b].double().mean().item(), 4),
            "images": int((place == b).sum()),
        }
        for b in range(bins)
        if (place == b).any()
    ]
    error = round(expected_calibration_error(probability, right, bins), 4)
    return {"calibration_error": error, "images": len(right), "how": how, "curve": curve}


def majority_right(groups: Tensor, truth: Tensor, k: int) -> Tensor:
    """bool (n,): whether each image belongs to the class that most of its group belongs to."""
    n_true = int(truth.max()) + 1
    table = torch.bincount(groups * n_true + truth, minlength=k * n_true).view(k, n_true)
    return table.argmax(1)[groups] == truth
