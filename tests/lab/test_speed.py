"""The plain loop that speed is measured against computes what the package computes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import plain_loop
import pytest
import speed
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.data.augment import quarter_turns, to_float
from autonovel.data.loader import Batch
from autonovel.maths.losses import pair_loss
from autonovel.maths.pairs import rank_statistics
from autonovel.methods.base import losses_of
from autonovel.settings.augment import Augment
from tests.lab.conftest import Script

STILL = Augment("none")


@pytest.mark.parametrize("stage", speed.STAGES)
def test_both_sides_have_the_same_losses(stage: str) -> None:
    recipe = speed.make_recipe("small", 4, 3)
    recipe = replace(
        recipe,
        mirror="no",
        pretrain=replace(recipe.pretrain, augment=STILL),
        supervised=replace(recipe.supervised, augment=STILL),
        joint=replace(recipe.joint, augment=STILL),
    )
    net, method = speed.prepare(stage, recipe, 16)
    pixels, labels = (torch.from_numpy(part) for part in speed.make_data(40, 16))
    if stage == "supervised":
        pixels, labels = pixels[labels >= 0], labels[labels >= 0]
    places = torch.arange(len(labels))
    batch = Batch(pixels, labels, places, places)
    ours = losses_of(method, net, batch, torch.tensor(1), torch.tensor(0.3))
    view = to_float(pixels)
    views = list(quarter_turns(view).chunk(4)) if stage == "rotation" else [view, view]
    plain = plain_loop.losses_of(stage, net, views, labels, method.settings, 0.3)
    assert ours.keys() == plain.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], plain[name])


@given(n=st.integers(2, 12), d=st.integers(5, 9), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_written_out_pairs_are_those_of_the_matrix(n: int, d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(n, d, generator=generator)
    first, second = (torch.rand(n, 3, generator=generator).softmax(1) for _ in range(2))
    new = torch.ones(n, dtype=torch.bool)
    new[: n // 3] = False
    same = plain_loop.same_top_k(features[new], 4)
    matrix = rank_statistics(features, 4)
    assert torch.equal(same.view(int(new.sum()), -1).float(), matrix[new][:, new])
    plain = plain_loop.pairwise_loss(first[new], second[new], same)
    torch.testing.assert_close(pair_loss(first, second, matrix, new), plain)


@pytest.mark.parametrize("stage", speed.STAGES)
def test_both_sides_take_the_same_number_of_steps_and_both_learn(stage: str) -> None:
    _, method = speed.prepare(stage, speed.make_recipe("small", 4, 3), 16)
    net, _ = speed.prepare(stage, speed.make_recipe("small", 4, 3), 16)
    pixels, labels = speed.make_data(300, 16)
    loop = plain_loop.PlainLoop(stage, net, pixels, labels, method.settings, workers=0)
    before = {name: value.clone() for name, value in net.named_parameters() if value.requires_grad}
    _, _, steps = loop.epoch(0)
    assert steps == len(method.order(torch.from_numpy(labels), 0))
    assert all(not torch.equal(value, before[name]) for name, value in net.named_parameters() if name in before)


def test_a_plain_view_is_a_shift_or_its_mirror_image() -> None:
    from PIL import Image

    pixels = speed.make_data(1, 16)[0][0]
    padded = np.pad(pixels, ((4, 4), (4, 4), (0, 0)))
    shifts = [padded[top : top + 16, left : left + 16] for top in range(9) for left in range(9)]
    for _ in range(20):
        view = np.asarray(plain_loop.random_view(Image.fromarray(pixels), 4))
        assert any(np.array_equal(view, s) or np.array_equal(view[:, ::-1], s) for s in shifts)


SMALLEST = ["--quick", "--backbone", "small", "--width", 4, "--images", 64, "--rounds", 1, "--workers", 0]


@pytest.mark.long
def test_the_two_sides_are_compared(script: Script, tmp_path: Path) -> None:
    done = script("speed.py", *SMALLEST, "--stages", "joint", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads((tmp_path / "out.json").read_text())["stages"]
    assert row["stage"] == "joint"
    assert row["ratio"] == pytest.approx(row["plain"]["epoch_s"] / row["ours"]["epoch_s"])


def test_a_side_that_fails_ends_the_comparison(script: Script) -> None:
    done = script("speed.py", *SMALLEST, "--backbone", "smal", "--stages", "joint")
    assert done.returncode == 1
    assert done.stderr.endswith("The side 'ours' of the comparison failed; its own message stands above.\n")
