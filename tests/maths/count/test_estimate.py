"""The number of classes: planted answers are found, odd input is handled or refused, the settings do what they say."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from PIL import Image

from autonovel.api.run import Run
from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.discovery.finish import plain
from autonovel.maths.count import search
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.paper import READINGS, Reading, count_by_algorithm_1
from autonovel.maths.count.probes import probe_sets
from autonovel.maths.count.result import ClassEstimate
from autonovel.report.plots import draw_estimate
from tests.maths.planted import QUICK, planted


@pytest.mark.parametrize("method", ["calibrated", "silhouette"])
@pytest.mark.parametrize("n_new", [5, 12])
def test_planted_classes_are_counted(method: str, n_new: int) -> None:
    estimate = estimate_classes(*planted(10, n_new), max_new=30, method=method, effort=QUICK)
    assert abs(estimate.n_new - n_new) <= 1
    assert estimate.method == method
    if method == "calibrated":
        low, high = estimate.interval
        assert low <= estimate.n_new <= high <= 2 * n_new
        assert (len(estimate.answers), estimate.note) == (20, "")
        assert estimate.curve["k"][int(np.argmax(estimate.curve["belief"]))] == pytest.approx(n_new, abs=2)


@pytest.mark.parametrize(("reading", "anchor_share"), [(Reading(ties="largest"), 0.8), (READINGS["code"], 0.7)])
def test_algorithm_1_comes_near(reading: Reading, anchor_share: float) -> None:
    features, labels, pile = planted(12, 8)
    effort = dataclasses.replace(QUICK, splits=3, restarts=5)
    probes = probe_sets(features, labels, None, pile)
    estimate = count_by_algorithm_1(probes, pile, 25, 0, reading=reading, anchor_share=anchor_share, effort=effort)
    assert abs(estimate.n_new - 8) <= 1
    assert len(estimate.answers) == 3
    assert estimate.method == "paper"
    assert {len(values) for values in estimate.curve.values()} == {26}
    assert set(estimate.curve) == {"k", "accuracy", "silhouette"}
    if reading == READINGS["code"]:
        asked = {"method": "paper", "reading": "code", "anchor_share": anchor_share, "effort": effort}
        assert estimate_classes(features, labels, pile, max_new=25, **asked) == estimate


def test_a_coarse_sweep_agrees_with_one_over_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    args = planted(8, 6)
    coarse = estimate_classes(*args, max_new=20, method="silhouette", effort=QUICK)
    monkeypatch.setattr(search, "COARSE_STEP", 20)
    every = estimate_classes(*args, max_new=20, method="silhouette", effort=QUICK)
    assert coarse.n_new == every.n_new == 6
    assert not any(map(math.isnan, every.curve["silhouette"]))
    assert any(map(math.isnan, coarse.curve["silhouette"]))


def test_a_seed_means_one_answer_and_arrays_are_as_good_as_tensors() -> None:
    features, labels, pile = planted(8, 5)
    for method in ("calibrated", "paper", "silhouette"):
        first = estimate_classes(features, labels, pile, max_new=15, method=method, effort=QUICK, seed=1)
        names = np.array([f"class {c}" for c in labels.tolist()])
        second = estimate_classes(
            features.double().numpy(), names, pile.numpy(), max_new=15, method=method, effort=QUICK, seed=1
        )
        assert (first.n_new, first.interval) == (second.n_new, second.interval)


def test_the_order_of_the_probe_points_does_not_matter_to_algorithm_1() -> None:
    features, labels, pile = planted(8, 5)
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))
    one = estimate_classes(features, labels, pile, max_new=12, method="paper", effort=QUICK)
    two = estimate_classes(features[order], labels[order], pile, max_new=12, method="paper", effort=QUICK)
    assert one.n_new == two.n_new


def test_probe_groups_are_probe_sets_of_their_own() -> None:
    features, labels, pile = planted(15, 6)
    groups = labels // 5
    sets = probe_sets(features, labels, groups, pile)
    assert [s.n_classes for s in sets] == [5, 5, 5]
    assert all(s.labels.unique().tolist() == [0, 1, 2, 3, 4] for s in sets)
    paper = estimate_classes(features, labels, pile, max_new=12, method="paper", effort=QUICK, probe_groups=groups)
    assert len(paper.answers) == 3  # every group is asked, even where there are fewer splits
    calibrated = estimate_classes(features, labels, pile, max_new=12, effort=QUICK, probe_groups=groups)
    assert abs(calibrated.n_new - 6) <= 1


def test_outliers_and_anchor_clusters_are_counted_as_asked() -> None:
    features, labels, pile = planted(8, 4, per_class=30)
    strays = features[labels == 0][:2]
    mixed = torch.cat([pile, strays])
    (probes,) = probe_sets(features, labels, None, mixed)
    effort = dataclasses.replace(QUICK, splits=4)

    def answers(anchors: bool, threshold: float) -> list[int]:
        reading = Reading(ties="largest", count_anchor_clusters=anchors)
        return count_by_algorithm_1(
            [probes], mixed, 10, 0, reading=reading, outlier_threshold=threshold, effort=effort
        ).answers

    without, counted, strict = answers(False, 0.01), answers(True, 0.01), answers(True, 0.5)
    assert all(a <= b for a, b in zip(without, counted, strict=True))
    assert sum(counted) > sum(without)
    assert sum(strict) < sum(counted)


@pytest.mark.parametrize(
    ("method", "n_probe", "grouped", "note"),
    [
        (
            "calibrated",
            7,
            False,
            "There is no interval: it takes 8 known classes that training has not seen, and there are 7.",
        ),
        ("calibrated", 8, False, None),
        ("calibrated", 8, True, None),
        ("paper", 7, False, "There is no interval: it takes 8 known classes"),
        ("paper", 8, False, "the range of the answers over the splits, not a calibrated one"),
        ("silhouette", 8, False, "no known classes to judge its errors by"),
    ],
)
def test_an_interval_is_given_only_where_known_classes_justify_it(
    method: str, n_probe: int, grouped: bool, note: str | None
) -> None:
    features, labels, pile = planted(n_probe, 5)
    groups = labels // 4 if grouped else None
    found = estimate_classes(features, labels, pile, max_new=12, method=method, effort=QUICK, probe_groups=groups)
    refused = n_probe < 8 or method == "silhouette"
    assert (found.interval is None) == refused
    assert note in found.note if note else found.note == ""
    between = "" if refused else f", between {found.interval[0]} and {found.interval[1]}"
    assert str(found) == f"{found.n_new} new classes{between}" + (f". {found.note}" if note else "")


def test_where_nothing_is_known_the_estimate_counts_clusters() -> None:
    estimate = ClassEstimate(4, None, {"k": []}, "judges", known=False)
    assert str(estimate) == "4 clusters"
    assert str(dataclasses.replace(estimate, n_new=1)) == "1 cluster"
    assert str(dataclasses.replace(estimate, known=True)) == "4 new classes"


@pytest.mark.parametrize(("known", "word"), [(True, "new class"), (False, "cluster")])
def test_the_picture_calls_what_was_counted_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool, word: str
) -> None:
    said: list[str] = []
    for setter in ("set_title", "set_xlabel"):
        monkeypatch.setattr(Axes, setter, lambda self, text, **_: said.append(text))
    run = Run(tmp_path)
    for n in (1, 3):
        estimate = ClassEstimate(n, None, {"k": [1.0, 2.0, 3.0], "silhouette": [0.1, 0.2, 0.3]}, "judges", known=known)
        run.write_json("estimate.json", plain(dataclasses.asdict(estimate)))
        draw_estimate(run)
    many = "new classes" if known else "clusters"
    assert said == [f"number of {many}", f"1 {word}", f"number of {many}", f"3 {many}"]


def test_a_second_peak_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clear groups of three classes each: both numbers are answers."""
    generator = torch.Generator().manual_seed(0)
    centres = 12 * torch.randn(4, 1, 24, generator=generator) + 2.5 * torch.randn(4, 3, 24, generator=generator)
    labels = torch.arange(12).repeat_interleave(30)
    pile = centres.flatten(0, 1)[labels] + 0.5 * torch.randn(len(labels), 24, generator=generator)
    monkeypatch.setattr(search, "COARSE_STEP", 20)
    found = estimate_classes([], [], pile, max_new=20, method="silhouette", effort=QUICK)
    assert {found.n_new, found.second} == {4, 12}
    features, known, single = planted(8, 5)
    assert estimate_classes(features, known, single, max_new=12, method="silhouette", effort=QUICK).second is None


@pytest.mark.parametrize("n_probe", [0, 1, 3])
def test_too_few_probe_classes_leave_it_to_the_silhouette(n_probe: int) -> None:
    features, labels, pile = planted(4, 5)
    keep = labels < n_probe
    with pytest.warns(AutonovelWarning, match="too few"):
        estimate = estimate_classes(features[keep], labels[keep], pile, max_new=12, effort=QUICK)
    assert estimate.method == "silhouette"
    assert estimate.n_new == 5


@pytest.mark.parametrize(("method", "least"), [("calibrated", 1), ("paper", 1), ("silhouette", 2)])
def test_a_pile_that_shows_no_classes_is_the_fewest_there_can_be(method: str, least: int) -> None:
    features, labels, pile = planted(6, 3, per_class=10)
    for points in (torch.ones(12, 24), pile[:4]):  # all alike, and four points of one class
        found = estimate_classes(features, labels, points, max_new=5, method=method, effort=QUICK)
        assert found.n_new == least


def test_copies_of_points_do_not_change_the_count_of_the_silhouette() -> None:
    features, labels, pile = planted(6, 3, per_class=10)
    found = estimate_classes(features, labels, torch.cat([pile, pile]), max_new=8, method="silhouette", effort=QUICK)
    assert found.n_new == 3


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    features, labels, pile = planted(8, 5)
    for method in ("calibrated", "paper", "silhouette"):
        estimate = estimate_classes(features, labels, pile, max_new=15, method=method, effort=QUICK)
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
        ((features, labels, pile), {"method": "paper", "reading": "aloud"}, "no reading 'aloud'"),
        ((features, labels, pile), {"probe_groups": labels[:3]}, "one for each probe point"),
        ((features.clone().fill_(math.inf), labels, pile), {}, "Probe features hold NaN or infinite"),
    ]
    for args, kwargs, message in cases:
        with pytest.raises(InputError, match=message):
            estimate_classes(*args, effort=QUICK, **kwargs)
