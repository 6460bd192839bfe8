"""How many new classes are there among the unlabelled points?

Four answers. `judges` are three of whom the middle one decides. `calibrated` cuts a tree over the unlabelled points where a cut
gives the right answer on probe classes, known classes that training has not seen. `paper` is Algorithm 1: k-means over probe and
unlabelled points, swept over the number of new classes; two indices choose. `silhouette` needs no labels at all.
"""

import warnings
from typing import Literal

from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.maths.count.calibrated import count_by_calibration
from autonovel.maths.count.judges import count_by_judges
from autonovel.maths.count.paper import READINGS, count_by_algorithm_1
from autonovel.maths.count.probes import (
    MIN_PROBE_CLASSES,
    Effort,
    Features,
    ProbeSet,
    RunJobs,
    as_features,
    probe_sets,
    run_in_turn,
)
from autonovel.maths.count.result import ClassEstimate, Estimator
from autonovel.maths.count.silhouette import count_by_silhouette


def estimate_classes(
    probe_features: Features,
    probe_labels: Features,
    unlabelled_features: Features,
    *,
    method: Estimator = "calibrated",
    max_new: int = 100,
    coverage: float = 0.8,
    size_range: tuple[int, int] | None = None,
    reading: Literal["text", "code"] = "text",
    anchor_share: float = 0.8,
    outlier_threshold: float = 0.01,
    effort: Effort | None = None,
    seed: int = 0,
    probe_groups: Features | None = None,
    run_jobs: RunJobs = run_in_turn,
) -> ClassEstimate:
    """Estimate the number of classes among `unlabelled_features` (n, d).

    `probe_features` (p, d) with `probe_labels` (p,) are points of known classes that did not train the features.
    `probe_groups` (p,) may say which family each probe point belongs to (the alphabet of a character, say): each
    family is then a probe set of its own, except for `judges`. Without it, probe sets are drawn from the classes at random.
    `judges` compare directions from the origin, so centre features for them.

    For `calibrated`, `coverage` is how often the interval should hold the true number, and `size_range` the smallest and the
    largest size of a class in the pile, where they are known. For `paper`, `reading` follows the paper's text or the
    authors' code, `anchor_share` is the share of the probe classes that are anchors, and clusters with fewer unlabelled points
    than `outlier_threshold`, a share of those in the largest, are not counted.

    `run_jobs` runs the independent parts of the work; several processes pass `World.share_out` to divide them.

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> centres = 9 * torch.randn(13, 8, generator=generator)
    >>> classes = torch.arange(13).repeat_interleave(30)
    >>> points = centres[classes] + torch.randn(13 * 30, 8, generator=generator)
    >>> known = classes < 8
    >>> estimate_classes(points[known], classes[known], points[~known], max_new=20, method="silhouette").n_new
    5
    """
    effort = effort or Effort()
    pile = as_features(unlabelled_features, "Unlabelled features")
    if method not in ("judges", "calibrated", "paper", "silhouette"):
        raise InputError(f"There is no estimator {method!r}; choose judges, calibrated, paper or silhouette.")
    if reading not in READINGS:
        raise InputError(f"There is no reading {reading!r} of the paper; choose text or code.")
    if max_new < 2:
        raise InputError(f"The largest number of new classes to consider must be at least 2, not {max_new}.")
    if method == "judges":
        known = (probe_sets(probe_features, probe_labels, None, pile) or [ProbeSet.none(pile)])[0]
        return count_by_judges(known.features, known.labels, pile, max_new, seed, effort=effort)
    if len(pile) < 3:
        raise InputError(f"{len(pile)} unlabelled points are too few to look for classes; give at least 3.")
    if method == "silhouette":
        return count_by_silhouette(pile, max_new, seed, effort=effort, run_jobs=run_jobs)
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
        return count_by_silhouette(pile, max_new, seed, effort=effort, run_jobs=run_jobs)
    grouped = len(usable) > 1
    if method == "calibrated":
        return count_by_calibration(
            usable, pile, max_new, seed,
            coverage=coverage, size_range=size_range, grouped=grouped, effort=effort, run_jobs=run_jobs,
        )  # fmt: skip
    return count_by_algorithm_1(
        usable, pile, max_new, seed,
        reading=READINGS[reading], anchor_share=anchor_share, outlier_threshold=outlier_threshold,
        grouped=grouped, effort=effort, run_jobs=run_jobs,
    )  # fmt: skip
