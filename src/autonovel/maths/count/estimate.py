"""How many new classes are there among the unlabelled points?

Three answers. `calibrated` cuts a tree over the unlabelled points where a cut gives the right answer on probe classes,
known classes that training has not seen. `paper` is Algorithm 1: k-means over probe and unlabelled points, swept over the
number of new classes; two indices choose. `silhouette` needs no labels at all.
"""

import warnings

from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.maths.count.algorithm_1 import count_by_algorithm_1
from autonovel.maths.count.best_silhouette import count_by_silhouette
from autonovel.maths.count.class_estimate import (
    MIN_PROBE_CLASSES,
    ClassEstimate,
    Estimator,
    Features,
    RunJobs,
    as_features,
    probe_sets,
    run_in_turn,
)
from autonovel.maths.count.count_by_tree import count_by_calibration
from autonovel.settings.recipe import Estimate

__all__ = ["MIN_PROBE_CLASSES", "ClassEstimate", "estimate_classes"]


def estimate_classes(
    probe_features: Features,
    probe_labels: Features,
    unlabelled_features: Features,
    *,
    max_new: int = 100,
    method: Estimator = "calibrated",
    settings: Estimate | None = None,
    seed: int = 0,
    probe_groups: Features | None = None,
    run_jobs: RunJobs = run_in_turn,
) -> ClassEstimate:
    """Estimate the number of classes among `unlabelled_features` (n, d).

    `probe_features` (p, d) with `probe_labels` (p,) are points of known classes that did not train the features.
    `probe_groups` (p,) may say which family each probe point belongs to (the alphabet of a character, say): each
    family is then a probe set of its own. Without it, probe sets are drawn from the classes at random. `run_jobs` runs
    the independent parts of the work; several processes pass `World.share_out` to divide them.

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> centres = 9 * torch.randn(13, 8, generator=generator)
    >>> classes = torch.arange(13).repeat_interleave(30)
    >>> points = centres[classes] + torch.randn(13 * 30, 8, generator=generator)
    >>> known = classes < 8
    >>> estimate_classes(points[known], classes[known], points[~known], max_new=20, method="silhouette").n_new
    5
    """
    settings = Estimate() if settings is None else settings
    pile = as_features(unlabelled_features, "Unlabelled features")
    if method not in ("calibrated", "paper", "silhouette"):
        raise InputError(f"There is no estimator {method!r}; choose calibrated, paper or silhouette.")
    if max_new < 2:
        raise InputError(f"The largest number of new classes to consider must be at least 2, not {max_new}.")
    if len(pile) < 3:
        raise InputError(f"{len(pile)} unlabelled points are too few to look for classes; give at least 3.")
    if method == "silhouette":
        return count_by_silhouette(pile, max_new, settings, seed, run_jobs=run_jobs)
    probes = probe_sets(probe_features, probe_labels, probe_groups, pile)
    usable = [probe for probe in probes if probe.n_classes >= MIN_PROBE_CLASSES]
    if not usable:
        most = max((probe.n_classes for probe in probes), default=0)
        warnings.warn(
            f"{most} probe classes are too few to estimate the number of new classes with, so the silhouette alone "
            f"decides; hold at least {MIN_PROBE_CLASSES} known classes out of training.",
            AutonovelWarning,
            stacklevel=2,
        )
        return count_by_silhouette(pile, max_new, settings, seed, run_jobs=run_jobs)
    count = count_by_algorithm_1 if method == "paper" else count_by_calibration
    return count(usable, pile, max_new, settings, seed, grouped=len(usable) > 1, run_jobs=run_jobs)
