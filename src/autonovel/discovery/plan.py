"""A run as data: the stages that a method consists of, in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autonovel.base.errors import InputError, did_you_mean, option
from autonovel.settings.recipe import Recipe
from autonovel.settings.registry import METHODS, home_of

if TYPE_CHECKING:
    from autonovel.methods.base import Method


@dataclass(frozen=True)
class Stage:
    """One step of the plan.

    Attributes:
        name: of its weights file, its metrics and, where it has one, its part of the recipe.
        method: what is learned; None where no steps are taken.
        fill: what takes no steps and fills the heads that answer: groups in the ``space`` that the known classes teach, or
            centres by ``kmeans``. A stage that neither learns nor fills is the estimate of the number of new classes.
    """

    name: str
    method: type[Method] | None = None
    fill: Literal["space", "kmeans"] | None = None

    @property
    def needs_number(self) -> bool:
        """Whether the number of new classes must be known."""
        return self.fill is not None or (self.method is not None and self.method.needs_number)


ESTIMATE = Stage("estimate")
"""Where the number of new classes is estimated, if it is not given. Stages before it must not see the probe classes."""

SPACE = Stage("features", fill="space")
"""Groups of the pile in the space that the known classes teach."""


def plan(recipe: Recipe, n_known: int) -> list[Stage]:
    """The stages of the recipe's method, for this many known classes."""
    if recipe.method not in METHODS:
        hint = did_you_mean(recipe.method, METHODS)
        raise InputError(f"{option('method')} is '{recipe.method}'; choose one of {', '.join(METHODS)}{hint}.")
    return _PLANS[recipe.method](recipe, n_known)


def _first_stages(recipe: Recipe, n_known: int) -> list[Stage]:
    """All stages up to the known classes."""
    from autonovel.methods.supervised import KnownClasses

    pretrain = home_of(recipe.pretrain)
    stages = [] if pretrain is None or not recipe.pretrain.epochs else [Stage("pretrain", pretrain)]
    stages.append(ESTIMATE)
    if n_known and recipe.supervised.epochs:
        stages.append(Stage("supervised", KnownClasses))
    return stages


def _with_similarity(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, and one that learns on known classes which images are alike."""
    from autonovel.methods.similarity import Similarity

    if not n_known:
        raise InputError(
            "Which images are alike is learned from known classes, and there are none; choose another "
            f"{option('method')} or {option('joint.pairs')}."
        )
    return [*_first_stages(recipe, n_known), Stage("similarity", Similarity)]


def _joint(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, then joint training: the paper's method."""
    objective = home_of(recipe.joint)
    if objective is None:
        raise InputError(
            f"{option('joint.objective', 'none')} leaves nothing that finds new classes; add {option('method', 'scratch')}, "
            "which groups what the stages before have learned, or choose another objective."
        )
    if getattr(recipe.joint, "pairs", "") == "learned":
        return [*_with_similarity(recipe, n_known), Stage("joint", objective)]
    return [*_first_stages(recipe, n_known), Stage("joint", objective)]


def _after_training(recipe: Recipe, n_known: int) -> list[Stage]:
    """Trained on these images, answered in the space.

    An objective that makes no clusters learns the known classes itself and need not know the number of new ones, which is then
    estimated from what it has learned. Without an objective the first stages are all.
    """
    if home_of(recipe.joint) is None:
        first = _first_stages(recipe, n_known)
        if first == [ESTIMATE]:
            raise InputError(
                f"With {option('joint.objective', 'none')} nothing would be learned from these images: stages "
                f"pretrain and supervised are left out too ({option('pretrain.method')}, {option('pretrain.epochs')}, "
                f"{option('supervised.epochs')}). Switch one of them on, or choose an objective."
            )
        return [*first, SPACE]
    stages = _joint(recipe, n_known)
    joint = stages[-1]
    return [*stages, SPACE] if joint.needs_number else [*before_estimate(stages), joint, ESTIMATE, SPACE]


def _kmeans(recipe: Recipe, n_known: int) -> list[Stage]:
    return _with_classifier([*_first_stages(recipe, n_known), Stage("kmeans", fill="kmeans")], recipe, n_known)


def _dtc(recipe: Recipe, n_known: int) -> list[Stage]:
    from autonovel.methods.dtc import DTC

    return _with_classifier([*_first_stages(recipe, n_known), Stage("dtc", DTC)], recipe, n_known)


def _kcl(recipe: Recipe, n_known: int) -> list[Stage]:
    from autonovel.methods.paired import KCL

    return _with_classifier([*_with_similarity(recipe, n_known), Stage("kcl", KCL)], recipe, n_known)


def _mcl(recipe: Recipe, n_known: int) -> list[Stage]:
    from autonovel.methods.paired import MCL

    return _with_classifier([*_with_similarity(recipe, n_known), Stage("mcl", MCL)], recipe, n_known)


def _with_classifier(stages: list[Stage], recipe: Recipe, n_known: int) -> list[Stage]:
    """The stages, and one that learns known and new classes together where that is asked for."""
    from autonovel.methods.classifier import LinearClassifier

    return [*stages, Stage("classifier", LinearClassifier)] if recipe.incremental and n_known else stages


_PLANS: Mapping[str, Callable[[Recipe, int], list[Stage]]] = {
    "auto": _joint,
    "autonovel": _joint,
    "features": lambda recipe, n_known: [ESTIMATE, SPACE],
    "scratch": _after_training,
    "kmeans": _kmeans,
    "kcl": _kcl,
    "mcl": _mcl,
    "dtc": _dtc,
}


def before_estimate(stages: Sequence[Stage]) -> Sequence[Stage]:
    """The stages whose features the estimate starts from."""
    return stages[: stages.index(ESTIMATE)] if ESTIMATE in stages else stages


def seen_before_estimate(stages: Sequence[Stage]) -> str | None:
    """What the features that the estimate starts from have seen: 'images', 'labels', or None where nothing is learned."""
    seen = [stage.method.sees for stage in before_estimate(stages) if stage.method is not None]
    return None if not seen else "images" if all(kind == "images" for kind in seen) else "labels"
