"""ResNet-18 (He et al., 2016) in the form for small images and in the standard form."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.models.layers import Conv2d
from autonovel.models.views import BatchNorm, Chain, GlobalAverage, PerView, pass_through


def _conv(inputs: int, outputs: int, stride: int = 1) -> Conv2d:
    return Conv2d(inputs, outputs, 3, stride, 1, bias=False)


class _FirstConv(Conv2d):
    """A 3x3 convolution of the image itself.

    On CUDA the few channels of an image are filled up with zeros: cuDNN has fast kernels for multiples of eight only.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self._filled_up(x) if x.device.type == "cuda" else super().forward(x)

    def _filled_up(self, x: Tensor) -> Tensor:
        extra = (0, 0, 0, 0, 0, -self.in_channels % 8)
        return F.conv2d(F.pad(x, extra), F.pad(self.weight.to(x.dtype), extra), padding=1)


class _PoolShortcut(nn.Module):
    """Halves the image by averaging and adds channels of zeros: a shortcut without weights."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            # ceil_mode: an odd side is halved upwards, as the strided convolution beside it does
            x = F.avg_pool2d(x, self.stride, ceil_mode=True, count_include_pad=False)
        return F.pad(x, (0, 0, 0, 0, 0, self.extra))


class _Residual(PerView):
    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(inputs, outputs, stride), BatchNorm(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs), BatchNorm(outputs)
        self.shortcut: nn.Module
        if inputs == outputs and stride == 1:
            self.shortcut = nn.Identity()
        elif shortcut == "pool":
            self.shortcut = _PoolShortcut(outputs - inputs, stride)
        else:
            self.shortcut = Chain(Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm(outputs))

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x), views))
        return F.relu(self.norm2(self.conv2(y), views) + pass_through(self.shortcut, x, views))


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation by which nearly all published networks normalise pixels in [0, 1]."""

_OURS = {"bn1": "norm1", "bn2": "norm2", "downsample": "shortcut"}
_OUR_STEM = {"conv1": "stem.0", "bn1": "stem.1"}


def from_torchvision(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of torchvision's (and timm's) ResNet-18 under the names of :func:`resnet18`, without the classifier.

    They fit ``resnet18(3, 64, "conv", large=True)`` exactly.
    """
    renamed = {}
    for name, value in published.items():
        first, *rest = name.split(".")
        if first == "fc" or rest[-1] == "num_batches_tracked":
            continue
        first = _OUR_STEM.get(first, first)
        renamed[".".join([first, *(_OURS.get(part, part) for part in rest)])] = value
    return renamed


def resnet18(channels: int, width: int, shortcut: Literal["pool", "conv"], *, large: bool) -> tuple[Chain, int]:
    """The blocks 'stem', 'layer1' .. 'layer4', 'pool', and the number of features.

    Args:
        channels: of the images.
        width: channels of layer1; each further layer doubles them.
        shortcut: where a block changes shape: 'pool' (no weights) or 'conv' (1x1 convolution).
        large: the standard 7x7 stem with max-pooling, for photographs; otherwise one 3x3 convolution.
    """
    if large:
        stem = Chain(Conv2d(channels, width, 7, 2, 3, bias=False), BatchNorm(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    else:
        stem = Chain(_FirstConv(channels, width, 3, 1, 1, bias=False), BatchNorm(width), nn.ReLU())
    blocks: OrderedDict[str, nn.Module] = OrderedDict(stem=stem)
    inputs = width
    for number in range(4):
        outputs, stride = width << number, 1 if number == 0 else 2
        blocks[f"layer{number + 1}"] = Chain(
            _Residual(inputs, outputs, stride, shortcut), _Residual(outputs, outputs, 1, shortcut)
        )
        inputs = outputs
    blocks["pool"] = GlobalAverage()
    backbone = Chain(blocks)
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return backbone, inputs
