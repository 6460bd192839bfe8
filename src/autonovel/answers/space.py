"""From features to answers in one call: which images are old, how many new classes there are, which image is in which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from autonovel.base.errors import InputError, kind_found, option
from autonovel.maths.confidence import Calibration, fit_calibration, reliability
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.count.wrong_number import number_notes
from autonovel.maths.grouping import SHARPNESS, Grouping, are_clearer, compose, group_pile, how_apart, soft_answer
from autonovel.maths.known_problems import Trial, calibration_of_new, try_on_known, unvouched
from autonovel.maths.known_space import Space, group_means, number_of_classes, principal_axes, unit
from autonovel.maths.mixed import OldImages, find_old, least_similar
from autonovel.maths.points import check_features

PileKind: TypeAlias = Literal["new", "mixed", "auto"]
Method: TypeAlias = Literal["learned", "plain"]


@dataclass(frozen=True)
class FeatureModel:
    """Answers for new images from their features: one affine map, unit length, one product, a softmax."""

    space: Space
    centres: Tensor
    """(n_known + n_new, components), of length 1: known classes first."""
    n_known: int
    sharpness: float
    doubt: float
    least_similar: float
    """An image less similar than this to every class is unlike anything seen."""

    def probabilities(self, features: Tensor) -> Tensor:
        """(n, n_known + n_new)"""
        likely = (self.sharpness * self.space.transform(features) @ self.centres.T).softmax(1)
        return (1 - self.doubt) * likely + self.doubt / len(self.centres)

    def unlike(self, features: Tensor) -> Tensor:
        """bool (n,)"""
        return (self.space.transform(features) @ self.centres.T).amax(1) < self.least_similar

    def tensors(self) -> dict[str, Tensor]:
        """All of it as tensors, to be stored."""
        numbers = torch.tensor(
            [float(self.n_known), self.sharpness, self.doubt, self.least_similar], dtype=torch.float64
        )
        return {"mean": self.space.mean, "matrix": self.space.matrix, "centres": self.centres, "numbers": numbers}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> FeatureModel:
        """The model that `tensors` came from."""
        n_known, sharpness, doubt, least = tensors["numbers"].tolist()
        space = Space(tensors["mean"], tensors["matrix"])
        return cls(space, tensors["centres"], int(n_known), sharpness, doubt, least)


@dataclass(frozen=True)
class FeatureAnswer:
    """What was found in a pile."""

    n_new: int
    count: ClassEstimate | None
    """How the number was counted; None where it was given and nothing was said against it."""
    labels: Tensor
    """int64 (m,): the class of each image, known classes first; new classes are numbered from n_known."""
    probabilities: Tensor
    """(m, n_known + n_new), rows sum to 1 and are largest at the label."""
    is_old: Tensor
    """bool (m,): the image belongs to a known class."""
    unlike: Tensor
    """bool (m,): the image is like nothing seen."""
    model: FeatureModel
    method: Method
    """Whether the groups rest on what the known classes teach, or are those of plain k-means, which did better on them."""
    notes: tuple[str, ...]
    """Sentences for a person."""
    how_sure: dict[str, Any]
    """Reliability of the probabilities, stability of the groups, and what known problems gave; ready for JSON."""


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
) -> FeatureAnswer:
    """Group `pile` (m, d), given `labelled` (n, d) with `labels` (n,) numbered from 0 without gaps; there may be none.

    `n_new` None counts the new classes; where it is given, `check_number` counts them all the same and says so if the number
    seems wrong. `pile_kind` says whether the pile holds images of known classes too; "auto" finds out. `trained` says that
    the features come from a network which has learned these labels.
    """
    labels = _checked(labelled, labels, pile, pile_kind)
    n_known = number_of_classes(labels)
    axes = principal_axes(torch.cat([labelled, pile]))
    known, free = (((unit(part.float()) - axes.mean) @ axes.matrix) for part in (labelled, pile))
    notes: list[str] = []
    old = find_old(known, labels, free, seed=seed) if n_known and pile_kind != "new" else None
    is_old = old.is_old if old and (old.mixed or pile_kind == "mixed") else torch.zeros(len(free), dtype=torch.bool)
    is_old = is_old.to(free.device)
    if old and pile_kind == "auto":
        notes.append(old.sentence())
    fresh = free[~is_old]
    if len(fresh) < max(2, n_new or 0):
        raise InputError(
            f"{len(fresh)} images of the pile look new, too few for {n_new or 2} new classes; "
            f"give {option('pile', 'new')} if all of them are, or more images."
        )
    count = None
    if n_new is None or check_number:
        count = estimate_classes(known, labels, fresh, method="judges", max_new=max_new, seed=seed)
    k = n_new if n_new is not None else count.n_new if count else 1
    trial = try_on_known(known, labels, k, seed, tree=not trained)
    groups, method, apart = _groups(known, labels, fresh, k, trial, trained=trained, seed=seed)
    if apart and method == "plain":
        notes.append("Plain k-means separates the groups better here, so its groups are the answer.")
    if groups.way != "k-means":
        how = "by their neighbours" if groups.way == "neighbours" else "by a tree"
        notes.append(
            f"The classes seem to differ in size, so images are grouped {how} instead of by k-means; "
            "small clusters may be mixed, look at them first."
        )
    space = compose(axes, groups.matrix)
    points, known_points = unit(free @ groups.matrix), unit(known @ groups.matrix)
    centres = torch.cat([group_means(known_points, labels, n_known), group_means(points[~is_old], groups.labels, k)])
    if n_new is not None and count is not None:
        found = kind_found(n_known, count.n_new)
        notes += number_notes(points[~is_old], groups.labels, k, count.n_new, found=found, seed=seed)
    if count is not None and (n_new is None or abs(count.n_new - n_new) > 1):
        notes += [count.note] if count.note else []
    notes += trial.notes
    known_calibration, known_report = _known_reliability(known_points, labels, seed)
    new_calibration, agreement = calibration_of_new(trial, fresh, groups, seed, plain=method == "plain")
    if not trial.problems:
        notes.append(unvouched(n_known, agreement))
    rows = _joint(points, centres, groups, new_calibration, known_calibration, is_old, n_known)
    if old and is_old.any():
        rows = _less_sure(rows, is_old, old, n_known)
    least = least_similar(*((known_points, labels) if n_known else (points, groups.labels)), seed=seed)
    sharpness = SHARPNESS * known_calibration.power
    doubt = _doubt(soft_answer(points, centres, sharpness), rows)
    model = FeatureModel(space, centres, n_known, sharpness, doubt, least)
    unlike = (points @ centres.T).amax(1) < least
    how_sure = {
        "known": known_report,
        "new": trial.report,
        "stability": groups.stability,
        "way": groups.way,
        "agreement": agreement,
        "known_problems": trial.scores,
        "silhouettes": apart,
    }
    return FeatureAnswer(k, count, rows.argmax(1), rows, is_old, unlike, model, method, tuple(notes), how_sure)


def _groups(
    known: Tensor, labels: Tensor, fresh: Tensor, k: int, trial: Trial, *, trained: bool, seed: int
) -> tuple[Grouping, Method, dict[str, float]]:
    """The groups of `fresh`, what they rest on, and the silhouettes that decided it where the known classes could not."""
    groups = group_pile(known, labels, fresh, k, plain=trial.plain, tree=not trained, seed=seed)
    if trial.plain or not trained:
        return groups, "plain" if trial.plain else "learned", {}
    # known classes that were learned are found either way, and decide nothing
    plain = group_pile(known, labels, fresh, k, plain=True, seed=seed)
    if groups.way == "neighbours" and are_clearer(fresh, groups, plain):
        return groups, "learned", {}
    apart = how_apart(fresh, groups, plain, seed=seed)
    return (plain, "plain", apart) if apart["plain"] > apart["learned"] else (groups, "learned", apart)


def _checked(labelled: Tensor, labels: Tensor, pile: Tensor, pile_kind: str) -> Tensor:
    if len(labelled):
        check_features(labelled, "Features of labelled images")
    check_features(pile, "Features of the pile")
    if labelled.shape[1] != pile.shape[1]:
        raise InputError(
            f"Labelled images have {labelled.shape[1]} features and the pile {pile.shape[1]}; they must be the same."
        )
    if pile_kind not in ("new", "mixed", "auto"):
        raise InputError(f"There is no kind of pile {pile_kind!r}; choose new, mixed or auto.")
    if labels.shape != (len(labelled),) or labels.is_floating_point():
        raise InputError(f"Labels must be {len(labelled)} integers, one for each labelled image.")
    labels = labels.to(pile.device, torch.int64)
    if (labels < 0).any() or (torch.bincount(labels) == 0).any():
        raise InputError("Known classes must be numbered 0, 1, 2, ... without a gap.")
    return labels


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
