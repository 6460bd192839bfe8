"""A tree that known classes have calibrated: piles of any size are counted, and the interval is as wide as it has to be."""

import dataclasses
import math

import numpy as np
import pytest

from autonovel.maths.count.calibrated import (
    KnownTree,
    TreeCalibration,
    calibrate_tree,
    count_by_tree,
    error_of_a_new_group,
)
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.portrait import NEIGHBOURS, Portrait, portray
from autonovel.maths.count.probes import probe_sets
from tests.maths.planted import QUICK, classes, planted


def known_problems(scatter: float, n: int = 40, groups: int = 5, seed: int = 0) -> list[KnownTree]:
    """Portraits made up so that the right cut of each lies `scatter` away from that of the others."""
    generator = np.random.default_rng(seed)
    problems = []
    for i in range(n):
        k, size = int(generator.integers(10, 40)), 12
        # heights fall by 1 per doubling of the number of clusters
        levels = -np.log2(np.arange(1, k * size) / k) + scatter * generator.normal()
        problems.append(KnownTree(i % groups, k, Portrait(k * size, levels, np.zeros(len(NEIGHBOURS)))))
    return problems


def _shifted(problem: KnownTree, by: float) -> KnownTree:
    return dataclasses.replace(
        problem, portrait=dataclasses.replace(problem.portrait, levels=problem.portrait.levels + by)
    )


def test_each_group_is_judged_by_the_others_alone() -> None:
    problems = known_problems(0.2)
    odd = [_shifted(p, 2.0) if p.group == 0 else p for p in problems]
    plain, strange = (TreeCalibration(p, typical_size=12, size_spread=0.0) for p in (problems, odd))
    assert sorted(plain.parts) == [0, 1, 2, 3, 4]
    for problem in problems:  # the part that judges group 0 has not seen how odd it is
        assert strange.parts[0].count(problem.portrait) == plain.parts[0].count(problem.portrait)
    first = [i for i, p in enumerate(problems) if p.group == 0]
    assert np.abs(strange.errors[1][first]).mean() > 5 * np.abs(plain.errors[1][first]).mean()


@pytest.mark.parametrize("groups", [2, 3, 5, 12])
@pytest.mark.parametrize("between", [0.0, 0.5, 1.0])
def test_an_interval_over_groups_holds_a_new_group_as_often_as_it_says(groups: int, between: float) -> None:
    """Errors of problems: a share of their variance belongs to the group, as of families that are easy or hard as a whole."""
    generator = np.random.default_rng(groups)
    for coverage in (0.5, 0.8, 0.9):
        held = []
        for _ in range(400):
            group = generator.normal(size=(groups + 1, 1))
            errors = np.abs(
                math.sqrt(between) * group + math.sqrt(1 - between) * generator.normal(size=(groups + 1, 8))
            )
            known = np.repeat(np.arange(groups), 8)
            weights = generator.uniform(0.5, 1.5, len(known))
            reach = error_of_a_new_group(errors[:groups].flatten(), weights, known, coverage)
            held.extend(errors[groups] <= reach)
        assert np.mean(held) >= coverage - 0.04
        # never so wide that it says nothing: for few groups, and where whole groups err, it has to be wide
        assert np.mean(held) <= min(0.995, coverage + (0.35 if groups < 5 else 0.25))


def test_the_error_of_a_new_group_by_hand() -> None:
    def reach(by_group: list[float], coverage: float) -> float:
        groups = np.repeat(np.arange(len(by_group)), 2)
        return error_of_a_new_group(np.repeat(by_group, 2), np.ones(len(groups)), groups, coverage)

    # nine groups, of which the (9 + 1) x 0.8 = 8th decides; Student's t for 9 degrees of freedom is 1.383
    small, large = [0.1] * 7, [1.0, 1.1]
    assert reach([*small, *large], 0.8) == pytest.approx(1.0)
    # two groups, where a rank of 2.4 does not exist; Student's t for 2 degrees of freedom is 1.886
    assert reach([0.3, 0.4], 0.8) == pytest.approx(1.886 * math.sqrt((0.09 + 0.16) / 2), rel=1e-3)
    assert reach([0.0, 0.0, 0.0], 0.8) == 0
    # problems that resemble the pile count most
    errors, groups = np.array([0.1, 9.0]), np.array([0, 0])
    assert error_of_a_new_group(errors, np.array([1.0, 0.0]), groups, 0.5) == pytest.approx(0.1)


def test_whole_families_that_are_hard_widen_the_interval() -> None:
    generator = np.random.default_rng(0)
    held, problems = [], known_problems(0.05)
    for _ in range(40):
        shift = 0.5 * generator.normal(size=6)  # one for each family, the last is new
        moved = [_shifted(p, shift[p.group]) for p in problems]
        calibration = TreeCalibration(moved, typical_size=12, size_spread=0.0)
        for new in known_problems(0.05, n=5, seed=7):
            new = _shifted(new, shift[5])
            low, high = calibration.interval(calibration.count(new.portrait), new.portrait, 0.8)
            held.append(low <= new.n_classes <= high)
    assert 0.72 <= np.mean(held) <= 0.95


def test_one_calibration_serves_many_piles_and_knows_about_sizes() -> None:
    features, labels, _ = planted(14, 2)
    probes = probe_sets(features, labels, None, features)
    calibration = calibrate_tree(probes, (5, 9), effort=QUICK, grouped=False)
    for n in (6, 11):
        pile, _ = classes(n, per_class=7, seed=n)
        assert abs(count_by_tree(calibration, pile, effort=QUICK).n_new - n) <= 1
    guess = calibrate_tree(probes, effort=QUICK, grouped=False)
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
        effort = dataclasses.replace(QUICK, tree_points=300)
        probes = probe_sets(features, labels, None, pile)
        ratio = 3.2 if together else 1.0
        calibration = calibrate_tree(probes, effort=effort, grouped=False, ratio=ratio)
        assert max(problem.portrait.n for problem in calibration.problems) <= 300
        direct = count_by_tree(calibration, pile, max_new=20, effort=effort)
        found = estimate_classes(features, labels, pile, max_new=20, effort=effort)
        assert found.n_new == direct.n_new or not together
        assert abs(found.n_new - 8) <= (0 if together else 2)
