"""autonovel: discover the new classes in a pile of unlabelled images, using what is known about labelled ones.

>>> import autonovel as an
>>> run = an.discover("photos/known", "photos/unknown", out="runs/birds")                # doctest: +SKIP
>>> run.summary["n_new"]                                                                # doctest: +SKIP
5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from autonovel.api.check import check
    from autonovel.api.describe import describe
    from autonovel.api.discover import cluster, discover, estimate
    from autonovel.api.run import Run, load
    from autonovel.api.tune import tune
    from autonovel.base.errors import AutonovelWarning, InputError, TrainingError
    from autonovel.data.benchmarks.splits import load_benchmark
    from autonovel.data.images import ImageSet, Truth
    from autonovel.estimator import AutoNovel
    from autonovel.maths.count.estimate import estimate_classes
    from autonovel.settings.recipe import Recipe
    from autonovel.settings.recipes import get_recipe

# Looked up on first use, so that `import autonovel` and `autonovel --help` do not wait for torch.
_HOMES = {
    "AutoNovel": "estimator",
    "check": "api.check",
    "cluster": "api.discover",
    "describe": "api.describe",
    "discover": "api.discover",
    "load_benchmark": "data.benchmarks.splits",
    "ImageSet": "data.images",
    "Truth": "data.images",
    "AutonovelWarning": "base.errors",
    "InputError": "base.errors",
    "TrainingError": "base.errors",
    "estimate": "api.discover",
    "estimate_classes": "maths.count.estimate",
    "Recipe": "settings.recipe",
    "get_recipe": "settings.recipes",
    "Run": "api.run",
    "load": "api.run",
    "tune": "api.tune",
}
__all__ = [
    "AutoNovel",
    "AutonovelWarning",
    "ImageSet",
    "InputError",
    "Recipe",
    "Run",
    "TrainingError",
    "Truth",
    "check",
    "cluster",
    "describe",
    "discover",
    "estimate",
    "estimate_classes",
    "get_recipe",
    "load",
    "load_benchmark",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autonovel' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"autonovel.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
