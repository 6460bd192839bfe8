"""What goes into an estimate of the number of classes: points of known classes, and how much work it may be."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.points import check_features

T = TypeVar("T")
Features: TypeAlias = Tensor | ArrayLike

MIN_PROBE_CLASSES = 4
"""Two anchors and two classes to check them with."""

MIN_INTERVAL_CLASSES = 8
"""Probe classes from which on an interval is given, where there are no families: fewer say too little about errors."""


@dataclass(frozen=True)
class Effort:
    """How much work an estimate may be; more of it makes the answer steadier."""

    splits: int = 5
    """Splits of the probe classes, or samples of the points."""
    restarts: int = 10
    """k-means restarts for each number of clusters."""
    draws: int = 60
    """Resampled groups of probe classes that a tree is calibrated on."""
    tree_points: int = 3000
    """Points in the largest tree. The points of a larger pile are put together by k-means until they are this few, or,
    where known classes are too small for that, sampled several times."""


class RunJobs(Protocol):
    """Something that runs jobs and gives their results in order, such as `World.share_out` of several processes."""

    def __call__(self, jobs: Iterable[Callable[[], T]], /) -> list[T]:
        """The results of all jobs, in order."""


def run_in_turn(jobs: Iterable[Callable[[], T]], /) -> list[T]:
    """Run the jobs one after the other."""
    return [job() for job in jobs]


@dataclass(frozen=True)
class ProbeSet:
    """Points of one family of known classes."""

    features: Tensor
    labels: Tensor
    """int64, 0 .. n_classes - 1"""
    n_classes: int

    @classmethod
    def none(cls, pile: Tensor) -> "ProbeSet":
        """No known class, beside points such as those of `pile`."""
        return cls(pile[:0], torch.zeros(0, dtype=torch.int64, device=pile.device), 0)


def probe_sets(features: Features, labels: Features, groups: Features | None, pile: Tensor) -> list[ProbeSet]:
    """The probe points, one set for each family."""
    if np.size(labels if not isinstance(labels, Tensor) else labels.cpu().numpy()) == 0:
        return []
    tensor = as_features(features, "Probe features").to(pile.device, pile.dtype)
    if tensor.shape[1] != pile.shape[1]:
        raise InputError(f"Probe features have {tensor.shape[1]} dimensions and unlabelled ones {pile.shape[1]}.")
    classes = _as_integers(labels, "Probe labels", len(tensor))
    families = np.zeros(len(tensor), np.int64) if groups is None else _as_integers(groups, "Probe groups", len(tensor))
    sets = []
    for family in range(int(families.max()) + 1):
        members = np.flatnonzero(families == family)
        names, inner = np.unique(classes[members], return_inverse=True)
        index = torch.from_numpy(members).to(pile.device)
        sets.append(ProbeSet(tensor[index], torch.from_numpy(inner).to(pile.device), len(names)))
    return sets


def why_no_interval(probes: Sequence[ProbeSet], grouped: bool) -> str:
    """The sentence that says why these probe classes justify no interval; empty where they do."""
    n = sum(probe.n_classes for probe in probes)
    if grouped or n >= MIN_INTERVAL_CLASSES:
        return ""
    return (
        f"There is no interval: it takes {MIN_INTERVAL_CLASSES} known classes that training has not seen, "
        f"and there {'is' if n == 1 else 'are'} {n}."
    )


def as_features(values: Features, name: str) -> Tensor:
    """Numbers in any form as a float tensor (n, d), checked; n may be 0."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    tensor = tensor.detach()
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and not tensor.is_complex():
        tensor = tensor.float()
    if tensor.ndim != 2 or len(tensor):
        check_features(tensor, name)
    return tensor


def _as_integers(values: Features, name: str, length: int) -> NDArray[np.int64]:
    """Class numbers from 0 without gaps, whatever labels (numbers or words) stood for them."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.shape != (length,):
        raise InputError(f"{name} must be a vector of {length} values, one for each probe point.")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)
