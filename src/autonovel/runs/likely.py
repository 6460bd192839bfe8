"""Names for clusters, by the 1,000 classes of ImageNet: offered to a person, never taken."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.runs.files import damaged

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder

FILE = "imagenet.npy"
"""uint16 (images, likeliest, 2): for every image of images.csv its likeliest classes, and their probabilities times 65,535."""
LEAST = 0.3
"""Mean probability from which a name is offered. Of photographs of 40 classes of ImageNet, half the clusters reach it, and
for all of those the right name is among the first three."""
APART = 3.0
"""Times as likely for this cluster as for any other or any known class: a class that ImageNet lacks gets the name of the
nearest one that it has, and so do its relatives (13 of 40 birds are bramblings)."""
OFFERED = 3

Rows = npt.NDArray[np.int64]


class Likely(NamedTuple):
    """A name, and the mean probability of a cluster's images."""

    name: str
    probability: float


@lru_cache(maxsize=1)
def imagenet_names() -> list[str]:
    """The classes of ImageNet in their usual order."""
    _, *names = (Path(__file__).parent / "imagenet.txt").read_text(encoding="utf-8").splitlines()
    return names


def likely_names(run: Folder, clusters: Mapping[int, Rows]) -> dict[int, list[Likely]]:
    """Up to three names for each of the clusters (rows of predictions.csv) that ImageNet has a class for; often none."""
    if not run.has(FILE) or not run.images:
        return {}
    unlabelled, likely = run.unlabelled, run.read_array(FILE, "u", 3)
    if len(likely) != len(run.images) or likely.shape[2] != 2 or likely[..., 0].max(initial=0) >= len(imagenet_names()):
        raise damaged(run, FILE, f"it holds {likely.dtype} {likely.shape} for {len(run.images)} images")
    pile = {number: likely[unlabelled[rows]] for number, rows in clusters.items() if len(rows)}
    labels: dict[str, list[int]] = {}
    for row, record in enumerate(run.images):
        if record.label is not None:
            labels.setdefault(record.label, []).append(row)
    every = [_mean(part) for part in (*pile.values(), *(likely[rows] for rows in labels.values()))]
    offered = {}
    for place, number in enumerate(pile):
        best = np.argsort(-every[place], kind="stable")[:OFFERED]
        others = max((means[best[0]] for at, means in enumerate(every) if at != place), default=0.0)
        if every[place][best[0]] >= max(LEAST, APART * others):
            names = imagenet_names()
            offered[number] = [Likely(names[k], float(every[place][k])) for k in best if every[place][k] > 0.01]
    return offered


def _mean(likely: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    """(1000,) the mean probability of every class."""
    classes, shares = likely[..., 0].ravel(), likely[..., 1].ravel() / 65535
    return np.bincount(classes, shares, minlength=len(imagenet_names())) / len(likely)
