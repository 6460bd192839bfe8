"""What is doubtful among labelled images: labels, pictures that are there twice, blurred and odd ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, unfold

from autonovel.maths.grouping import soft_answer
from autonovel.maths.known_space import group_means, nearest, number_of_classes, principal_axes, unit, whitening

FOLDS, SHRINK = 5, 0.2
EXPECTED, LEAST_SEEN = 0.05, 0.05
"""Share of wrong labels that there may be; and of random labels that must be below a level at which wrong ones are counted."""
NOTHING = 0.25
"""Probabilities below this part of an even share all say the same: not this class."""
NEAR = 0.7
"""Similarity of features from which an image and its nearest one are compared by their pixels."""
NEIGHBOURS = 3
"""The nearest images that tell whether one is odd."""
SIDE, CUTS = 32, (0.94, 0.88, 0.82)
"""Pixels at which pictures are compared, and how much of one side may be all that the other shows."""
SAME, RELATED = 0.95, 0.2
"""Correlation of pixels from which two pictures are one, and from which one may be a part of the other."""
FAR = 3.0
"""How many usual deviations beyond the middle is out of the ordinary."""


class Pair(NamedTuple):
    """Two images that are one picture."""

    first: int
    second: int
    alike: float
    """The correlation of their pixels where they lie on each other best."""


def held_out(features: Tensor, labels: Tensor, *, seed: int = 0) -> Tensor:
    """(n, k): what images of other folds say of the class of each, in the space that these teach."""
    k, points = number_of_classes(labels), principal_axes(features).transform(features)
    fold, likely = _folds(labels, seed), torch.zeros(len(labels), k)
    for number in range(FOLDS):
        rest, held = fold != number, fold == number
        placed = unit(points @ whitening(points[rest], labels[rest], SHRINK))
        likely[held] = soft_answer(placed[held], group_means(placed[rest], labels[rest], k))
    return likely


def _folds(labels: Tensor, seed: int) -> Tensor:
    """(n,) the fold of every image; each class is spread evenly."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[labels[order].argsort(stable=True)]
    starts = torch.bincount(labels).cumsum(0) - torch.bincount(labels)
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - starts[labels[order]]
    return place % FOLDS


def wrong_labels(probabilities: Tensor, labels: Tensor) -> Tensor:
    """bool (n,): which labels are rather wrong than right.

    The probabilities that images give to classes which are not theirs show how wrong labels look. Among the labels there are
    so many of these as explain the smallest probabilities, but at least as many as are expected before looking. A label is
    taken for wrong where such labels are the majority.
    """
    n = len(labels)
    probabilities = probabilities.clamp(min=NOTHING / probabilities.shape[1])
    own = probabilities.gather(1, labels[:, None])[:, 0]
    not_own = torch.ones_like(probabilities, dtype=torch.bool).scatter_(1, labels[:, None], False)
    others, levels = probabilities[not_own].sort().values, own.sort().values
    below = torch.searchsorted(levels, levels, right=True) / n
    random = torch.searchsorted(others, levels, right=True) / max(1, len(others))
    seen = random > LEAST_SEEN
    if not seen.any():
        return torch.zeros(n, dtype=torch.bool)
    share = max(EXPECTED, float((below[seen] / random[seen]).min().clamp(max=1)))
    gain = 2 * share * random - below
    best = int(gain.argmax())
    return (own <= levels[best]) & bool(gain[best] > 0)


def copies(features: Tensor, pictures: Tensor) -> list[Pair]:
    """Pairs of images that show one picture: resized, compressed anew, mirrored or cut by up to a fifth.

    Args:
        features: (n, d).
        pictures: (n, h, w) brightness.
    """
    points, rows = unit(features), torch.arange(len(features))
    if len(rows) < 2:
        return []
    near = nearest(points, 1)[:, 0]
    close = (points * points[near]).sum(1) >= NEAR
    pairs = torch.unique(torch.stack([torch.minimum(rows, near), torch.maximum(rows, near)], 1)[close], dim=0)
    if not len(pairs):
        return []
    small = interpolate(pictures[:, None].float(), (SIDE, SIDE), mode="bilinear", antialias=True)
    alike = [_alike(small[a], small[b]) for a, b in (part.unbind(1) for part in pairs.split(_TOGETHER))]
    same = [Pair(a, b, c) for (a, b), c in zip(pairs.tolist(), torch.cat(alike).tolist(), strict=True) if c >= SAME]
    return sorted(same, key=lambda pair: (-pair.alike, pair.first, pair.second))


_TOGETHER = 256
"""Pairs that are compared at once."""


def _alike(a: Tensor, b: Tensor) -> Tensor:
    """(m,): the largest correlation of pixels of a (m, 1, SIDE, SIDE) with b, mirrored too, where one may be a part of the other.

    Parts are looked for only where the whole pictures are a little alike, but not the same.
    """
    best = torch.maximum(_best_place(a, b, SIDE), _best_place(a, b.flip(3), SIDE))
    rows = ((best >= RELATED) & (best < SAME)).nonzero()[:, 0]
    a, b = a[rows], b[rows]
    for part in CUTS:
        for whole, cut in ((a, b), (b, a), (a, b.flip(3)), (b, a.flip(3))):
            best[rows] = torch.maximum(best[rows], _best_place(whole, cut, round(part * SIDE)))
    return best


def _best_place(whole: Tensor, cut: Tensor, size: int) -> Tensor:
    """(m,): the correlation of ``cut``, made as small as this, with the part of ``whole`` that it fits best."""
    small = interpolate(cut, (size, size), mode="bilinear", antialias=True)
    best: Tensor = (_centred(unfold(whole, size)) * _centred(small.flatten(2).mT)).sum(1).amax(1)
    return best


def _centred(pixels: Tensor) -> Tensor:
    """Pixels (m, p, ...) of mean 0 and length 1; zeros where all are the same."""
    rest = pixels - pixels.mean(1, keepdim=True)
    length = rest.norm(dim=1, keepdim=True)
    return torch.where(length > 1e-3 * SIDE, rest / length.clamp(min=1e-9), 0.0)


def blurred(pictures: Tensor) -> Tensor:
    """bool (n,): which pictures (n, h, w) have much less fine detail for their contrast than the others."""
    x = pictures[:, None].float()
    detail = (x - avg_pool2d(x, 3, 1, 1, count_include_pad=False)).std((1, 2, 3))
    contrast = x.std((1, 2, 3))
    return _far_below((detail.clamp(min=1e-3) / contrast.clamp(min=1)).log())


def odd(features: Tensor) -> Tensor:
    """bool (n,): which images are much less like their nearest ones than the others are."""
    points, count = unit(features), min(NEIGHBOURS, len(features) - 1)
    if count < 1:
        return torch.zeros(len(features), dtype=torch.bool)
    return _far_below((points[:, None] * points[nearest(points, count)]).sum(2).mean(1))


def _far_below(values: Tensor) -> Tensor:
    middle = values.median()
    usual = 1.4826 * (values - middle).abs().median()
    return values < middle - FAR * usual - 1e-6
