"""Does the pile hold images of known classes, and which are they?

Some labelled images of every class are planted in the pile. An image of a known class has about as many labelled images among
its neighbours as a planted one; an image of a new class lies among the unlabelled. How far a new class may look old is seen on
known classes that are put into the pile whole, as if nothing were known of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from autonovel.maths.known_space import nearest, unit, whitening

DRAWS = 3
PLANTED = 0.2
ENOUGH = 4
"""Planted images of a class whose middle is a measure for images of this class."""
MAX_NEIGHBOURS = 20
FEW = 20
"""Images of a pile below which it is said that they show little."""
MIXED_SHARE = 0.05
"""Share of a pile that must look old, beyond what images of new classes may well do, before it is taken for mixed."""


@dataclass(frozen=True)
class OldImages:
    """What of a pile belongs to known classes."""

    probability: Tensor
    """(m,) of being old rather than new, before the share of either is taken into account."""
    share: float
    """Of the pile, estimated: images that look like a known class."""
    leak: float | None
    """The same share among images of known classes that were put into the pile whole; None with fewer than three classes."""
    mixed: bool
    """Whether the pile holds known classes."""
    label: Tensor
    """int64 (m,): the known class to which most of the labelled neighbours belong; means something for old images alone."""
    sure_old: float = 1.0
    """Share of the images called old that should be old: by how well planted images and whole known classes were separated."""
    sure_new: float = 1.0
    """The same for images called new."""

    @property
    def is_old(self) -> Tensor:
        """bool (m,)"""
        return self.probability >= 0.5

    def labels(self) -> Tensor:
        """int64 (m,): the known class of each image that is old, -1 for the others."""
        return torch.where(self.is_old, self.label, -1)

    def sentence(self) -> str:
        """What was decided and why, for a person."""
        seen = f"About {100 * self.share:.0f} % of the pile looks like a known class"
        if self.leak is not None:
            seen += f", where chance alone gives {100 * self.leak:.0f} %"
        reason = (
            f"{seen}: {'known classes are expected in it too' if self.mixed else 'only new classes are expected in it'}"
        )
        return reason + (f", though {len(self.label)} images can hardly tell." if len(self.label) < FEW else ".")


def find_old(labelled: Tensor, labels: Tensor, pile: Tensor, *, seed: int = 0) -> OldImages:
    """Tell old from new images in `pile` (m, r), given `labelled` (n, r) with `labels` (n,), in the same components."""
    generator = torch.Generator().manual_seed(seed)
    n_known = int(labels.max()) + 1
    probes = (
        [_draw(labelled, labels, pile, generator, n_probes=max(1, n_known // 5)) for _ in range(DRAWS)]
        if n_known >= 3
        else []
    )
    draws = [_draw(labelled, labels, pile, generator, n_probes=0) for _ in range(DRAWS)]
    found = _excess(draws, probes, by_class=False)
    if not found.is_mixed and len(pile) >= FEW and (other := _excess(draws, probes, by_class=True)).is_mixed:
        found = other
    width = _width(probes or draws)
    total = torch.zeros(len(pile), device=pile.device)
    part = min(max(found.excess, 0.02), 0.95)
    for draw in draws:
        total += torch.sigmoid((draw.pile - _cut(draw.planted, draw.pile, part)) / width)
    votes = sum(draw.votes for draw in draws)
    assert isinstance(votes, Tensor)
    sure = _how_sure(probes, part)
    return OldImages(total / DRAWS, found.share, found.leak, found.is_mixed, votes.argmax(1), *sure)


class _Excess(NamedTuple):
    """By how much more of a pile looks old than of whole classes that are new.

    Attributes:
        share: of the pile that looks old.
        leak: the share of such classes that does; None where there are too few classes.
        excess: by how much the first is larger, as a share of what else is in the pile.
        is_mixed: whether that is more than chance.
    """

    share: float
    leak: float | None
    excess: float
    is_mixed: bool


def _excess(draws: Sequence[_Draw], probes: Sequence[_Draw], *, by_class: bool) -> _Excess:
    """Measured by the middle of all planted images or, where known classes may be missing in the pile, of each class of them."""
    share = sum(_share(draw.pile, draw.votes, draw, by_class) for draw in draws) / len(draws)
    leak = (
        sum(_share(draw.probes, draw.probe_votes, draw, by_class) for draw in probes) / len(probes) if probes else None
    )
    least = leak or 0.0
    excess = (share - least) / max(1 - least, 0.05)
    # some new classes look far older than others, so the leak of a handful may well be larger than the mean; and few images
    # show a share by chance
    chance = (share * (1 - share) / max(len(draws[0].pile), 1)) ** 0.5
    margin = MIXED_SHARE + 2 * math.hypot(_leak_error(probes, by_class), chance)
    return _Excess(share, leak, excess, excess > margin)


@dataclass(frozen=True)
class _Draw:
    """Share of labelled images among the neighbours of each image, by where the image comes from."""

    planted: Tensor
    probes: Tensor
    pile: Tensor
    planted_labels: Tensor
    """int64, the class of each planted image"""
    probe_labels: Tensor
    """int64, the class of each of the probes"""
    probe_votes: Tensor
    """(p, n_known), how many neighbours of each probe are labelled images of each class"""
    votes: Tensor
    """(m, n_known), the same for each image of the pile"""


def _draw(labelled: Tensor, labels: Tensor, pile: Tensor, generator: torch.Generator, *, n_probes: int) -> _Draw:
    """Plant a part of every class; put `n_probes` whole classes into the pile too."""
    classes = torch.randperm(int(labels.max()) + 1, generator=generator).to(labels.device)
    is_probe = torch.isin(labels, classes[:n_probes])
    planted = torch.zeros_like(is_probe)
    for label in classes[n_probes:].tolist():
        members = (labels == label).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=generator).to(labels.device)
        planted[members[order[: max(1, round(PLANTED * len(members)))]]] = True
    known = ~(is_probe | planted)
    if not known.any():  # one image in every class: nothing can be held out
        nothing, silent = torch.zeros(1, device=pile.device), torch.zeros(len(pile), len(classes), device=pile.device)
        return _Draw(nothing, nothing[:0], silent[:, 0], labels[:1], labels[:0], silent[:0], silent)
    points = torch.cat([labelled[known], labelled[planted], labelled[is_probe], pile])
    groups = torch.full((len(points),), -1, device=points.device)
    groups[: int(known.sum())] = labels[known]
    points = unit(points @ whitening(points, groups))
    sizes = torch.bincount(labels[known])
    count = min(MAX_NEIGHBOURS, max(3, int(sizes[sizes > 0].median()) // 2), len(points) - 1)
    near = nearest(points, count)
    of_known = (near < int(known.sum())).float().mean(1)
    # ties, of which there are many, go to the image that lies closer to its neighbours
    closeness = (
        (points[:, None] * points[near]).sum(2).mean(1) if len(points) * count * points.shape[1] < 1 << 28 else 0
    )
    score = of_known + 1e-3 * closeness
    sizes_of = [int(known.sum()), int(planted.sum()), int(is_probe.sum()), len(pile)]
    _, plants, others, free = score.split(sizes_of)
    around = groups[near]
    # the last column is that of unlabelled neighbours
    votes = torch.zeros(len(points), len(classes) + 1, device=pile.device)
    votes.scatter_add_(1, around % (len(classes) + 1), torch.ones_like(around, dtype=votes.dtype))
    _, _, of_probes, of_pile = votes[:, :-1].split(sizes_of)
    return _Draw(plants, others, free, labels[planted], labels[is_probe], of_probes, of_pile)


def _share(scores: Tensor, votes: Tensor, draw: _Draw, by_class: bool) -> float:
    """Share of images that are old: half of them score higher than the middle of the planted ones, or of those of their class.

    A class that is labelled but hardly in the pile has labelled images around its planted ones for the most part; those of
    another class, of which the pile is full, would never look as old. Where a class has few planted images all of them count.
    """
    levels = draw.planted.median().repeat(votes.shape[1])
    for label in (draw.planted_labels.bincount() >= ENOUGH).nonzero()[:, 0].tolist() if by_class else ():
        levels[label] = draw.planted[draw.planted_labels == label].median()
    return min(1.0, 2 * (scores > levels[votes.argmax(1)]).float().mean().item())


def _leak_error(draws: Sequence[_Draw], by_class: bool) -> float:
    """Standard error of the leak of one draw, from how far single classes differ."""
    leaks = []
    for draw in draws:
        for label in draw.probe_labels.unique():
            own = draw.probe_labels == label
            leaks.append(_share(draw.probes[own], draw.probe_votes[own], draw, by_class))
    if len(leaks) < 2:
        return 0.0
    return float(torch.tensor(leaks).std().item() / (len(leaks) / len(draws)) ** 0.5)


def _cut(planted: Tensor, pile: Tensor, share: float) -> float:
    """The score that tells old from new with the least sum of both error rates.

    The pile is a mixture of old images, which score like planted ones, and new ones; so its distribution and that of the
    planted give that of the new.
    """
    levels = torch.cat([planted, pile]).unique()
    missed = torch.searchsorted(planted.sort().values, levels) / len(planted)
    kept = 1 - torch.searchsorted(pile.sort().values, levels) / len(pile)
    wrong = ((kept - share * (1 - missed)) / (1 - share)).clamp(min=0)
    return float(levels[(missed + wrong).argmin()].item())


def _how_sure(draws: list[_Draw], share: float) -> tuple[float, float]:
    """The shares of right answers among images called old and among those called new, if `share` of the pile is old.

    Judged by how well planted images are separated from known classes that are put into the pile whole.
    """
    if not draws:
        return 1.0, 1.0
    pairs = [(draw, _cut(draw.planted, draw.probes, 0.0)) for draw in draws]
    missed = sum((draw.planted < cut).float().mean().item() for draw, cut in pairs) / len(draws)
    wrong = sum((draw.probes >= cut).float().mean().item() for draw, cut in pairs) / len(draws)
    old, new = share * (1 - missed), (1 - share) * (1 - wrong)
    return old / max(old + (1 - share) * wrong, 1e-6), new / max(new + share * missed, 1e-6)


def _width(draws: list[_Draw]) -> float:
    """How many units of score lie between sure and unsure when planted images and probes are separated."""
    best, chosen = torch.inf, 0.1
    for width in torch.logspace(-2, -0.3, 12).tolist():
        loss = 0.0
        for draw in draws:
            new = draw.probes if len(draw.probes) else draw.pile
            cut = _cut(draw.planted, new, 0.0)
            loss -= torch.nn.functional.logsigmoid((draw.planted - cut) / width).mean().item()
            loss -= torch.nn.functional.logsigmoid((cut - new) / width).mean().item()
        if loss < best:
            best, chosen = loss, width
    return chosen


def least_similar(points: Tensor, labels: Tensor, *, folds: int = 5, rate: float = 0.01, seed: int = 0) -> float:
    """The similarity to the nearest class that all but a share `rate` of held-out labelled images exceed.

    `points` (n, r) have length 1. Images are held out by folds, so that none helps to place the class it is compared with.
    """
    n_known = int(labels.max()) + 1
    fold = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).to(points.device) % folds
    similarities = []
    for number in range(folds):
        rest, held = fold != number, fold == number
        if rest.any() and held.any():
            means = unit(points.new_zeros(n_known, points.shape[1]).index_add_(0, labels[rest], points[rest]))
            similarities.append((points[held] @ means.T).amax(1))
    return torch.cat(similarities).quantile(rate).item() if similarities else -1.0
