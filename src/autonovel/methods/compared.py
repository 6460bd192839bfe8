"""The methods that the paper compares, as plans: the first stages, then clusters of the pile alone."""

from __future__ import annotations

from autonovel.discovery.plan import Stage
from autonovel.methods.autonovel import first_stages, with_similarity
from autonovel.methods.classifier import Classifier
from autonovel.methods.dtc import DTC
from autonovel.methods.paired import KCL, MCL
from autonovel.settings.recipe import Recipe

CLASSIFIER = Stage("classifier", Classifier)


def dtc(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, then deep transfer clustering."""
    return with_classifier([*first_stages(recipe, n_known), Stage("dtc", DTC)], recipe, n_known)


def kcl(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, then the similarity network, then clusters from its pair labels."""
    return with_classifier([*with_similarity(recipe, n_known), Stage("kcl", KCL)], recipe, n_known)


def mcl(recipe: Recipe, n_known: int) -> list[Stage]:
    """The same with another loss."""
    return with_classifier([*with_similarity(recipe, n_known), Stage("mcl", MCL)], recipe, n_known)


def with_classifier(stages: list[Stage], recipe: Recipe, n_known: int) -> list[Stage]:
    """The stages, and one that learns known and new classes together where that is asked for."""
    return [*stages, CLASSIFIER] if recipe.incremental and n_known else stages
