"""Discovery must beat k-means on pixels where pixels say nothing of the class."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autonovel as an
from autonovel.data.images import ImageSet, Truth
from autonovel.settings.recipes import get_recipe

KNOWN, CLASSES, EACH, SIDE = 3, 5, 60, 16


def stripes(labels: np.ndarray, seed: int) -> np.ndarray:
    """A class is the direction of stripes; where they begin, their contrast and the colour are chance."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE]
    images = []
    for angle in np.pi * labels / CLASSES:
        wave = np.sin(1.2 * (np.cos(angle) * x + np.sin(angle) * y) + rng.uniform(0, 2 * np.pi))
        image = 127 + rng.uniform(60, 90) * wave[..., None] + 40 * rng.uniform(-1, 1, 3)
        images.append(np.clip(image + rng.normal(0, 10, image.shape), 0, 255))
    return np.array(images, dtype=np.uint8)


@pytest.mark.parametrize("method", ["autonovel", "scratch"])
def test_discovery_finds_what_k_means_on_pixels_does_not(tmp_path: Path, method: str) -> None:
    truth = np.tile(np.arange(CLASSES), EACH)
    data = ImageSet.from_arrays(stripes(truth, 0), np.where(truth < KNOWN, truth, -1))
    base = get_recipe("digits")
    recipe = replace(
        base,
        method=method,
        model=replace(base.model, networks=1, width=8),
        supervised=replace(base.supervised, epochs=6, batch=64),
        joint=replace(base.joint, epochs=8, batch=64),
    )
    run = an.discover(
        data,
        out=tmp_path / "run",
        n_new=CLASSES - KNOWN,
        recipe=recipe,
        truth=Truth(truth, tuple("abcde")),
        device="cpu",
        report=False,
    )
    assert run.summary["kmeans"]["pixels"] < 0.65  # two classes: half is chance
    assert run.summary["acc_new"] > 0.9
    # and further images are recognised, known and new ones
    more = np.repeat(np.arange(CLASSES), 8)
    answers = run.predict(stripes(more, 1), pile="mixed", device="cpu", cache=tmp_path / "cache")
    found = [run.classes.index(answer.name) for answer in answers]
    known = more < KNOWN
    assert np.mean(np.array(found)[known] == more[known]) > 0.8
    assert np.mean(np.array(found)[~known] >= KNOWN) > 0.8
