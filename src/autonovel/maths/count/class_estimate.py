"""What goes into an estimator of the number of classes, and what comes out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from autonovel.base.errors import InputError, kind_found
from autonovel.maths.points import check_features

T = TypeVar("T")
Estimator: TypeAlias = Literal["calibrated", "paper", "silhouette", "judges"]
Features: TypeAlias = Tensor | ArrayLike

MIN_PROBE_CLASSES = 4
"""Two anchors and two classes to check them with."""

MIN_INTERVAL_CLASSES = 8
"""Probe classes from which on an interval is given, where there are no families: fewer say too little about errors."""


@dataclass(frozen=True)
class ClassEstimate:
    """An estimate with what it rests on."""

    n_new: int
    """Number of new classes, or of clusters where nothing is known."""
    interval: tuple[int, int] | None
    """`calibrated`: a range meant to hold the true number with the probability asked for, judging by the errors made on
    known classes. `paper`: the range of the answers over the splits. None where no interval can be justified: with fewer
    than 8 probe classes that form no families, and always for `silhouette`, which has no known classes to judge by."""
    curve: dict[str, list[float]]
    """What was looked at, as lists of one length, ready to draw. `paper` and `silhouette`: `k`, `accuracy` (of the
    validation probes; absent for `silhouette`) and `silhouette`, means over the splits, NaN where not looked at.
    `calibrated`: `k`, the `height` at which the tree falls apart into k clusters, the `threshold` of the cut, and, where
    the size of the classes is read off the pile, the `belief` in each number, relative to the likeliest."""
    method: Estimator
    """The estimator that answered, which is `silhouette` where there were too few probe classes."""
    answers: list[int] = field(default_factory=list)
    """The answer of each split; `calibrated`: with each group of known classes left out in turn."""
    note: str = ""
    """One sentence on what the interval is worth, or why there is none; empty where there is nothing to say."""
    second: int | None = None
    """The runner-up: the number at the second peak of the curve (`belief`, or the sum of the indices), if it has one."""
    known: bool = True
    """Whether any class was known; where none was, there is nothing that the clusters could be new beside."""

    def __str__(self) -> str:
        between = "" if self.interval is None else ", between {} and {}".format(*self.interval)
        return f"{self.n_new} {kind_found(self.known, self.n_new)}{between} ({self.method})" + (
            f". {self.note}" if self.note else ""
        )


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


def why_no_interval(probes: list[ProbeSet], grouped: bool) -> str:
    """The sentence that says why these probe classes justify no interval; empty where they do."""
    n = sum(probe.n_classes for probe in probes)
    if grouped or n >= MIN_INTERVAL_CLASSES:
        return ""
    return (
        f"{n} probe classes are too few to calibrate an interval; "
        f"hold at least {MIN_INTERVAL_CLASSES} known classes out of training."
    )


def as_features(values: Features, name: str) -> Tensor:
    """Numbers in any form as a float tensor (n, d), checked."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    tensor = tensor.detach()
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and not tensor.is_complex():
        tensor = tensor.float()
    check_features(tensor, name)
    return tensor


def _as_integers(values: Features, name: str, length: int) -> NDArray[np.int64]:
    """Class numbers from 0 without gaps, whatever labels (numbers or words) stood for them."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.shape != (length,):
        raise InputError(f"{name} must be a vector of {length} values, one for each probe point.")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)
