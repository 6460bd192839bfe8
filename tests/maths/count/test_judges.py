"""Three judges count the classes of a pile, and say what they rest on."""

import math

import pytest
import torch
from torch import Tensor

from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.gap import eigenvalues, gaps
from autonovel.maths.count.judges import next_highest_peak
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import unit


def classes(n: int, per_class: int = 40, distance: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n).repeat_interleave(per_class)
    centres = distance * torch.randn(n, 16, generator=generator)
    return unit(centres[labels] + torch.randn(len(labels), 16, generator=generator)), labels


def count_classes(labelled: Tensor, labels: Tensor, pile: Tensor, max_new: int = 100) -> ClassEstimate:
    return estimate_classes(labelled, labels, pile, method="judges", max_new=max_new)


@pytest.mark.parametrize(("n_known", "n_new"), [(2, 3), (5, 4), (9, 7)])
def test_planted_classes_are_counted(n_known: int, n_new: int) -> None:
    points, labels = classes(n_known + n_new)
    known = labels < n_known
    count = count_classes(points[known], labels[known], points[~known], max_new=20)
    assert abs(count.n_new - n_new) <= 1
    assert len(count.curve["k"]) == len(count.curve["silhouette"]) == len(count.curve["gap"])
    assert count.interval is not None
    assert count.interval[0] < count.n_new < count.interval[1]
    assert ("cannot show how often they are wrong" in count.note) == (n_known < 8)
    assert all(f"{answer} (" in count.note for answer in count.answers)
    assert len(count.answers) == (3 if n_known >= 4 else 2)


def test_where_the_judges_differ_there_is_a_second_peak_and_a_wide_interval() -> None:
    generator = torch.Generator().manual_seed(0)
    labelled = torch.eye(3, 6).repeat_interleave(30, 0) + 0.2 * torch.randn(90, 6, generator=generator)
    pile = torch.randn(200, 6, generator=generator)  # no classes at all: each judge sees something else
    count = count_classes(labelled, torch.arange(3).repeat_interleave(30), pile, max_new=20)
    assert len(set(count.answers)) > 1
    assert count.second is not None
    assert count.interval is not None
    assert count.interval[0] <= min(count.answers) < max(count.answers) <= count.interval[1]


def test_a_handful_of_images_is_two_classes_or_any_other_number() -> None:
    points, labels = classes(3, 10)
    # none is left where all images of a pile are old
    for images, found in ((5, (2, (1, 5))), (1, (1, (1, 1))), (0, (1, None))):
        count = count_classes(points, labels, points[:images])
        assert ((count.n_new, count.interval), count.answers) == (found, [])
        assert f"{images} images are too few" in count.note


def slow_eigenvalues(points: Tensor) -> list[float]:
    """Of the normalised links, by loops and with all links in one matrix."""
    n = len(points)
    gap = [[float((points[i] - points[j]).norm()) for j in range(n)] for i in range(n)]
    near = [sorted((j for j in range(n) if j != i), key=lambda j: gap[i][j])[:10] for i in range(n)]
    scale = [gap[i][near[i][min(7, len(near[i])) - 1]] for i in range(n)]
    links = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for j in near[i]:
            links[i, j] = links[j, i] = math.exp(-(gap[i][j] ** 2) / (scale[i] * scale[j]))
    degree = links.sum(1).rsqrt()
    return torch.linalg.eigvalsh(degree[:, None] * links * degree).flip(0).tolist()


@pytest.mark.parametrize("dense", [300, 8])
@pytest.mark.parametrize(("n_classes", "distance"), [(3, 1.5), (5, 9.0)])
def test_eigenvalues_of_the_graph_are_those_of_loops(
    n_classes: int, distance: float, dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autonovel.maths.count.gap.DENSE", dense)
    points, _ = classes(n_classes, 24, distance)
    assert eigenvalues(points, 6).tolist() == pytest.approx(slow_eigenvalues(points)[:6], abs=1e-3)


def test_the_eigenvalues_fall_behind_the_true_number() -> None:
    points, _ = classes(5)
    fall = gaps(points, 12)
    assert list(fall) == list(range(2, 13))
    assert max(fall, key=lambda k: fall[k]) == 5


def test_next_highest_peak() -> None:
    assert next_highest_peak({2: 0.1, 3: 0.5, 4: 0.2, 5: 0.4, 6: 0.3}) == 5
    assert next_highest_peak({2: 0.3, 3: 0.2, 4: 0.1}) is None
    assert next_highest_peak({}) is None


def test_classes_of_different_sizes_are_counted_by_branches_too() -> None:
    generator = torch.Generator().manual_seed(1)
    sizes = torch.tensor([200, 90, 40, 18, 18, 40])
    labels = torch.arange(6).repeat_interleave(sizes)
    points = unit(
        unit(torch.randn(6, 24, generator=generator))[labels] + 0.2 * torch.randn(406, 24, generator=generator)
    )
    count = count_classes(points[:0], labels[:0], points, max_new=20)
    assert "(branches)" in count.note
    assert count.answers[0] < count.n_new <= 6
    assert count.interval is not None
    assert count.interval[0] <= 6 <= count.interval[1]
