"""Images that occur more than once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autonovel.data.images import Pixels

Remark = tuple[int, str, bool, bool]
"""Position of the image, the remark, whether it is left out, whether that counts as unusable."""


def find_copies(
    labels: Sequence[str | None],
    ids: Sequence[str],
    usable: npt.NDArray[np.bool_],
    fingerprints: npt.NDArray[np.int64],
    pixels: Pixels,
) -> list[Remark]:
    """Remarks about copies of images.

    An image with two different labels is left out wherever it occurs. An unlabelled copy of a labelled image is left
    out, since its class is known. Other copies stay, with a remark: the user expects an answer for each of them.
    """
    remarks: list[Remark] = []
    for group in _equal(np.flatnonzero(usable), fingerprints, pixels):
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


def _equal(positions: npt.NDArray[np.intp], fingerprints: npt.NDArray[np.int64], pixels: Pixels) -> list[list[int]]:
    """Groups of images with the same fingerprint and the same pixels."""
    order = positions[np.argsort(fingerprints[positions], kind="stable")]
    breaks = np.flatnonzero(np.diff(fingerprints[order])) + 1
    groups: list[list[int]] = []
    for same_fingerprint in np.split(order, breaks):
        if len(same_fingerprint) > 1:
            by_pixels: dict[bytes, list[int]] = {}
            for position in same_fingerprint.tolist():
                by_pixels.setdefault(pixels[position].tobytes(), []).append(position)
            groups += [group for group in by_pixels.values() if len(group) > 1]
    return groups
