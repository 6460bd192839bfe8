"""All images of new classes grouped anew, as a discovery groups them, and what stays of the clusters and a person's moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder

Ints = npt.NDArray[np.int64]


def group_anew(run: Folder, rows: Ints, k: int) -> Ints:
    """The group of each of these images (rows of predictions.csv), 0 .. k-1, from the features that the run has kept.

    Where `k` is the number of groups that the machine found, the answer is the machine's.
    """
    group, n_new = run.machine.group, run.machine.n_new
    numbers = np.unique(group[rows][group[rows] >= 0])
    empty = n_new - len(np.unique(group[group >= 0]))
    if len(numbers) and k in (len(numbers), len(numbers) + empty):
        return np.asarray(np.searchsorted(numbers, np.maximum(group[rows], numbers[0])), dtype=np.int64)
    return _grouped(run, rows, k)


def _grouped(run: Folder, rows: Ints, k: int) -> Ints:
    import torch

    from autonovel.maths.known_problems import best_groups
    from autonovel.maths.known_space import components

    labelled, labels = _labelled(run)
    pile = torch.from_numpy(np.array(run.features, dtype=np.float32))
    known, free = components(torch.from_numpy(labelled), pile)
    fresh = free[torch.from_numpy(rows)]
    if k == 1 or k == len(fresh):
        return np.arange(len(fresh)) % k
    # known classes that a network has learned from do not tell how to group others
    _, groups, _ = best_groups(
        known, torch.from_numpy(labels), fresh, k, trained=bool(run.metrics), seed=int(run.summary["seed"])
    )
    return groups.labels.numpy()


def _labelled(run: Folder) -> tuple[npt.NDArray[np.float32], Ints]:
    """Features and classes of the labelled images; none where they were not kept."""
    features = run.labelled_features
    names = [record.label for record in run.images if record.label is not None]
    if features is None or len(features) != len(names):
        return np.zeros((0, run.features.shape[1]), np.float32), np.zeros(0, np.int64)
    place = {name: number for number, name in enumerate(run.machine.known)}
    return np.array(features, dtype=np.float32), np.array([place[name] for name in names], dtype=np.int64)


def with_moved(before: Ints, part_of: Ints, moved: npt.NDArray[np.bool_]) -> Ints:
    """Images that a person moved go where most of the cluster went that she put them into."""
    part_of = part_of.copy()
    for number in np.unique(before[moved]):
        inside = before == number
        settled = inside & ~moved if (inside & ~moved).any() else inside
        part_of[inside & moved] = np.bincount(part_of[settled]).argmax()
    return part_of


def same_clusters(before: Ints, part_of: Ints) -> dict[int, int]:
    """New group -> the cluster before that it shares over half of the images of both with; at most one each way."""
    same = {}
    for number in np.unique(before):
        inside = before == number
        shared = np.bincount(part_of[inside])
        part = int(shared.argmax())
        if shared[part] > ((part_of == part) | inside).sum() / 2:
            same[part] = int(number)
    return same
