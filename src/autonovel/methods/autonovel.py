"""The paper's method as a plan: a representation, the number of new classes, the known classes, known and new together."""

from __future__ import annotations

from autonovel.base.errors import InputError, option
from autonovel.discovery.plan import ESTIMATE, Stage
from autonovel.methods.similarity import Similarity
from autonovel.methods.supervised import KnownClasses
from autonovel.settings.recipe import Recipe
from autonovel.settings.registry import home_of


def first_stages(recipe: Recipe, n_known: int) -> list[Stage]:
    """All stages up to the known classes."""
    pretrain = home_of(recipe.pretrain)
    stages = [] if pretrain is None or not recipe.pretrain.epochs else [Stage("pretrain", pretrain)]
    stages.append(ESTIMATE)
    if n_known and recipe.supervised.epochs:
        stages.append(Stage("supervised", KnownClasses))
    return stages


def plan(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, then joint training."""
    objective = home_of(recipe.joint)
    if objective is None:
        raise InputError(
            f"{option('joint.objective', 'none')} leaves nothing that finds new classes; add {option('method', 'scratch')}, "
            "which groups what the stages before have learned, or choose another objective."
        )
    if getattr(recipe.joint, "pairs", "") == "learned":
        return [*with_similarity(recipe, n_known), Stage("joint", objective)]
    return [*first_stages(recipe, n_known), Stage("joint", objective)]


def with_similarity(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, and one that learns on known classes which images are alike."""
    if not n_known:
        raise InputError(
            "Which images are alike is learned from known classes, and there are none; choose another "
            f"{option('method')} or {option('joint.pairs')}."
        )
    return [*first_stages(recipe, n_known), Stage("similarity", Similarity)]
