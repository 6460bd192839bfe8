"""Answers in the space that the known classes teach: nothing is trained, and it takes seconds.

On the features of a pre-trained network this is the whole method; after training from scratch it answers in place of the
heads, which cut a small pile in the first steps and then keep to it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autonovel.answers.census import Census, PileKind, take_census
from autonovel.answers.judge import Answers, Judge, Judged, least_of
from autonovel.base.errors import InputError, kind_found
from autonovel.maths.confidence import Calibration, fit_calibration, reliability
from autonovel.maths.count.wrong_number import number_notes
from autonovel.maths.grouping import SHARPNESS, Grouping, compose, soft_answer
from autonovel.maths.known_problems import best_groups, calibration_of_new, unvouched
from autonovel.maths.known_space import group_means, number_of_classes, unit
from autonovel.maths.mixed import OldImages
from autonovel.maths.strangers import Strangers
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net


def add_heads(net: Net, n_known: int, n_new: int) -> None:
    """Heads in that space; what was trained for the answers before goes."""
    net.drop_head("over")
    for name, outputs in (("known", n_known), ("new", n_new)):
        if outputs:
            net.add_head(name, HeadSpec("space", net.n_features, outputs, stacked=name == "new"))
    net.answering_head.zero_()


def fill_heads(net: Net, judged: Judged) -> None:
    """Have the network say what was found."""
    judge, new = judged.judge, net.heads["new"][0]  # type: ignore[index]
    assert judge.space is not None
    n_known = len(judge.centres) - len(new.centres)
    for name, head, part in (
        ("known", net.heads["known"] if n_known else None, slice(n_known)),
        ("new", new, slice(n_known, None)),
    ):
        if head is not None and name in net.heads:
            head.fill(judge.space.mean, judge.space.matrix, judge.centres[part], judged.sharpness)  # type: ignore[operator]


def answer_from_features(
    labelled: Tensor,
    labels: Tensor,
    pile: Tensor,
    n_new: int | None = None,
    *,
    pile_kind: PileKind = "auto",
    max_new: int = 100,
    check_number: bool = True,
    trained: bool = False,
    seed: int = 0,
) -> tuple[Census, Judged]:
    """Group `pile` (m, d), given `labelled` (n, d) with `labels` (n,) numbered from 0 without gaps; there may be none.

    `n_new` None counts the new classes; where it is given, `check_number` counts them all the same and says so if the number
    seems wrong. `pile_kind` says whether the pile holds images of known classes too; "auto" finds out. `trained` says that
    the features come from a network which has learned these labels.
    """
    census = take_census(labelled, labels, pile, kind=pile_kind, seed=seed)
    check_enough(census, n_new)
    if n_new is None or check_number:
        census = census.counted(max_new, seed)
    number = n_new if n_new is not None else census.estimate.n_new if census.estimate else 1
    return census, answer_in_space(census, number, trained=trained, seed=seed)


def check_enough(census: Census, n_new: int | None) -> None:
    """Refuse a pile in which too few images look new."""
    total, fresh, wanted = len(census.pile), len(census.fresh), max(2, n_new or 0)
    if total < wanted:
        raise InputError(
            f"There {'is 1 image' if total == 1 else f'are {total} images'} in the pile, too few for {wanted} classes; "
            "give more."
        )
    if fresh < wanted:
        raise InputError(
            f"{fresh} images of the pile look new, too few for {wanted} new classes; "
            "say that the pile is new, or give more images."
        )


def answer_in_space(census: Census, k: int, *, trained: bool = False, seed: int = 0) -> Judged:
    """`k` groups of the new images of a pile, the known class of each old one, and the judge of further images.

    `trained` says that the features come from a network which has learned these labels.
    """
    check_enough(census, k)
    known, labels, free, fresh, is_old = census.known, census.labels, census.pile, census.fresh, census.is_old
    n_known, estimate, notes = census.n_known, census.estimate, list(census.notes)
    trial, groups, apart = best_groups(known, labels, fresh, k, trained=trained, seed=seed)
    plain = not groups.learned
    if apart and plain:
        notes.append("Plain k-means separates the groups better here, so its groups are the answer.")
    if groups.way != "k-means":
        how = "by their neighbours" if groups.way == "neighbours" else "by a tree"
        notes.append(
            f"The classes seem to differ in size, so images are grouped {how} instead of by k-means; "
            "small clusters may be mixed, look at them first."
        )
    points, known_points = unit(free @ groups.matrix), unit(known @ groups.matrix)
    centres = torch.cat([group_means(known_points, labels, n_known), group_means(points[~is_old], groups.labels, k)])
    if estimate is not None and estimate.n_new != k:
        counted = kind_found(n_known, estimate.n_new)
        notes += number_notes(points[~is_old], groups.labels, k, estimate.n_new, kind=counted, seed=seed)
        notes += [estimate.note] if estimate.note and abs(estimate.n_new - k) > 1 else []
    notes += trial.notes
    known_calibration, known_report = _known_reliability(known_points, labels, seed)
    new_calibration, agreement = calibration_of_new(trial, fresh, groups, seed, plain=plain)
    if not trial.problems:
        notes.append(unvouched(n_known, agreement))
    rows = _joint(points, centres, groups, new_calibration, known_calibration, is_old, n_known)
    if census.old and is_old.any():
        rows = _less_sure(rows, is_old, census.old, n_known)
    place = rows.argmax(1)
    sharpness = SHARPNESS * known_calibration.power
    mixed = bool(is_old.any())
    likely = soft_answer(points, centres if mixed else centres[n_known:], sharpness)  # as further images are answered
    least = least_of(known_points, labels, points, place)
    strangers = Strangers.of(census.features, torch.cat([labels, place]), n_known + k, seed=seed)
    space = compose(census.axes, groups.matrix)
    judge = Judge(centres, least, doubt=_doubt(likely, rows), space=space, strangers=strangers)
    facts = {
        "grouping": "plain" if plain else "learned",
        "pile": "mixed" if mixed else "new",
        "known": known_report,
        "new": trial.report,
        "stability": groups.stability,
        "way": groups.way,
        "agreement": agreement,
        "known_problems": trial.scores,
        "silhouettes": apart,
    }
    return Judged(Answers.of(rows, judge.far(points)), judge, facts, tuple(notes), sharpness)


# ------------------------------------------------------------------------------------------------ probabilities


def _known_reliability(points: Tensor, labels: Tensor, seed: int) -> tuple[Calibration, dict[str, Any] | None]:
    """What a similarity to known classes means, by labelled images held out in two halves."""
    n_known = number_of_classes(labels)
    if not n_known:
        return Calibration(), None
    half = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).to(points.device) % 2 == 0
    problems = []
    for held in (half, ~half):
        means = group_means(points[~held], labels[~held], n_known)
        answer = soft_answer(points[held], means)
        problems.append((answer, answer.argmax(1) == labels[held]))
    judged = [fit_calibration([problems[1 - i]]).apply(problems[i][0]).amax(1) for i in range(2)]
    how = "labelled images held out in two halves, each judged by the other"
    report = reliability(torch.cat(judged), torch.cat([right for _, right in problems]), how)
    return fit_calibration(problems), report


def _joint(
    points: Tensor,
    centres: Tensor,
    groups: Grouping,
    new_calibration: Calibration,
    known_calibration: Calibration,
    is_old: Tensor,
    n_known: int,
) -> Tensor:
    """(m, n_known + k) probabilities: over known classes where `is_old`, over new ones elsewhere."""
    new = soft_answer(points, centres[n_known:])
    new[~is_old] = groups.votes
    new = new_calibration.apply(new)
    rows = torch.zeros(len(points), len(centres), device=points.device)
    rows[:, n_known:] = new
    if not is_old.any():
        return rows
    known = known_calibration.apply(soft_answer(points, centres[:n_known]))
    side = is_old[:, None].to(new)
    return torch.cat([side * known, (1 - side) * new], 1)


def _doubt(likely: Tensor, rows: Tensor) -> float:
    """How much to take from probabilities (m, c) of a model, so that on average it is as sure of the pile as `rows` are."""
    sure = likely.amax(1).mean().item()
    doubt = max(0.0, sure - rows.amax(1).mean().item()) / max(sure - 1 / likely.shape[1], 1e-6)
    return min(1.0, doubt)


def _less_sure(rows: Tensor, is_old: Tensor, old: OldImages, n_known: int) -> Tensor:
    """Probabilities in which an image may be of the other kind; its classes share that evenly, and none becomes the answer.

    All images of one kind are made less sure alike: how close an image lies to labelled ones tells old from new well, but is no
    probability (for new images that were recognised as new it gave about one half).
    """
    sure = torch.where(is_old, old.sure_old, old.sure_new)[:, None].to(rows).clamp(min=0.05)
    other = torch.zeros_like(rows)
    other[is_old, n_known:] = 1 / (rows.shape[1] - n_known)
    other[~is_old, :n_known] = 1 / n_known
    other = ((1 - sure) * other).clamp(max=0.999 * (sure * rows).amax(1, keepdim=True))
    rows = sure * rows + other
    return rows / rows.sum(1, keepdim=True)
