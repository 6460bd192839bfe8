"""A run as data: the stages that a method consists of, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autonovel.settings.recipe import Recipe
from autonovel.settings.registry import plan_of

if TYPE_CHECKING:
    from autonovel.methods.base import Method


@dataclass(frozen=True)
class Stage:
    """One step of the plan.

    Attributes:
        name: of its weights file, its metrics and, where it has one, its part of the recipe.
        method: what is learned; None for the estimate of the number of new classes.
    """

    name: str
    method: type[Method] | None


ESTIMATE = Stage("estimate", None)
"""Where the number of new classes is estimated, if it is not given. Stages before it must not see the probe classes."""


def plan(recipe: Recipe, n_known: int) -> list[Stage]:
    """The stages of the recipe's method, for this many known classes."""
    stages: list[Stage] = plan_of(recipe.method)(recipe, n_known)
    return stages


def numbered(name: str, network: int) -> str:
    """The name of a stage for the first, second, ... network: 'joint', 'joint-2', ..."""
    return name if network == 1 else f"{name}-{network}"


def before_estimate(stages: Sequence[Stage]) -> Sequence[Stage]:
    """The stages whose features the estimate starts from."""
    return stages[: stages.index(ESTIMATE)] if ESTIMATE in stages else stages


def seen_before_estimate(stages: Sequence[Stage]) -> str | None:
    """What the features that the estimate starts from have seen: 'images', 'labels', or None where nothing is learned."""
    seen = [stage.method.sees for stage in before_estimate(stages) if stage.method is not None]
    return None if not seen else "images" if all(kind == "images" for kind in seen) else "labels"
