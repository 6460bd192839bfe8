"""What a pile is, seen once when features are final: its axes, old images and new ones, how many classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import Space, number_of_classes, principal_axes, unit
from autonovel.maths.mixed import OldImages, find_old
from autonovel.maths.points import check_features

PileKind: TypeAlias = Literal["new", "mixed", "auto"]


@dataclass(frozen=True)
class Census:
    """Everything about a pile that does not depend on how it is grouped.

    Attributes:
        axes: the principal axes of labelled images and pile together.
        known: (n, r) the labelled images in them.
        labels: int64 (n,), their classes.
        pile: (m, r) the unlabelled images.
        kind: what was said of the pile.
        old: which of them are of known classes; None where nothing is known, or all were said to be new.
        features: (n + m, d), of labelled and unlabelled images, as they were.
        estimate: the number of new classes; None where it was not counted.
    """

    axes: Space
    known: Tensor
    labels: Tensor
    pile: Tensor
    kind: PileKind
    old: OldImages | None
    features: Tensor
    estimate: ClassEstimate | None = None

    @property
    def n_known(self) -> int:
        """How many classes are known."""
        return number_of_classes(self.labels)

    @property
    def mixed(self) -> bool:
        """Whether the pile holds images of known classes, as was said or as it seems."""
        return self.old is not None and (self.old.mixed or self.kind == "mixed")

    @property
    def is_old(self) -> Tensor:
        """bool (m,): images of known classes."""
        if self.old is None or not self.mixed:
            return torch.zeros(len(self.pile), dtype=torch.bool, device=self.pile.device)
        return self.old.is_old.to(self.pile.device)

    @property
    def fresh(self) -> Tensor:
        """The unlabelled images of new classes."""
        return self.pile[~self.is_old]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided of the pile, for a person."""
        return () if self.old is None or self.kind != "auto" else (self.old.sentence(),)

    def counted(self, max_new: int, seed: int) -> Census:
        """The same with the number of new classes, as three judges count them."""
        estimate = estimate_classes(self.known, self.labels, self.fresh, method="judges", max_new=max_new, seed=seed)
        return replace(self, estimate=replace(estimate, known=self.n_known > 0))


def take_census(labelled: Tensor, labels: Tensor, pile: Tensor, *, kind: PileKind = "auto", seed: int = 0) -> Census:
    """The census of `pile` (m, d), given features `labelled` (n, d) of `labels` (n,), numbered from 0; there may be none.

    `kind` says whether the pile holds images of known classes too; "auto" finds out.
    """
    labels = _checked(labelled, labels, pile, kind)
    features = torch.cat([labelled, pile])
    axes = principal_axes(features)
    known, free = (((unit(part.float()) - axes.mean) @ axes.matrix) for part in (labelled, pile))
    old = find_old(known, labels, free, seed=seed) if len(known) and kind != "new" else None
    return Census(axes, known, labels, free, kind, old, features)


def _checked(labelled: Tensor, labels: Tensor, pile: Tensor, kind: str) -> Tensor:
    if len(labelled):
        check_features(labelled, "Features of labelled images")
    check_features(pile, "Features of the pile")
    if labelled.shape[1] != pile.shape[1]:
        raise InputError(
            f"Labelled images have {labelled.shape[1]} features and the pile {pile.shape[1]}; they must be the same."
        )
    if kind not in ("new", "mixed", "auto"):
        raise InputError(f"There is no kind of pile {kind!r}; choose new, mixed or auto.")
    if labels.shape != (len(labelled),) or labels.is_floating_point():
        raise InputError(f"Labels must be {len(labelled)} integers, one for each labelled image.")
    labels = labels.to(pile.device, torch.int64)
    if (labels < 0).any() or (torch.bincount(labels) == 0).any():
        raise InputError("Known classes must be numbered 0, 1, 2, ... without a gap.")
    return labels
