"""Methods and networks of the tests' tiny recipes."""

import numpy as np

from autonovel.methods.base import Method, Task
from autonovel.methods.supervised import KnownClasses
from autonovel.settings.recipe import Recipe
from autonovel.settings.registry import home_of


def pretraining(recipe: Recipe, families: list[int] | None = None) -> Method:
    """The method of the recipe's first stage, for classes of these families."""
    task = Task(recipe, families=None if families is None else np.array(families))
    return home_of(recipe.pretrain)(task)


def known_classes(recipe: Recipe, n_known: int) -> Method:
    """The method of the stage that learns the known classes."""
    return KnownClasses(Task(recipe, n_known))


def joint_method(recipe: Recipe, n_known: int, n_new: int) -> Method:
    """The method of joint training."""
    return home_of(recipe.joint)(Task(recipe, n_known, n_new))
