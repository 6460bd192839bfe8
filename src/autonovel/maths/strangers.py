"""How many of a batch of images belong to none of the classes.

One image alone can hardly be told: images of other classes are a little less similar to the nearest class, and so are many of
these. Of a batch the share can be told, once it is known how similar images of either kind are. Both are seen on what is there:
images that their own class has not seen, and images of classes that are left out for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autonovel.maths.known_space import group_means, unit

FOLDS, CLASS_FOLDS = 10, 20
FEWEST_CLASSES, FEWEST_IMAGES = 4, 20
"""Classes, and images of a batch, below which nothing is said."""
LEVELS = 101
LEAST_APART = 0.15
"""How far the two kinds must be apart at some similarity (in shares of images below it) for a batch to tell anything."""


@dataclass(frozen=True)
class Strangers:
    """How similar images are to the nearest class, among the features themselves: no space that was learned from these images.

    Attributes:
        centres: (k, d), the middle of every class among features of length 1.
        seen: (q,), quantiles over images of the classes that were held out.
        unseen: (q,), quantiles over images of classes that were held out as a whole.
    """

    centres: Tensor
    seen: Tensor
    unseen: Tensor

    @classmethod
    def of(cls, features: Tensor, groups: Tensor, k: int, *, seed: int = 0) -> Strangers | None:
        """From features (n, d) of `k` classes, some of which may have no image; None where there are too few."""
        filled = torch.bincount(groups, minlength=k) > 0
        classes = int(filled.sum())
        if classes < FEWEST_CLASSES or len(features) < 2 * k:
            return None
        points, generator = unit(features.float()), torch.Generator().manual_seed(seed)
        image = torch.randperm(len(points), generator=generator).to(points.device) % FOLDS
        fold = torch.zeros(k, dtype=torch.long, device=points.device)
        fold[filled] = (torch.randperm(classes, generator=generator) % min(CLASS_FOLDS, classes)).to(points.device)
        similarities = (_held_out(points, groups, k, fold) for fold in (image, fold[groups]))
        levels = torch.linspace(0, 1, LEVELS, device=points.device)
        return cls(group_means(points, groups, k), *(similar.quantile(levels) for similar in similarities))

    def similar(self, features: Tensor) -> Tensor:
        """(n,): how similar images with features (n, d) are to the nearest class."""
        return (unit(features.float()) @ self.centres.T).amax(1)

    def share(self, similar: Tensor) -> tuple[float, float] | None:
        """The share of a batch that belongs to no class, from the similarities (n,) of its images to the nearest, and its
        standard error; None where that cannot be told."""
        seen, unseen = self.seen.cpu(), self.unseen.cpu()
        levels = torch.cat([seen, unseen]).sort().values
        below = [torch.searchsorted(part, levels) / len(part) for part in (seen, unseen)]
        apart = below[1] - below[0]
        best = int(apart.argmax())
        if len(similar) < FEWEST_IMAGES or apart[best] < LEAST_APART:
            return None
        here = float((similar.cpu() < levels[best]).double().mean())
        gap = float(apart[best])
        share = min(1.0, max(0.0, (here - float(below[0][best])) / gap))
        return share, (here * (1 - here) / len(similar)) ** 0.5 / gap


def _held_out(points: Tensor, groups: Tensor, k: int, fold: Tensor) -> Tensor:
    """The similarity of each point to the nearest mean of the points of other folds."""
    folds = int(fold.max()) + 1
    place = fold * k + groups
    sums = points.new_zeros(folds * k, points.shape[1]).index_add_(0, place, points).view(folds, k, -1)
    counts = torch.bincount(place, minlength=folds * k).view(folds, k)
    means, there = unit((sums.sum(0) - sums).flatten(0, 1)).view_as(sums), counts.sum(0) > counts
    similar = torch.empty(len(points), device=points.device)
    for number in range(folds):
        held = fold == number
        similar[held] = (points[held] @ means[number][there[number]].T).amax(1)
    return similar
