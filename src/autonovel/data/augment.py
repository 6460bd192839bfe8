"""Random variations of images: batched, on the device, each image varied on its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.chance import Chance
from autonovel.settings.augment import SCALED, Augment

PAD = 4
"""The largest whole-pixel shift."""
JITTER_CHANCE = 0.8
"""How often brightness, contrast, saturation and hue change, as in SimCLR."""
COVERED, COVERED_SIDE = 0.5, 0.4
"""How often a square is covered in a scan, and its side as a share of the image's."""
DRAWS = 10
"""How often a part that does not fit into the image is drawn, as by torchvision; then the whole image is shown."""


def make_views(
    images: Tensor,
    key: Tensor,
    index: Tensor,
    settings: Augment,
    *,
    views: range,
    mirror: bool = False,
    size: int | None = None,
) -> list[Tensor]:
    """Several random views of each image, as :func:`make_view` makes them one by one, in as many operations as for one."""
    several = images.repeat(len(views), 1, 1, 1)
    return list(_vary(several, Chance(key, index, views), settings, mirror, size).chunk(len(views)))


def make_view(
    images: Tensor,
    key: Tensor,
    index: Tensor,
    settings: Augment,
    *,
    view: int = 0,
    mirror: bool = False,
    size: int | None = None,
) -> Tensor:
    """One random view of each image.

    Args:
        images: uint8 (n, h, w, c).
        key, index, view: see :class:`Chance`.
        settings: what may change.
        mirror: whether left and right are exchanged by chance.
        size: side of a smaller or larger result; the images' own when left out.

    Returns:
        float32 (n, c, h, w) in [0, 1], laid out channels-last.
    """
    return _vary(images, Chance(key, index, view), settings, mirror, size)


def _vary(images: Tensor, chance: Chance, settings: Augment, mirror: bool, size: int | None) -> Tensor:
    smooth = settings.kind in SCALED or settings.rotate or settings.zoom or settings.shift
    if smooth or (size is not None and size != images.shape[1]):
        pixels = _warp(to_float(images), chance, settings, mirror, size)
    else:
        pixels = to_float(_shift(images, chance, settings, mirror))
    if settings.jitter or settings.grey or settings.solarise:
        pixels = _recolour(pixels, chance, settings)
    if settings.kind == "scan":
        pixels = _cut_out(pixels, chance)
    return pixels


def _per_image(value: Tensor) -> Tensor:
    return value[:, None, None, None]


def to_float(images: Tensor) -> Tensor:
    """uint8 (n, h, w, c) as float (n, c, h, w) in [0, 1], laid out channels-last."""
    return images.permute(0, 3, 1, 2).float() / 255


def quarter_turns(images: Tensor) -> Tensor:
    """Every image in all four rotations: (n, c, h, w) to (4 n, c, h, w), all of one rotation together.

    Row i + n r is image i turned by r quarter turns. Images must be square.
    """
    return torch.cat([torch.rot90(images, r, (2, 3)) for r in range(4)])


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Each image (n, c, h, w) turned by its own number of quarter turns, int64 (n,) from 0 to 3. Images must be square."""
    n = len(images)
    return quarter_turns(images).index_select(0, n * turns + torch.arange(n, device=images.device))


def _shift(images: Tensor, chance: Chance, settings: Augment, mirror: bool) -> Tensor:
    """Whole-pixel crop and flip by index arithmetic, on uint8."""
    n, h, w, _ = images.shape
    rows = torch.arange(h, device=images.device).expand(n, h)
    cols = torch.arange(w, device=images.device).expand(n, w)
    if mirror:
        cols = torch.where(chance.coin()[:, None], w - 1 - cols, cols)
    if settings.kind not in ("shift", "reflect"):
        return _pick(images, rows, cols)
    rows = rows + chance.integer(-PAD, PAD)[:, None]
    cols = cols + chance.integer(-PAD, PAD)[:, None]
    if settings.kind == "reflect":
        rows, cols = _reflect(rows, h), _reflect(cols, w)
        inside = None
    else:
        inside = ((rows >= 0) & (rows < h))[:, :, None] & ((cols >= 0) & (cols < w))[:, None, :]
        rows, cols = rows.clamp(0, h - 1), cols.clamp(0, w - 1)
    out = _pick(images, rows, cols)
    return out if inside is None else out * inside[..., None]


def _pick(images: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The pixels at the rows (n, h) and columns (n, w) of each image (n, h, w, c)."""
    n, h, w, c = images.shape
    first = h * torch.arange(n, device=images.device)[:, None]
    places = w * (first + rows)[:, :, None] + cols[:, None, :]
    # one list of whole pixels: on a CPU four times as fast as indexing by image, row and column
    return images.reshape(-1, c).index_select(0, places.flatten()).view(n, h, w, c)


def _reflect(position: Tensor, size: int) -> Tensor:
    """Positions outside 0 .. size - 1 mirrored at the border pixel, as often as needed."""
    if size == 1:
        return torch.zeros_like(position)
    period = 2 * (size - 1)
    position = position.remainder(period)
    return torch.minimum(position, period - position)


def _warp(pixels: Tensor, chance: Chance, settings: Augment, mirror: bool, size: int | None) -> Tensor:
    """Scaled crops, flips, rotations, zooms and shifts in one bilinear sampling."""
    n, c, h, w = pixels.shape
    one, zero = pixels.new_ones(n), pixels.new_zeros(n)
    scale_x, scale_y, move_x, move_y = one, one, zero, zero
    if settings.kind in SCALED:
        scale_x, scale_y = part_sides(chance, settings)
        move_x = (1 - scale_x) * chance.uniform(-1, 1)
        move_y = (1 - scale_y) * chance.uniform(-1, 1)
    if settings.kind in ("shift", "reflect", "mixed"):
        # a whole-pixel shift, in units of half the side
        shift_x = chance.integer(-PAD, PAD) * (2 / w)
        shift_y = chance.integer(-PAD, PAD) * (2 / h)
        plain = chance.coin() if settings.kind == "mixed" else torch.ones_like(one, dtype=torch.bool)
        scale_x, scale_y = torch.where(plain, one, scale_x), torch.where(plain, one, scale_y)
        move_x, move_y = torch.where(plain, shift_x, move_x), torch.where(plain, shift_y, move_y)
    if mirror:
        scale_x = torch.where(chance.coin(), -scale_x, scale_x)
    if settings.zoom:
        zoom = chance.uniform(1 - settings.zoom, 1 + settings.zoom)
        scale_x, scale_y = scale_x / zoom, scale_y / zoom
    if settings.shift:
        move_x = move_x + chance.uniform(-2 * settings.shift, 2 * settings.shift)
        move_y = move_y + chance.uniform(-2 * settings.shift, 2 * settings.shift)
    angle = chance.uniform(-settings.rotate, settings.rotate) * (math.pi / 180) if settings.rotate else zero
    cos, sin = torch.cos(angle), torch.sin(angle)
    theta = torch.stack(
        [
            torch.stack([scale_x * cos, -scale_y * sin, move_x], 1),
            torch.stack([scale_x * sin, scale_y * cos, move_y], 1),
        ],
        1,
    )
    side = (size, size) if size is not None else (h, w)
    grid = F.affine_grid(theta, [n, c, *side], align_corners=False)
    if settings.kind == "reflect":
        # mirrored at the border pixel, as by a whole-pixel shift; grid_sample itself would mirror at the pixel's outer edge
        x, y = (
            (2 * _reflect((grid[..., i] + 1) * side / 2 - 0.5, side) + 1) / side - 1 for i, side in enumerate((w, h))
        )
        grid = torch.stack([x, y], -1)
    outside = "border" if settings.kind == "drawing" else "zeros"
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode=outside, align_corners=False)


def part_sides(chance: Chance, settings: Augment) -> tuple[Tensor, Tensor]:
    """Width and height (n,) of the part that a scaled crop shows, as shares of the image's."""

    def draw() -> tuple[Tensor, Tensor]:
        area = chance.uniform(*settings.area)
        ratio = torch.exp(chance.uniform(math.log(3 / 4), math.log(4 / 3)))
        return (area * ratio).sqrt(), (area / ratio).sqrt()

    if settings.kind not in ("redrawn", "drawing"):
        width, height = draw()
        return width.clamp(max=1.0), height.clamp(max=1.0)
    width, height = torch.stack([torch.stack(draw()) for _ in range(DRAWS)]).unbind(1)
    fits = (width <= 1) & (height <= 1)
    first, some = fits.int().argmax(0, keepdim=True), fits.any(0)
    width, height = (torch.where(some, side.gather(0, first)[0], 1.0) for side in (width, height))
    return width, height


def _recolour(pixels: Tensor, chance: Chance, settings: Augment) -> Tensor:
    """Brightness, contrast, saturation, hue, dropped colour and inverted highlights."""
    colour = pixels.shape[1] == 3

    def grey_of(x: Tensor) -> Tensor:
        return 0.299 * x[:, 0:1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:3] if colour else x

    if settings.jitter:
        strength, apply = settings.jitter, _per_image(chance.coin(JITTER_CHANCE))
        changed = (pixels * _per_image(chance.uniform(1 - strength, 1 + strength))).clamp(0, 1)
        mean = grey_of(changed).mean((1, 2, 3), keepdim=True)
        changed = (mean + (changed - mean) * _per_image(chance.uniform(1 - strength, 1 + strength))).clamp(0, 1)
        if colour:
            grey = grey_of(changed)
            changed = (grey + (changed - grey) * _per_image(chance.uniform(1 - strength, 1 + strength))).clamp(0, 1)
            changed = _turn_hue(changed, chance.uniform(-strength / 4, strength / 4) * (2 * math.pi)).clamp(0, 1)
        pixels = torch.where(apply, changed, pixels)
    if settings.grey and colour:
        pixels = torch.where(_per_image(chance.coin(settings.grey)), grey_of(pixels).expand_as(pixels), pixels)
    if settings.solarise:
        inverted = torch.where(pixels >= 0.5, 1 - pixels, pixels)
        pixels = torch.where(_per_image(chance.coin(settings.solarise)), inverted, pixels)
    return pixels


def _turn_hue(pixels: Tensor, angle: Tensor) -> Tensor:
    """Turn the colours around the grey axis: a rotation in RGB about (1, 1, 1)."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    third, root = (1 - cos) / 3, sin / math.sqrt(3)
    red, green, blue = pixels.unbind(1)

    def blend(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        own, before, after = cos + third, third - root, third + root
        return own[:, None, None] * a + before[:, None, None] * b + after[:, None, None] * c

    return torch.stack([blend(red, green, blue), blend(green, blue, red), blend(blue, red, green)], 1)


def _cut_out(pixels: Tensor, chance: Chance) -> Tensor:
    """Cover a square around a random pixel of some images with their mean colour; parts of it may lie outside."""
    h, w = pixels.shape[2:]
    covered = chance.coin(COVERED)[:, None]
    inside = []
    for side in (h, w):
        centre = chance.uniform(0, side)[:, None]
        places = torch.arange(side, device=pixels.device) + 0.5
        inside.append(((places - centre).abs() < COVERED_SIDE * side / 2) & covered)
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square, pixels.mean((2, 3), keepdim=True), pixels)
