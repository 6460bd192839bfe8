"""Plain convolutional networks that keep the spatial layout: the paper's VGG for characters, and a small one."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from autonovel.models.layers import Conv2d
from autonovel.models.views import BatchNorm, Chain


def _block(inputs: int, outputs: int, *, pool: bool, exact: bool = False) -> Chain:
    layers: list[nn.Module] = [Conv2d(inputs, outputs, 3, padding=1), BatchNorm(outputs, exact=exact)]
    # the largest value before or after ReLU is the same one, and after pooling there are a quarter as many
    return Chain(*layers, *([nn.MaxPool2d(2)] if pool else []), nn.ReLU())


def vgg(channels: int, width: int, size: int) -> tuple[Chain, int]:
    """Four convolution blocks 'layer1' .. 'layer4' (width, 2, 4 and 4 times width), each halving the image; flattened.

    The last one is normalised and pooled in float32, so that ranks of features do not tie.
    """
    widths = [width, 2 * width, 4 * width, 4 * width]
    return _stack(channels, widths, size, pools=4, exact=True)


def small(channels: int, width: int, size: int) -> tuple[Chain, int]:
    """Four convolution blocks 'layer1' .. 'layer4' for tiny images; halves the image until 2x2 are left and flattens that."""
    widths = [width, 2 * width, 4 * width, 4 * width]
    pools = 0
    while pools < 4 and size >> (pools + 1) >= 2:
        pools += 1
    return _stack(channels, widths, size, pools=pools)


def _stack(channels: int, widths: list[int], size: int, *, pools: int, exact: bool = False) -> tuple[Chain, int]:
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    inputs, side = channels, size
    for number, outputs in enumerate(widths):
        last = number == len(widths) - 1
        blocks[f"layer{number + 1}"] = _block(inputs, outputs, pool=number < pools, exact=exact and last)
        inputs, side = outputs, side // 2 if number < pools else side
    blocks["pool"] = nn.Flatten()
    return Chain(blocks), inputs * side * side


def pixels(channels: int, size: int) -> tuple[Chain, int]:
    """No network at all: the pixels themselves, flattened."""
    return Chain(OrderedDict(pool=nn.Flatten())), channels * size * size
