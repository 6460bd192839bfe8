"""Doubtful labels and pictures: planted ones are found, and pixels are compared as a plain loop does it."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from autonovel.maths import checking

CLASSES, EACH = 6, 40


def heaps(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(EACH)
    features = torch.randn(CLASSES, 32, generator=generator)[labels]
    return features + 0.6 * torch.randn(len(labels), 32, generator=generator), labels


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    coarse = torch.rand(n, 1, 9, 9, generator=torch.Generator().manual_seed(seed)) * 255
    return interpolate(coarse, (64, 64), mode="bicubic")[:, 0].clamp(0, 255)


@pytest.mark.parametrize("seed", range(3))
def test_planted_wrong_labels_are_found_and_right_ones_left_alone(seed: int) -> None:
    features, labels = heaps(seed)
    wrong = torch.zeros(len(labels), dtype=torch.bool)
    wrong[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:12]] = True
    given = torch.where(wrong, (labels + 1 + seed) % CLASSES, labels)
    found = checking.wrong_labels(checking.held_out(features, given, seed=seed), given)
    assert (found & wrong).sum() >= 11
    assert (found & ~wrong).sum() <= 2
    clean = checking.wrong_labels(checking.held_out(features, labels, seed=seed), labels)
    assert clean.sum() <= 2


def test_no_image_is_judged_by_its_own_label() -> None:
    features, labels = heaps()
    before = checking.held_out(features, labels)
    row = 57
    changed = labels.clone()
    changed[row] = (labels[row] + 1) % CLASSES
    fold = checking._folds(labels, 0)
    assert torch.bincount(fold, minlength=checking.FOLDS).min() >= len(labels) // checking.FOLDS - CLASSES
    assert before[row].argmax() == checking.held_out(features, changed)[row].argmax() == labels[row]


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float((a * b).sum() / length) if length else 0.0


@pytest.mark.parametrize("size", [32, 30, 26])
def test_the_best_place_is_that_of_a_plain_loop(size: int) -> None:
    whole, cut = (interpolate(pictures(3, seed)[:, None], (32, 32), mode="area") for seed in (1, 2))
    small = interpolate(cut, (size, size), mode="bilinear", antialias=True).numpy()
    slow = [
        max(
            correlation(whole[i, 0].numpy()[y : y + size, x : x + size], small[i, 0])
            for y in range(33 - size)
            for x in range(33 - size)
        )
        for i in range(3)
    ]
    assert checking._best_place(whole, cut, size).tolist() == pytest.approx(slow, abs=1e-4)


def test_copies_are_found_however_they_were_made() -> None:
    seen = pictures(12)
    cut = interpolate(seen[2:3, None, 3:58, 5:60], (64, 64), mode="bilinear", antialias=True)[:, 0]
    small = interpolate(seen[None, 1:2], (20, 20), mode="bilinear", antialias=True)
    small = interpolate(small, (64, 64), mode="bilinear")[0]
    noisy = (seen[3:4] + 8 * torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(0))).clamp(0, 255)
    flat = torch.full((2, 64, 64), 128.0)
    whole = torch.cat([seen, small, cut, noisy, seen[4:5].flip(2), flat])
    features = torch.eye(12)[[*range(12), 1, 2, 3, 4, 5, 5]] + 0.01  # flat pictures are alike in all but pixels
    found = checking.copies(features, whole)
    assert {(pair.first, pair.second) for pair in found} == {(1, 12), (2, 13), (3, 14), (4, 15)}
    assert checking.copies(features[:1], whole[:1]) == []
    assert checking.copies(torch.eye(3), seen[:3]) == []


def test_blurred_and_odd_pictures() -> None:
    seen = torch.rand(40, 64, 64, generator=torch.Generator().manual_seed(0)) * 255
    seen[7] = torch.nn.functional.avg_pool2d(seen[7][None], 9, 1, 4)[0]
    assert checking.blurred(seen).nonzero()[:, 0].tolist() == [7]
    features = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)) + 0.2 * torch.randn(
        40, 16, generator=torch.Generator().manual_seed(1)
    )
    features[5] = -features[5]
    assert checking.odd(features).nonzero()[:, 0].tolist() == [5]
    assert not checking.odd(features[:1]).any()
    assert not checking.blurred(torch.zeros(3, 8, 8)).any()
