"""Pictures that are there more than once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autonovel.data.reading.decode import Pixels

Remark = tuple[int, str, bool, bool]
"""Position of the picture, what is to be said, whether it is left out, whether that counts as unusable."""


def find_copies(
    labels: Sequence[str | None],
    ids: Sequence[str],
    usable: npt.NDArray[np.bool_],
    prints: npt.NDArray[np.int64],
    pixels: Pixels,
) -> list[Remark]:
    """What is to be said about copies of pictures.

    A picture with two different labels is left out wherever it occurs. An unlabelled copy of a labelled picture is
    left out, since its class is known. Other copies stay and are remarked on: everyone expects an answer for them.
    """
    remarks: list[Remark] = []
    for group in _equal(np.flatnonzero(usable), prints, pixels):
        known = sorted({label for label in (labels[position] for position in group) if label is not None})
        first = min(group, key=lambda position: (labels[position] is None, position))
        for position in group:
            if len(known) > 1:
                other = next(p for p in group if p != position)
                what = f"the same picture as {ids[other]}, labelled both {known[0]!r} and {known[1]!r}"
                remarks.append((position, what, True, labels[position] is not None))
            elif position != first:
                covered = labels[position] is None and bool(known)
                what = f"the same picture as {ids[first]}" + (f", which is labelled {known[0]!r}" if covered else "")
                remarks.append((position, what, covered, False))
    return sorted(remarks)


def _equal(positions: npt.NDArray[np.intp], prints: npt.NDArray[np.int64], pixels: Pixels) -> list[list[int]]:
    """Groups of pictures with the same print and the same pixels."""
    order = positions[np.argsort(prints[positions], kind="stable")]
    breaks = np.flatnonzero(np.diff(prints[order])) + 1
    groups: list[list[int]] = []
    for same_print in np.split(order, breaks):
        if len(same_print) > 1:
            by_pixels: dict[bytes, list[int]] = {}
            for position in same_print.tolist():
                by_pixels.setdefault(pixels[position].tobytes(), []).append(position)
            groups += [group for group in by_pixels.values() if len(group) > 1]
    return groups
