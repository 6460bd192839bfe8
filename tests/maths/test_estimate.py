"""The number of classes: planted answers are found, odd input is handled or refused, the settings do what they say."""

import dataclasses
import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from autonovel.errors import AutonovelWarning, InputError
from autonovel.maths.calibrate import Calibration, KnownProblem, error_of_a_new_group
from autonovel.maths.class_estimate import probe_sets
from autonovel.maths.count_by_tree import calibrate, count_classes
from autonovel.maths.estimate import estimate_classes
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.number_search import second_peak
from autonovel.maths.portrait import NEIGHBOURS, Portrait, neighbour_overlap, portray, principal_components
from autonovel.pipeline import plain
from autonovel.recipes import get_recipe
from autonovel.report.plots import draw_estimate
from autonovel.runs.folder import Run
from autonovel.settings import Estimate

QUICK = Estimate(splits=2, restarts=3, probe_draws=20)


def classes(n: int, per_class: int = 25, dim: int = 24, distance: float = 6.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes with unit noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n).repeat_interleave(per_class)
    centres = distance / math.sqrt(2) * torch.randn(n, dim, generator=generator) / math.sqrt(dim) * math.sqrt(8)
    return centres[labels] + torch.randn(len(labels), dim, generator=generator), labels


def planted(n_probe: int = 10, n_new: int = 7, **kwargs: float) -> tuple[Tensor, Tensor, Tensor]:
    points, labels = classes(n_probe + n_new, **kwargs)  # type: ignore[arg-type]
    known = labels < n_probe
    return points[known], labels[known], points[~known]


@pytest.mark.parametrize("method", ["calibrated", "silhouette"])
@pytest.mark.parametrize("n_new", [5, 12])
def test_planted_classes_are_counted(method: str, n_new: int) -> None:
    estimate = estimate_classes(*planted(10, n_new), max_new=30, method=method, settings=QUICK)
    assert abs(estimate.n_new - n_new) <= 1
    assert estimate.method == method
    if method == "calibrated":
        low, high = estimate.interval
        assert low <= estimate.n_new <= high <= 2 * n_new
        assert (len(estimate.answers), estimate.note) == (20, "")
        assert estimate.curve["k"][int(np.argmax(estimate.curve["belief"]))] == pytest.approx(n_new, abs=2)


@pytest.mark.parametrize("settings", [Estimate(ties="largest"), get_recipe("omniglot", "reference").estimate])
def test_algorithm_1_comes_near(settings: Estimate) -> None:
    settings = dataclasses.replace(settings, splits=3, restarts=5)
    estimate = estimate_classes(*planted(12, 8), max_new=25, method="paper", settings=settings)
    assert abs(estimate.n_new - 8) <= 1
    assert len(estimate.answers) == 3
    assert estimate.method == "paper"
    assert {len(values) for values in estimate.curve.values()} == {26}
    assert set(estimate.curve) == {"k", "accuracy", "silhouette"}


def test_coarse_and_exhaustive_sweeps_agree_on_clear_classes() -> None:
    args = planted(8, 6)
    coarse = estimate_classes(*args, max_new=20, method="silhouette", settings=QUICK)
    every = estimate_classes(
        *args, max_new=20, method="silhouette", settings=dataclasses.replace(QUICK, sweep="exhaustive")
    )
    assert coarse.n_new == every.n_new == 6
    assert not any(map(math.isnan, every.curve["silhouette"]))
    assert any(map(math.isnan, coarse.curve["silhouette"]))


def test_a_seed_means_one_answer_and_arrays_are_as_good_as_tensors() -> None:
    features, labels, pile = planted(8, 5)
    for method in ("calibrated", "paper", "silhouette"):
        first = estimate_classes(features, labels, pile, max_new=15, method=method, settings=QUICK, seed=1)
        names = np.array([f"class {c}" for c in labels.tolist()])
        second = estimate_classes(
            features.double().numpy(), names, pile.numpy(), max_new=15, method=method, settings=QUICK, seed=1
        )
        assert (first.n_new, first.interval) == (second.n_new, second.interval)


def test_the_order_of_the_probe_points_does_not_matter_to_algorithm_1() -> None:
    features, labels, pile = planted(8, 5)
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))
    one = estimate_classes(features, labels, pile, max_new=12, method="paper", settings=QUICK)
    two = estimate_classes(features[order], labels[order], pile, max_new=12, method="paper", settings=QUICK)
    assert one.n_new == two.n_new


def test_probe_groups_are_probe_sets_of_their_own() -> None:
    features, labels, pile = planted(15, 6)
    groups = labels // 5
    sets = probe_sets(features, labels, groups, pile)
    assert [s.n_classes for s in sets] == [5, 5, 5]
    assert all(s.labels.unique().tolist() == [0, 1, 2, 3, 4] for s in sets)
    paper = estimate_classes(features, labels, pile, max_new=12, method="paper", settings=QUICK, probe_groups=groups)
    assert len(paper.answers) == 3  # every group is asked, even where there are fewer splits
    calibrated = estimate_classes(features, labels, pile, max_new=12, settings=QUICK, probe_groups=groups)
    assert abs(calibrated.n_new - 6) <= 1


def test_one_calibration_serves_many_piles_and_knows_about_sizes() -> None:
    features, labels, _ = planted(14, 2)
    probes = probe_sets(features, labels, None, features)
    known_law = dataclasses.replace(QUICK, size_range=(5, 9))
    calibration = calibrate(probes, settings=known_law, grouped=False)
    for n in (6, 11):
        pile, _ = classes(n, per_class=7, seed=n)
        assert abs(count_classes(calibration, pile, settings=known_law).n_new - n) <= 1
    guess = calibrate(probes, settings=QUICK, grouped=False)
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
        calibration = calibrate(probes, settings=settings, grouped=False, ratio=ratio)
        assert max(problem.portrait.n for problem in calibration.problems) <= 300
        direct = count_classes(calibration, pile, max_new=20, settings=settings)
        found = estimate_classes(features, labels, pile, max_new=20, settings=settings)
        assert found.n_new == direct.n_new or not together
        assert abs(found.n_new - 8) <= (0 if together else 2)


def test_a_portrait_of_small_clusters_is_bounded_and_shows_the_classes() -> None:
    points, _ = classes(6, per_class=200)
    portrait = portray(points, ratio=10.0)
    assert portrait.n == 120
    falls = portrait.levels[:-1] - portrait.levels[1:]
    assert int(falls[:20].argmax()) + 2 == 6  # levels[k - 2] and levels[k - 1] are the ends of k clusters


def known_problems(scatter: float, n: int = 40, groups: int = 5, seed: int = 0) -> list[KnownProblem]:
    """Portraits made up so that the right cut of each lies `scatter` away from that of the others."""
    generator = np.random.default_rng(seed)
    problems = []
    for i in range(n):
        k, size = int(generator.integers(10, 40)), 12
        # heights fall by 1 per doubling of the number of clusters
        levels = -np.log2(np.arange(1, k * size) / k) + scatter * generator.normal()
        problems.append(KnownProblem(i % groups, k, Portrait(k * size, levels, np.zeros(len(NEIGHBOURS)))))
    return problems


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
        calibration = Calibration(moved, typical_size=12, size_spread=0.0)
        for new in known_problems(0.05, n=5, seed=7):
            new = _shifted(new, shift[5])
            low, high = calibration.interval(calibration.count(new.portrait), new.portrait, 0.8)
            held.append(low <= new.n_classes <= high)
    assert 0.72 <= np.mean(held) <= 0.95


def _shifted(problem: KnownProblem, by: float) -> KnownProblem:
    return dataclasses.replace(
        problem, portrait=dataclasses.replace(problem.portrait, levels=problem.portrait.levels + by)
    )


def test_each_group_is_judged_by_the_others_alone() -> None:
    problems = known_problems(0.2)
    odd = [_shifted(p, 2.0) if p.group == 0 else p for p in problems]
    plain, strange = (Calibration(p, typical_size=12, size_spread=0.0) for p in (problems, odd))
    assert sorted(plain.parts) == [0, 1, 2, 3, 4]
    for problem in problems:  # the part that judges group 0 has not seen how odd it is
        assert strange.parts[0].count(problem.portrait) == plain.parts[0].count(problem.portrait)
    first = [i for i, p in enumerate(problems) if p.group == 0]
    assert np.abs(strange.errors[1][first]).mean() > 5 * np.abs(plain.errors[1][first]).mean()


def test_the_tree_is_cut_as_scipy_cuts_it() -> None:
    points, labels = classes(6)
    portrait = portray(points, components=10, normalise=False)
    x = principal_components(points.double(), 10)
    tree = linkage(x.numpy(), "ward")
    for k in (1, 2, 6, 17, 80):
        assert portrait.clusters(portrait.cut(k)) == k
        assert fcluster(tree, k, "maxclust").max() == k
    assert cluster_accuracy(labels.numpy(), fcluster(tree, 6, "maxclust")) > 0.99


def test_principal_components_keep_the_distances() -> None:
    for shape in ((30, 8), (8, 30)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        reduced = principal_components(x, 30)
        torch.testing.assert_close(torch.cdist(reduced, reduced), torch.cdist(x, x), rtol=1e-6, atol=1e-6)


def test_neighbour_overlap_as_in_plain_loops() -> None:
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    gaps = torch.cdist(x, x)
    for position, k in ((0, 2), (3, 9)):
        near = [sorted((j for j in range(30) if j != i), key=lambda j: gaps[i, j].item())[:k] for i in range(30)]
        share = [len(set(near[i]) & set(near[j])) / k for i in range(30) for j in near[i]]
        assert neighbour_overlap(x)[position] == pytest.approx(math.log(sum(share) / len(share)), abs=1e-5)


def test_accuracy_is_the_best_over_all_matchings() -> None:
    generator = np.random.default_rng(0)
    for _ in range(10):
        truth, found = generator.integers(0, 4, 20), generator.integers(0, 4, 20)
        best = max(np.mean(np.array(p)[found] == truth) for p in permutations(range(4)))
        assert cluster_accuracy(truth, found) == pytest.approx(best)


def test_outliers_and_anchor_clusters_are_counted_as_asked() -> None:
    features, labels, pile = planted(8, 4, per_class=30)
    strays = features[labels == 0][:2]
    mixed = torch.cat([pile, strays])
    base = dataclasses.replace(QUICK, splits=4, ties="largest")
    answers = {}
    for anchors in (False, True):
        settings = dataclasses.replace(base, count_anchor_clusters=anchors, outlier_threshold=0.01)
        answers[anchors] = estimate_classes(
            features, labels, mixed, max_new=10, method="paper", settings=settings
        ).answers
    assert all(a <= b for a, b in zip(answers[False], answers[True], strict=True))
    assert sum(answers[True]) > sum(answers[False])
    strict = dataclasses.replace(base, count_anchor_clusters=True, outlier_threshold=0.5)
    dropped = estimate_classes(features, labels, mixed, max_new=10, method="paper", settings=strict).answers
    assert sum(dropped) < sum(answers[True])


@pytest.mark.parametrize(
    ("method", "n_probe", "grouped", "note"),
    [
        ("calibrated", 7, False, "7 probe classes are too few to calibrate an interval; hold at least 8"),
        ("calibrated", 8, False, None),
        ("calibrated", 8, True, None),
        ("paper", 7, False, "7 probe classes are too few"),
        ("paper", 8, False, "the range of the answers over the splits, not a calibrated one"),
        ("silhouette", 8, False, "no known classes to judge its errors by"),
    ],
)
def test_an_interval_is_given_only_where_known_classes_justify_it(
    method: str, n_probe: int, grouped: bool, note: str | None
) -> None:
    features, labels, pile = planted(n_probe, 5)
    groups = labels // 4 if grouped else None
    found = estimate_classes(features, labels, pile, max_new=12, method=method, settings=QUICK, probe_groups=groups)
    refused = n_probe < 8 or method == "silhouette"
    assert (found.interval is None) == refused
    assert note in found.note if note else found.note == ""
    between = "" if refused else f", between {found.interval[0]} and {found.interval[1]}"
    assert str(found) == f"{found.n_new} new classes{between} ({method})" + (f". {found.note}" if note else "")


def test_a_second_peak_is_told() -> None:
    """Four clear groups of three classes each: both numbers are answers."""
    generator = torch.Generator().manual_seed(0)
    centres = 12 * torch.randn(4, 1, 24, generator=generator) + 2.5 * torch.randn(4, 3, 24, generator=generator)
    labels = torch.arange(12).repeat_interleave(30)
    pile = centres.flatten(0, 1)[labels] + 0.5 * torch.randn(len(labels), 24, generator=generator)
    every = dataclasses.replace(QUICK, sweep="exhaustive")
    found = estimate_classes([], [], pile, max_new=20, method="silhouette", settings=every)
    assert {found.n_new, found.second} == {4, 12}
    features, known, single = planted(8, 5)
    assert estimate_classes(features, known, single, max_new=12, method="silhouette", settings=every).second is None


def slow_second_peak(scores: dict[int, float], chosen: int) -> int | None:
    """A peak is a number from which every way to a higher one leads down by a tenth of the range; of equals, the first."""
    ks = sorted(k for k in scores if not math.isnan(scores[k]))
    span = max(scores[k] for k in ks) - min(scores[k] for k in ks)
    peaks = []
    for k in ks:
        left, right = [j for j in ks if j < k], [j for j in ks if j > k]
        if (left and scores[left[-1]] >= scores[k]) or (right and scores[right[0]] > scores[k]):
            continue
        depths = []
        for higher in [j for j in ks if scores[j] > scores[k]]:
            between = [scores[j] for j in ks if min(higher, k) <= j <= max(higher, k)]
            depths.append(scores[k] - min(between))
        depth = min(depths) if depths else span
        if depth >= 0.1 * span and depth > 0:
            peaks.append(k)
    if len(peaks) < 2:
        return None
    peaks.remove(min(peaks, key=lambda k: (abs(k - chosen), -scores[k])))
    return max(peaks, key=lambda k: scores[k])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.15, 0.4, 0.7, 0.72, 1.0, math.nan]), min_size=4, max_size=14), st.data())
def test_the_second_peak_as_in_plain_loops(values: list[float], data: st.DataObject) -> None:
    scores = dict(enumerate(values))
    chosen = data.draw(st.integers(0, len(values)))
    if sum(not math.isnan(v) for v in values) >= 3:
        assert second_peak(scores, chosen) == slow_second_peak(scores, chosen)


@pytest.mark.parametrize("n_probe", [0, 1, 3])
def test_too_few_probe_classes_leave_it_to_the_silhouette(n_probe: int) -> None:
    features, labels, pile = planted(4, 5)
    keep = labels < n_probe
    with pytest.warns(AutonovelWarning, match="too few"):
        estimate = estimate_classes(features[keep], labels[keep], pile, max_new=12, settings=QUICK)
    assert estimate.method == "silhouette"
    assert estimate.n_new == 5


@pytest.mark.parametrize(("method", "least"), [("calibrated", 1), ("paper", 1), ("silhouette", 2)])
def test_a_pile_that_shows_no_classes_is_the_fewest_there_can_be(method: str, least: int) -> None:
    features, labels, pile = planted(6, 3, per_class=10)
    for points in (torch.ones(12, 24), pile[:4]):  # all alike, and four points of one class
        found = estimate_classes(features, labels, points, max_new=5, method=method, settings=QUICK)
        assert found.n_new == least


def test_copies_of_points_do_not_change_the_count_of_the_silhouette() -> None:
    features, labels, pile = planted(6, 3, per_class=10)
    found = estimate_classes(features, labels, torch.cat([pile, pile]), max_new=8, method="silhouette", settings=QUICK)
    assert found.n_new == 3


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    features, labels, pile = planted(8, 5)
    for method in ("calibrated", "paper", "silhouette"):
        estimate = estimate_classes(features, labels, pile, max_new=15, method=method, settings=QUICK)
        run = Run(tmp_path / method)
        run.write_json("estimate.json", plain(dataclasses.asdict(estimate)))
        with Image.open(draw_estimate(run)) as picture:
            assert len(np.unique(np.asarray(picture.convert("L")))) > 10  # not an empty page


def test_refused_with_a_sentence() -> None:
    features, labels, pile = planted(6, 3, per_class=5)
    broken = pile.clone()
    broken[2, 0] = math.nan
    cases = [
        ((features, labels, broken), {}, "row 2"),
        ((features, labels, pile[:, :3]), {}, "dimensions"),
        ((features, labels[:4], pile), {}, "one for each probe point"),
        ((features, labels, pile[:2]), {}, "too few"),
        ((features, labels, pile), {"max_new": 1}, "at least 2"),
        ((features, labels, pile), {"method": "magic"}, "no estimator"),
        ((features, labels, pile), {"probe_groups": labels[:3]}, "one for each probe point"),
        ((features.clone().fill_(math.inf), labels, pile), {}, "Probe features hold NaN or infinite"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(InputError, match=message):
            estimate_classes(*args, settings=QUICK, **kwargs)
