"""Probe classes: known classes that training leaves out, to learn from them about new ones."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.base.chance import host_generator
from autonovel.base.errors import AutonovelWarning, InputError, option
from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.machine.device import Mode
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.probes import MIN_PROBE_CLASSES
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import components
from autonovel.settings.estimate import Estimate


@dataclass(frozen=True)
class ProbePlan:
    """Which known classes train the features and which are probes.

    Attributes:
        trains: whether features must be trained for it, on the known classes that are not probes.
        n_train: how many classes train.
        train_labels: labels (n,) with only those classes, numbered from 0.
        index: the images of the probe classes.
        groups: the family of each probe image, or None where there are no families, or only small ones.
        train_families: the family of each class that trains, or None where there are not several families.
    """

    trains: bool
    n_train: int
    train_labels: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64] | None
    train_families: npt.NDArray[np.int64] | None = None


def plan_probes(data: ImageSet, settings: Estimate, seed: int, seen: str | None) -> ProbePlan:
    """Choose the probe classes, for features that so far have seen nothing (None), 'images' without labels or 'labels'.

    Features of a pre-trained network ('frozen') have not seen any of these classes, so all are probes.
    With enough known classes a share of them is held out of supervised training. With few, features that have seen no labels
    serve, and all known classes are probes. With few and no such features there are no probes.
    """
    families = data.families
    probes = np.arange(data.n_known) if seen == "frozen" else _choose(data, settings, seed)
    if seen != "frozen" and (len(probes) < MIN_PROBE_CLASSES or data.n_known - len(probes) < 2):
        probes = np.arange(data.n_known if seen == "images" else 0, dtype=np.int64)
    trained = np.setdiff1d(np.arange(data.n_known), probes)
    number = np.full(data.n_known + 1, UNKNOWN)  # the last entry is that of label -1
    number[trained] = np.arange(len(trained))
    index = np.flatnonzero(np.isin(data.labels, probes))
    return ProbePlan(
        trains=seen not in ("labels", "frozen") and len(trained) >= 2,
        n_train=len(trained),
        train_labels=number[data.labels],
        index=index,
        groups=None if families is None or not _large(families[probes]) else families[data.labels[index]],
        train_families=None if families is None or len(set(families[trained])) < 2 else families[trained],
    )


_OF_METHODS = ("coverage", "size_range", "reading", "anchor_share", "outlier_threshold")
"""What only some of the methods that count have."""


def estimate_from(
    features: Tensor,
    plan: ProbePlan,
    data: ImageSet,
    settings: Estimate,
    seed: int,
    mode: Mode,
) -> ClassEstimate:
    """The number of new classes, from features of the probe images followed by those of the unlabelled ones."""
    n_probe = len(plan.index)
    method = settings.method
    if method not in ("silhouette", "judges") and n_probe == 0:
        warnings.warn(_silhouette_alone(data.n_known), AutonovelWarning, stacklevel=2)
        method = "silhouette"
    known, free = features.to(mode.device).split([n_probe, len(features) - n_probe])
    labels = data.labels[plan.index]
    max_new = settings.max_new if method == "judges" else max(2, min(settings.max_new, len(free) // 2))
    if method == "judges":
        known, free = components(known, free)
    estimate = estimate_classes(
        known,
        labels,
        free,
        method=method,
        max_new=max_new,
        **{name: value for name, value in vars(settings).items() if name in _OF_METHODS},
        seed=seed,
        probe_groups=plan.groups,
        run_jobs=mode.world.share_out,
    )
    return replace(estimate, known=data.n_known > 0)


def _silhouette_alone(n_known: int) -> str:
    """The sentence for a pile whose classes no probe class helps to count."""
    if not n_known:
        return (
            "Without known classes the silhouette alone decides how many clusters there are; "
            f"give {option('k')} if you know it."
        )
    return (
        f"{n_known} known classes are too few to leave some of them out of training, so the silhouette alone "
        f"decides how many new classes there are; give {option('n_new')} if you know it."
    )


def _large(families: npt.NDArray[np.int64]) -> bool:
    """Whether some family has enough of the probe classes to be a probe set of its own."""
    return bool(np.bincount(families).max(initial=0) >= MIN_PROBE_CLASSES)


def _choose(data: ImageSet, settings: Estimate, seed: int) -> npt.NDArray[np.int64]:
    if settings.probe_families:
        chosen = [i for i, name in enumerate(data.class_names) if name.partition("/")[0] in settings.probe_families]
        if not chosen:
            raise InputError(f"No known class belongs to the probe families {', '.join(settings.probe_families)}.")
        return np.array(chosen, dtype=np.int64)
    wanted = max(round(settings.probe_share * data.n_known), min(MIN_PROBE_CLASSES, data.n_known))
    whole = _whole_families(data.families, wanted, seed)
    if MIN_PROBE_CLASSES <= len(whole) <= data.n_known - 2 and len(whole) >= wanted / 2:
        return whole
    order = torch.randperm(data.n_known, generator=host_generator(seed, "probes")).numpy()
    return np.sort(order[:wanted])


def _whole_families(families: npt.NDArray[np.int64] | None, wanted: int, seed: int) -> npt.NDArray[np.int64]:
    """At most half as many classes again as wanted, whole families of them; fewer where families are too large.

    New classes come as a family of which training has seen nothing, and so must the probes.
    """
    if families is None:
        return np.zeros(0, np.int64)
    sizes, chosen, count = np.bincount(families), [], 0
    for family in torch.randperm(len(sizes), generator=host_generator(seed, "probe families")).tolist():
        if count < wanted and count + sizes[family] <= 1.5 * wanted:
            chosen.append(family)
            count += sizes[family]
    return np.flatnonzero(np.isin(families, chosen))
