"""Variations of images against numpy on the same drawn numbers; the drawn numbers themselves."""

import functools
import math
from dataclasses import replace
from itertools import product
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Node

from autonovel.base.chance import Chance, make_key
from autonovel.data.augment import (
    DRAWS,
    _cut_out,
    _turn_hue,
    make_view,
    make_views,
    part_sides,
    quarter_turns,
    to_float,
)
from autonovel.settings.augment import Augment

EVERYTHING = Augment("mixed", rotate=20.0, zoom=0.2, shift=0.1, jitter=0.8, grey=0.3, solarise=0.3)
SIZES = [(8, 8), (5, 9), (1, 1), (2, 7), (32, 32)]


def pictures(n: int, height: int, width: int, channels: int = 3, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (n, height, width, channels), dtype=np.uint8))


def as_bytes(view: torch.Tensor) -> np.ndarray:
    """A view as (n, h, w, c) in the range of uint8."""
    return (view * 255).permute(0, 2, 3, 1).numpy()


def shifted(image: np.ndarray, down: int, right: int, flip: bool, pad: int, mode: str) -> np.ndarray:
    """Pad, cut out at the drawn place, mirror."""
    border = ((pad, pad), (pad, pad), (0, 0))
    padded = np.pad(image, border, mode="reflect") if mode == "reflect" else np.pad(image, border)
    height, width = image.shape[:2]
    cut = padded[pad + down : pad + down + height, pad + right : pad + right + width]
    return cut[:, ::-1] if flip else cut


# ---- whole-pixel shifts and flips


@pytest.mark.parametrize("mode", ["shift", "reflect", "none"])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_shift_and_flip_agree_with_numpy(mode: str, flip: bool, size: tuple[int, int]) -> None:
    n, pad = 150, 4
    images, index, key = pictures(n, *size), torch.arange(n) + 17, torch.tensor(123)
    view = make_view(images, key, index, Augment(mode), view=1, mirror=flip)
    chance = Chance(key, index, view=1)
    flips = chance.coin().tolist() if flip else [False] * n
    down, right = ([0] * n, [0] * n) if mode == "none" else (chance.integer(-pad, pad).tolist() for _ in range(2))
    expected = [shifted(images[i].numpy(), down[i], right[i], flips[i], pad, mode) for i in range(n)]
    np.testing.assert_allclose(as_bytes(view), np.stack(expected), atol=1e-3)
    if mode != "none":
        assert set(down) == set(right) == set(range(-pad, pad + 1))  # all shifts were seen
    if flip:
        assert len(set(flips)) == 2


@pytest.mark.parametrize("mode", ["shift", "reflect"])
@pytest.mark.parametrize("size", SIZES)
def test_whole_pixel_shifts_come_out_the_same_from_the_smooth_path(mode: str, size: tuple[int, int]) -> None:
    n, pad = 40, 4
    images, index, key = pictures(n, *size), torch.arange(n), torch.tensor(7)
    # a rotation by nothing at all is enough to take the path that samples between pixels
    view = make_view(images, key, index, Augment(mode, rotate=1e-9), mirror=True)
    chance = Chance(key, index)
    right, down = chance.integer(-pad, pad).tolist(), chance.integer(-pad, pad).tolist()
    flips = chance.coin().tolist()
    expected = [shifted(images[i].numpy(), down[i], right[i], flips[i], pad, mode) for i in range(n)]
    np.testing.assert_allclose(as_bytes(view), np.stack(expected), atol=0.05)


def test_no_variation_changes_nothing() -> None:
    images = pictures(5, 6, 6)
    plain = make_view(images, torch.tensor(1), torch.arange(5), Augment("none"))
    assert torch.equal(plain, to_float(images))
    whole = Augment("crop", area=(1.0, 1.0))
    ratio_only = make_view(images, torch.tensor(1), torch.arange(5), whole)
    assert ratio_only.shape == plain.shape


def test_to_float_keeps_values_and_layout() -> None:
    images = pictures(3, 4, 5)
    pixels = to_float(images)
    assert pixels.shape == (3, 3, 4, 5)
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(as_bytes(pixels), images.numpy(), atol=1e-4)


# ---- rotations


@pytest.mark.parametrize("size", [1, 4, 5])
def test_quarter_turns_agree_with_numpy(size: int) -> None:
    images = torch.rand(3, 2, size, size)
    turned = quarter_turns(images)
    assert turned.shape == (12, 2, size, size)
    for r in range(4):
        for i in range(3):
            np.testing.assert_array_equal(turned[i + 3 * r].numpy(), np.rot90(images[i].numpy(), r, (1, 2)))


def test_rotation_by_a_right_angle_is_a_quarter_turn() -> None:
    # the only angles drawn from [-90, 90] that can be checked exactly are found by looking at the drawn number
    images, n = pictures(200, 9, 9), 200
    view = make_view(images, torch.tensor(3), torch.arange(n), Augment("none", rotate=90.0))
    angle = Chance(torch.tensor(3), torch.arange(n)).uniform(-90, 90)
    nearest = int(angle.sub(90).abs().argmin())
    turned = [np.rot90(images[nearest].numpy(), r) for r in (1, 3)]
    away = [np.abs(as_bytes(view)[nearest] - t)[2:-2, 2:-2].mean() for t in turned]
    assert min(away) < 20 < max(away)


def test_beyond_the_image_lies_black_or_its_edge() -> None:
    vary = Augment("crop", area=(1.0, 1.0), rotate=45.0, zoom=0.2)

    def views(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        black, edge = (
            make_view(images, torch.tensor(3), torch.arange(40), replace(vary, kind=kind))
            for kind in ("redrawn", "drawing")
        )
        return black, edge

    black, edge = views(torch.full((40, 9, 9, 1), 255, dtype=torch.uint8))
    assert black.min() < 0.01
    assert edge.min() > 0.999
    inside = black > 0.999  # where the whole image is seen, both show the same of it
    assert 0 < inside.float().mean() < 1
    black, edge = views(pictures(40, 9, 9)[..., :1])
    torch.testing.assert_close(edge[inside], black[inside], atol=1e-5, rtol=0)
    assert not torch.allclose(edge, black)


# ---- ranges, sizes, colours


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [None, 6, 20])
@pytest.mark.parametrize("kind", get_args(get_type_hints(Augment)["kind"]))
def test_values_stay_between_zero_and_one(channels: int, size: int | None, kind: str) -> None:
    images = pictures(60, 12, 12, channels)
    images[:20] = 255
    images[20:40] = 0
    view = make_view(images, torch.tensor(5), torch.arange(60), replace(EVERYTHING, kind=kind), mirror=True, size=size)
    assert view.shape == (60, channels, size or 12, size or 12)
    assert view.dtype == torch.float32
    assert view.min() >= 0
    assert view.max() <= 1 + 1e-6
    assert view.isfinite().all()


def test_a_scaled_part_lies_inside_the_image() -> None:
    # white images have no black corner in them unless the crop leaves the image
    images = torch.full((200, 16, 16, 1), 255, dtype=torch.uint8)
    view = make_view(images, torch.tensor(5), torch.arange(200), Augment("crop", area=(0.2, 0.9)))
    assert view[:, :, 2:-2, 2:-2].min() > 1 - 1e-5
    assert view.min() > 0.4  # only the outermost pixels may be mixed with the black outside


@pytest.mark.parametrize("area", [(0.85, 1.0), (0.2, 1.0), (1.0, 1.0)])
def test_a_part_that_does_not_fit_is_drawn_again(area: tuple[float, float]) -> None:
    n, key, index = 2000, torch.tensor(11), torch.arange(2000)
    found = torch.stack(part_sides(Chance(key, index), Augment("redrawn", area=area)))
    chance, expected = Chance(key, index), torch.ones(2, n)
    drawn = [(chance.uniform(*area), chance.uniform(math.log(3 / 4), math.log(4 / 3)).exp()) for _ in range(DRAWS)]
    for i in range(n):
        for share, ratio in drawn:
            sides = math.sqrt(share[i] * ratio[i]), math.sqrt(share[i] / ratio[i])
            if max(sides) <= 1:
                expected[:, i] = torch.tensor(sides)
                break
    torch.testing.assert_close(found, expected)
    cut_off = torch.stack(part_sides(Chance(key, index), Augment("crop", area=area)))
    stretch = [(sides[0] / sides[1]).log().abs().mean() for sides in (found, cut_off)]
    assert stretch[0] < stretch[1]


def test_smaller_views_of_the_whole_image_are_an_average_of_it() -> None:
    images = torch.full((4, 16, 16, 3), 100, dtype=torch.uint8)
    view = make_view(images, torch.tensor(5), torch.arange(4), Augment("none"), size=8)
    np.testing.assert_allclose(view.numpy() * 255, 100, atol=1e-3)


def test_turning_the_hue_by_nothing_changes_nothing() -> None:
    pixels = torch.rand(6, 3, 5, 5)
    assert torch.allclose(_turn_hue(pixels, torch.zeros(6)), pixels, atol=1e-6)
    assert torch.allclose(_turn_hue(pixels, torch.full((6,), 2 * math.pi)), pixels, atol=1e-5)
    # a third of a turn moves the channels on by one, and grey stays grey at any angle
    moved = _turn_hue(pixels, torch.full((6,), 2 * math.pi / 3))
    turns = [torch.allclose(moved, pixels.roll(step, 1), atol=1e-5) for step in (1, 2)]
    assert sorted(turns) == [False, True]
    grey = torch.rand(6, 1, 5, 5).expand(-1, 3, -1, -1)
    assert torch.allclose(_turn_hue(grey, torch.rand(6) * 6), grey, atol=1e-5)


def test_colour_changes_can_be_certain_or_impossible() -> None:
    images, index, key = pictures(50, 6, 6), torch.arange(50), torch.tensor(2)
    still = Augment("none")
    plain = to_float(images)
    grey = make_view(images, key, index, replace(still, grey=1.0))
    luma = (plain * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    assert torch.allclose(grey, luma.expand(-1, 3, -1, -1), atol=1e-5)
    inverted = make_view(images, key, index, replace(still, solarise=1.0))
    assert torch.allclose(inverted, torch.where(plain >= 0.5, 1 - plain, plain))
    jittered = make_view(images, key, index, replace(still, jitter=0.5))
    expected = Chance(key, index).coin(0.8).tolist()
    assert [not torch.allclose(a, b, atol=1e-3) for a, b in zip(jittered, plain, strict=True)] == expected
    assert 30 < sum(expected) < 50


# ---- covered squares


def test_covered_squares_lie_where_they_were_drawn() -> None:
    n, key, index = 60, torch.tensor(8), torch.arange(60)
    images = pictures(n, 10, 6)
    view = _cut_out(to_float(images), Chance(key, index))
    chance = Chance(key, index)
    covered, ys, xs = chance.coin(0.5).tolist(), chance.uniform(0, 10).tolist(), chance.uniform(0, 6).tolist()
    for image, result, is_covered, y, x in zip(to_float(images), view, covered, ys, xs, strict=True):
        for row, col in product(range(10), range(6)):
            inside = is_covered and abs(row + 0.5 - y) < 2 and abs(col + 0.5 - x) < 1.2
            torch.testing.assert_close(result[:, row, col], image.mean((1, 2)) if inside else image[:, row, col])
    assert 20 < sum(covered) < 40


def test_views_are_one_graph_without_a_look_at_values() -> None:
    def views(images: torch.Tensor, key: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.cat(make_views(images, key, index, EVERYTHING, views=range(2), mirror=True))

    compiled = torch.compile(views, backend="eager", fullgraph=True, dynamic=False)
    given = pictures(3, 8, 8), torch.tensor(1), torch.arange(3)
    torch.testing.assert_close(compiled(*given), views(*given))


# ---- the drawn numbers


def test_numbers_are_uniform() -> None:
    chance = Chance(torch.tensor(make_key(0, "joint", 3)), torch.arange(100_000))
    for _ in range(20):
        numbers = chance.uniform().numpy()
        assert numbers.min() >= 0
        assert numbers.max() < 1
        counts = np.histogram(numbers, 100, (0, 1))[0]
        chi_squared = ((counts - 1000) ** 2 / 1000).sum()
        assert 45 < chi_squared < 180  # 99 degrees of freedom; far beyond one in a million either way
    whole = chance.integer(-4, 4)
    assert sorted(set(whole.tolist())) == list(range(-4, 5))
    assert np.abs(np.bincount(whole.numpy() + 4) / 100_000 - 1 / 9).max() < 0.006
    assert abs(chance.coin(0.3).float().mean().item() - 0.3) < 0.01


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return abs(float(np.corrcoef(a.numpy(), b.numpy())[0, 1]))


def test_numbers_are_independent_over_slots_images_epochs_and_views() -> None:
    n = 50_000
    index = torch.arange(n)

    def slots(key: int, view: int = 0, places: torch.Tensor = index) -> list[torch.Tensor]:
        chance = Chance(torch.tensor(key), places, view)
        return [chance.uniform() for _ in range(6)]

    first = slots(make_key(0, "joint", 0))
    others = {
        "the next epoch": slots(make_key(0, "joint", 1)),
        "a key that differs by one": slots(make_key(0, "joint", 0) ^ 1),
        "another view": slots(make_key(0, "joint", 0), view=1),
        "the next image": slots(make_key(0, "joint", 0), places=index + 1),
        "an image far away": slots(make_key(0, "joint", 0), places=index + 65536),
    }
    bound = 5 / math.sqrt(n)
    for a in range(6):
        for b in range(6):
            if a < b:
                assert correlation(first[a], first[b]) < bound, (a, b)
            for name, numbers in others.items():
                assert correlation(first[a], numbers[b]) < bound, (name, a, b)
    # not only uncorrelated: pairs of numbers fill the square evenly
    grid = np.histogram2d(first[0].numpy(), first[1].numpy(), 10, [[0, 1], [0, 1]])[0]
    assert np.abs(grid / n - 0.01).max() < 0.003


@pytest.mark.parametrize("settings_", [Augment("reflect"), Augment("mixed", jitter=0.4, solarise=0.2, rotate=10.0)])
@pytest.mark.parametrize("size", [None, 5])
def test_views_made_together_are_those_made_alone(settings_: Augment, size: int | None) -> None:
    images, key, index = pictures(6, 8, 8), torch.tensor(17), torch.arange(6) * 11
    together = make_views(images, key, index, settings_, views=range(1, 4), size=size)
    assert len(together) == 3
    for number, view in enumerate(together, 1):
        torch.testing.assert_close(view, make_view(images, key, index, settings_, view=number, size=size))


def test_no_two_images_share_their_numbers() -> None:
    chance = Chance(torch.tensor(99), torch.arange(20_000))
    rows = torch.stack([chance.uniform() for _ in range(3)], 1)
    assert len(torch.unique(rows, dim=0)) == 20_000


@settings(max_examples=30, deadline=None)
@given(key=st.integers(0, 2**31 - 1), view=st.integers(0, 9), seed=st.integers(0, 1000))
def test_a_view_depends_on_image_key_and_view_alone(key: int, view: int, seed: int) -> None:
    images, index = pictures(12, 8, 8, seed=seed), torch.arange(12) * 1000
    whole = make_view(images, torch.tensor(key), index, EVERYTHING, view=view, mirror=True)
    assert torch.equal(make_view(images, torch.tensor(key), index, EVERYTHING, view=view, mirror=True), whole)
    some = torch.from_numpy(np.random.default_rng(seed).permutation(12)[:5])
    apart = make_view(images[some], torch.tensor(key), index[some], EVERYTHING, view=view, mirror=True)
    assert torch.allclose(apart, whole[some], atol=1e-6)
    other = make_view(images, torch.tensor(key), index, EVERYTHING, view=view + 1)
    assert not torch.allclose(other, whole, atol=1e-2)


def test_keys_are_numbers_of_31_bits_that_tell_their_parts_apart() -> None:
    keys = [make_key(*parts) for parts in product(range(10), ("pretrain", "joint"), range(50))]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 2**31 for key in keys)
    assert make_key(1, 23) != make_key(12, 3)
    assert make_key(0, "joint", 0) == make_key(0, "joint", 0)


def test_numbers_counted_on_the_device_are_not_multiplied_by_large_ones() -> None:
    # torch's compiler takes them for int32 indices on a GPU, and refuses the product
    from torch.fx.experimental.proxy_tensor import make_fx

    images = torch.zeros(3, 8, 8, 3, dtype=torch.uint8)
    graph = make_fx(lambda *rows: make_views(*rows, EVERYTHING, views=range(2), mirror=True))(
        images, torch.tensor(1), torch.arange(3)
    ).graph

    @functools.cache
    def depends_on_arguments(node: Node) -> bool:
        return node.op == "placeholder" or any(map(depends_on_arguments, node.all_input_nodes))

    products = [node for node in graph.nodes if node.target == torch.ops.aten.mul.Tensor]
    large = [node for node in products if any(isinstance(x, int) and x >= 1 << 31 for x in node.args)]
    assert large  # those of the hash
    assert all(map(depends_on_arguments, large))
