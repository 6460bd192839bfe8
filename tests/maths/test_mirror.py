"""Whether mirrored images still show their class, against a plain loop and on classes made for the question."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths.mirror import LEAST_ERRORS, LEAST_LOSS, Mirrored, look_mirrored


def slow(images: Tensor, labels: Tensor) -> tuple[float, float, float]:
    """Shares and standard error, image by image and pixel by pixel."""

    def centred(image: Tensor) -> list[float]:
        values = [float(v) for v in image.permute(2, 0, 1).flatten().tolist()]
        mean = sum(values) / len(values)
        return [v - mean for v in values]

    def similarity(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / max(1e-12, math.hypot(*a) * math.hypot(*b))

    def finds(image: Tensor, number: int) -> bool:
        others = [j for j in range(len(images)) if j != number]
        return bool(labels[max(others, key=lambda j: similarity(centred(image), centred(images[j])))] == labels[number])

    plain = [finds(images[i], i) for i in range(len(images))]
    mirrored = [finds(images[i].flip(1), i) for i in range(len(images))]
    change = [int(p) - int(m) for p, m in zip(plain, mirrored, strict=True)]
    mean = sum(change) / len(change)
    variance = sum((c - mean) ** 2 for c in change) / len(change)
    return sum(plain) / len(plain), sum(mirrored) / len(mirrored), math.sqrt(variance / len(change))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31), n=st.integers(2, 9), height=st.integers(2, 5), width=st.integers(2, 5),
    channels=st.sampled_from([1, 3]),
)  # fmt: skip
def test_it_counts_what_the_loop_counts(seed: int, n: int, height: int, width: int, channels: int) -> None:
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.integers(0, 256, (n, height, width, channels), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 2, n))
    found = look_mirrored(images, labels)
    assert (found.plain, found.mirrored, found.standard_error) == pytest.approx(slow(images, labels))


def corners(n: int, *, left_and_right: bool, side: int = 24) -> tuple[Tensor, Tensor]:
    """Two classes: a bright patch left or right, or one above or below that may lie on either side."""
    rng = np.random.default_rng(0)
    images, labels = rng.normal(60, 15, (n, side, side, 1)), np.arange(n) % 2
    for image, label in zip(images, labels, strict=True):
        row, column = (rng.integers(2), label) if left_and_right else (label, rng.integers(2))
        image[12 * row + 2 : 12 * row + 10, 12 * column + 2 : 12 * column + 10] += 120
    return torch.from_numpy(images.clip(0, 255).astype(np.uint8)), torch.from_numpy(labels)


def test_classes_that_are_each_others_mirror_image_forbid_mirroring() -> None:
    found = look_mirrored(*corners(80, left_and_right=True))
    assert found.plain > 0.95
    assert found.mirrored < 0.05
    assert found.harmful
    assert "views are not mirrored: labelled images find their class in 100% of cases, mirrored ones in 0%" in str(
        found.sentence()
    )


def test_classes_that_lie_on_either_side_allow_it() -> None:
    found = look_mirrored(*corners(80, left_and_right=False))
    assert found.mirrored > 0.95
    assert not found.harmful
    assert found.sentence().startswith("views are mirrored:")


def test_symmetric_images_gain_nothing_by_being_compared_with_themselves() -> None:
    """Each is its own mirror image; alone in its class it must not find itself."""
    half = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (6, 8, 4, 1), dtype=np.uint8))
    found = look_mirrored(torch.cat([half, half.flip(2)], 2), torch.arange(6))
    assert found.plain == found.mirrored == 0


def test_chance_and_small_losses_do_not_decide() -> None:
    assert not Mirrored(0.9, 0.9 - LEAST_LOSS / 2, 0.0).harmful
    assert Mirrored(0.9, 0.9 - 2 * LEAST_LOSS, 0.0).harmful
    assert not Mirrored(0.9, 0.8, 0.1 / LEAST_ERRORS + 0.001).harmful
    assert Mirrored(0.9, 0.8, 0.1 / LEAST_ERRORS - 0.001).harmful


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_images_decide_nothing(n: int) -> None:
    assert not look_mirrored(torch.zeros(n, 4, 4, 3, dtype=torch.uint8), torch.arange(n)).harmful
