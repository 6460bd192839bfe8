"""A tree that known classes have calibrated counts the classes of piles of any size."""

import dataclasses
import math

import pytest

from autonovel.maths.count.class_estimate import probe_sets
from autonovel.maths.count.count_by_tree import calibrate_tree, count_by_tree
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.portrait import portray
from tests.maths.planted import QUICK, classes, planted


def test_one_calibration_serves_many_piles_and_knows_about_sizes() -> None:
    features, labels, _ = planted(14, 2)
    probes = probe_sets(features, labels, None, features)
    known_law = dataclasses.replace(QUICK, size_range=(5, 9))
    calibration = calibrate_tree(probes, settings=known_law, grouped=False)
    for n in (6, 11):
        pile, _ = classes(n, per_class=7, seed=n)
        assert abs(count_by_tree(calibration, pile, settings=known_law).n_new - n) <= 1
    guess = calibrate_tree(probes, settings=QUICK, grouped=False)
    few, many = (guess.log_size(portray(classes(10, per_class=m, seed=3)[0])) for m in (6, 24))
    assert few < many
    assert abs(math.exp(few) - 6) < 4
    assert abs(math.exp(many) - 24) < 9
    belief = guess.size_belief(portray(classes(10, per_class=12, seed=3)[0]))
    assert belief.sum() == pytest.approx(1)


def test_large_piles_are_put_together_or_sampled() -> None:
    pile, _ = classes(8, per_class=120, seed=5)
    for per_class, together in ((60, True), (10, False)):  # small known classes cannot be put together any further
        features, labels, _ = planted(10, 2, per_class=per_class)
        settings = dataclasses.replace(QUICK, tree_points=300)
        probes = probe_sets(features, labels, None, pile)
        ratio = 3.2 if together else 1.0
        calibration = calibrate_tree(probes, settings=settings, grouped=False, ratio=ratio)
        assert max(problem.portrait.n for problem in calibration.problems) <= 300
        direct = count_by_tree(calibration, pile, max_new=20, settings=settings)
        found = estimate_classes(features, labels, pile, max_new=20, settings=settings)
        assert found.n_new == direct.n_new or not together
        assert abs(found.n_new - 8) <= (0 if together else 2)
