"""Probe tasks: discoveries whose answer is known, made of known classes by taking their labels away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from autonovel.base.chance import host_generator
from autonovel.base.errors import InputError, option
from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.maths.metrics import cluster_accuracy

LARGEST_SHARE = 0.4
"""Of the known classes may be hidden: two of CIFAR-10's five, as in the paper."""
USUAL_SHARE = 0.25
"""Of the known classes is hidden where nobody says how many new ones there are."""


@dataclass(frozen=True)
class ProbeTask:
    """A discovery task whose answer is known.

    Attributes:
        data: the images; those of the probe classes are unlabelled.
        probe: bool (n,), the images of the probe classes.
        classes: int64 (probe images,), their classes.
        n_new: how many classes the unlabelled images hold.
        hidden: the names of the probe classes.
    """

    data: ImageSet
    probe: npt.NDArray[np.bool_]
    classes: npt.NDArray[np.int64]
    n_new: int
    hidden: tuple[str, ...]

    def accuracy(self, group: npt.NDArray[np.int64]) -> float:
        """ACC of clusters (n_unlabelled,) on the probe images; one that was taken for a known class (below 0) is wrong."""
        groups = group[self.probe[~self.data.is_labelled]]
        new = groups >= 0
        return cluster_accuracy(self.classes[new], groups[new]) * float(new.mean()) if new.any() else 0.0


def hide(data: ImageSet, hidden: Sequence[int], pile: int = 0) -> ProbeTask:
    """Take the labels of some known classes away.

    Args:
        data: the images.
        hidden: the classes.
        pile: how many classes the unlabelled images hold, to keep these images; 0 leaves them out.
    """
    left = [c for c in range(data.n_known) if c not in hidden]
    number = np.full(data.n_known + 1, UNKNOWN)  # the last entry is for label -1
    number[left] = np.arange(len(left))
    shown = replace(data, labels=number[data.labels], class_names=tuple(data.class_names[c] for c in left))
    keep = np.ones(len(data), dtype=bool) if pile else data.is_labelled
    probe = np.isin(data.labels, hidden)
    names = tuple(data.class_names[c] for c in sorted(hidden))
    return ProbeTask(shown.subset(keep), probe[keep], data.labels[probe], len(hidden) + pile, names)


def how_many_to_hide(n_known: int, n_new: int | None) -> int:
    """As many as there are new classes, as far as that leaves enough known ones; a quarter where their number is not given.

    >>> how_many_to_hide(80, 20), how_many_to_hide(5, 5), how_many_to_hide(40, None)
    (20, 2, 10)
    """
    most = max(2, math.floor(LARGEST_SHARE * n_known))
    return max(2, min(n_new if n_new is not None else round(USUAL_SHARE * n_known), most))


def choose_splits(n_known: int, n_hidden: int, splits: int, seed: int) -> list[tuple[int, ...]]:
    """Different sets of classes to hide: every class is hidden once before one is hidden again, as far as that goes."""
    if n_hidden < 2 or n_known - n_hidden < 2:
        way_out = f"give {option('hide')} 2 to {n_known - 2}" if n_known >= 4 else "label images of at least four"
        raise InputError(
            f"{n_known} known classes cannot be tuned on with {n_hidden} of them hidden: at least two must be hidden, and two "
            f"must stay known; {way_out}."
        )
    hidden_sets: list[tuple[int, ...]] = []
    generator = host_generator(seed, "tune")
    wanted = min(splits, math.comb(n_known, n_hidden))
    while len(hidden_sets) < wanted:
        order = torch.randperm(n_known, generator=generator).tolist()
        for start in range(0, n_known - n_hidden + 1, n_hidden):
            chosen = tuple(sorted(order[start : start + n_hidden]))
            if chosen not in hidden_sets and len(hidden_sets) < wanted:
                hidden_sets.append(chosen)
    return hidden_sets
