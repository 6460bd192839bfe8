"""A pile too large to be looked at as a whole: what a sample of it teaches, checked by a second sample, answers for every row.

Everything here happens in the principal axes of all images, which are exact (:class:`autonovel.maths.known_space.Sums`). A judge
made from a sample answers for the pile as it answers for further images: by the nearest middle of a class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autonovel.answers.census import Census, PileKind
from autonovel.answers.judge import Answers, Judged
from autonovel.answers.space import answer_in_space, check_enough
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import Space, group_means, unit
from autonovel.maths.mixed import find_old
from autonovel.maths.rare import rare_groups
from autonovel.models.net import Scores

SAMPLE = 20_000
"""Images of a large pile that are grouped; a class of one in a thousand has twenty of them, of which a middle can be told."""
LABELLED = 20_000
"""Labelled images that teach, an even share of each class."""
LOOKED_AT = 200_000
"""Images among which classes are looked for that the sample misses; a class of one in ten thousand has twenty of them."""
MAX_NEW = 100


@dataclass(frozen=True)
class Learned:
    """What a sample teaches.

    Attributes:
        judged: the answers for the sample, and the judge of everything else.
        census: of the sample.
    """

    judged: Judged
    census: Census

    @property
    def mixed(self) -> bool:
        """Whether an answer may be a known class."""
        return bool(self.judged.facts["pile"] == "mixed")

    def answers(self, points: Tensor) -> Answers:
        """For rows (n, r) in the principal axes of the pile."""
        return self.judged.judge.answers(scores_of(self.judged, points, self.census.n_known), mixed=self.mixed)

    def similar(self, points: Tensor) -> Tensor:
        """(n,): how similar rows in the principal axes are to the nearest class."""
        judge = self.judged.judge
        assert judge.space is not None
        return (judge.space.transform(points) @ judge.centres.T).amax(1)


def look(known: Tensor, labels: Tensor, sample: Tensor, n_new: int | None, *, kind: PileKind, seed: int = 0) -> Census:
    """The census of a `sample` (m, r) of the pile, given labelled images (n, r), all in the principal axes of the pile.

    New classes are counted unless their number `n_new` is given.
    """
    width = sample.shape[1]
    old = find_old(known, labels, sample, seed=seed) if len(known) and kind != "new" else None
    whole = Space(torch.zeros(width), torch.eye(width))
    census = Census(whole, known, labels, sample, kind, old, torch.cat([known, sample]))
    check_enough(census, n_new)
    return census if n_new is not None else census.counted(MAX_NEW, seed)


def number_of(first: Census, second: Census) -> ClassEstimate | None:
    """How many new classes two samples of a pile show, if they were counted.

    The larger number counts, since classes of different sizes are counted too low; the interval holds those of both. Where only
    one of them seems to hold images of known classes, they counted different things, and the first is believed.
    """
    ours, theirs = first.estimate, second.estimate
    if ours is None or theirs is None or first.mixed != second.mixed:
        return ours
    assert ours.interval is not None
    assert theirs.interval is not None
    between = min(ours.interval[0], theirs.interval[0]), max(ours.interval[1], theirs.interval[1])
    larger = max(ours, theirs, key=lambda estimate: estimate.n_new)
    return replace(larger, interval=between, answers=ours.answers + theirs.answers)


def learn(census: Census, n_new: int, *, seed: int = 0) -> Learned:
    """What a sample of the pile teaches that is to have `n_new` new classes."""
    return Learned(answer_in_space(census, n_new, seed=seed), census)


def scores_of(judged: Judged, features: Tensor, n_known: int) -> Scores:
    """What the nearest centres say of features, as a network would."""
    assert judged.judge.space is not None
    joint = judged.sharpness * judged.judge.space.transform(features) @ judged.judge.centres.T
    return Scores(features, joint, joint[:, n_known:])


def even_share(labels: Tensor, most: int, seed: int = 0) -> Tensor:
    """int64: rows of at most `most` labelled images, as many of each class as that allows, in their order."""
    if len(labels) <= most:
        return torch.arange(len(labels))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    sizes = torch.bincount(labels)
    each = int(sizes.max())
    while int(sizes.clamp(max=each).sum()) > most:
        each = min(each - 1, int(each * 0.95))
    place = torch.empty_like(labels)
    for label in range(len(sizes)):
        members = order[labels[order] == label]
        place[members] = torch.arange(len(members))
    return (place < max(1, each)).nonzero()[:, 0]


def agreement(first: Learned, second: Learned, points: Tensor) -> float:
    """The share of rows of which what two samples taught says the same, new classes matched as well as they can be."""
    from scipy.optimize import linear_sum_assignment

    n_known = first.census.n_known
    ours, theirs = (learned.answers(points).place for learned in (first, second))
    both_old = (ours < n_known) & (ours == theirs)
    new = (ours >= n_known) & (theirs >= n_known)
    table = np.zeros((ours.max() + 1, theirs.max() + 1), np.int64)
    np.add.at(table, (ours[new], theirs[new]), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float((both_old.sum() + table[rows, columns].sum()) / len(points))


def with_rare(learned: Learned, rows: Tensor) -> tuple[Learned, int]:
    """The same with the classes that `rows` (n, r) of the pile show and the sample did not; and how many these are."""
    judge, n_known = learned.judged.judge, learned.census.n_known
    assert judge.space is not None
    points, classes = judge.space.transform(rows), judge.centres if learned.mixed else judge.centres[n_known:]
    centres = rare_groups(points, classes)
    if not len(centres):
        return learned, 0
    known = judge.strangers
    if known is not None:  # whose middles are in the axes themselves
        nearest = (points @ torch.cat([classes, centres]).T).argmax(1) - len(classes)
        more = group_means(unit(rows[nearest >= 0]), nearest[nearest >= 0], len(centres))
        known = replace(known, centres=torch.cat([known.centres, more]))
    judge = replace(judge, centres=torch.cat([judge.centres, centres]), strangers=known)
    return replace(learned, judged=learned.judged._replace(judge=judge)), len(centres)


def facts_of(first: Learned, second: Learned, agree: float, rows: int, rare: int) -> dict[str, Any]:
    """How the pile was looked at, for the summary."""
    numbers = [c.census.estimate.n_new for c in (first, second) if c.census.estimate is not None]
    return {"rows": rows, "labelled": len(first.census.known), "agreement": agree, "numbers": numbers, "rare": rare}
