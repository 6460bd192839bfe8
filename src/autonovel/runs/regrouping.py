"""What stays of clusters, and of a person's moves, when all images are grouped anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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
