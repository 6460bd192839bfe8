"""Networks that others have trained, inside ours: their size, their precision, and what stays as it came.

A foreign network has a forward pass of its own that cannot be cut into blocks. So the blocks before the last one only say
which of its parameters belong to them, for freezing; the last one holds the network and does the work. That costs nothing:
torch keeps no graph for what lies before the first parameter that learns.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.models.views import Chain, PerView

LEAST_SIDE = 32
"""Networks for photographs halve the image five times; a smaller image is enlarged to this."""

_STAGE = re.compile(r"(?:^|\.)(?:layers?|stages?|blocks|s)\.?(\d+)\.")
"""The number of a stage or block in the name of a parameter: layer3.1.conv1, blocks.11.norm, encoder.layers.0.mlp, s2.b1."""


class Fit(nn.Module):
    """Brings images to what a network takes: three channels and a suitable size (bilinear, antialiased).

    Args:
        side: the only size it takes; 0: any.
        multiple: otherwise, both sides are rounded to a multiple of this.
    """

    def __init__(self, side: int = 0, multiple: int = 1) -> None:
        super().__init__()
        self.side, self.multiple = side, multiple

    def forward(self, x: Tensor) -> Tensor:
        """Images (n, 1 or 3, h, w) to (n, 3, height, width)."""
        if x.shape[1] == 1:
            x = x.expand(-1, 3, -1, -1)
        height, width = self._suitable(x.shape[2]), self._suitable(x.shape[3])
        if (height, width) == tuple(x.shape[2:]):
            return x
        resized = F.interpolate(x.float(), (height, width), mode="bilinear", antialias=True, align_corners=False)
        return resized.to(x.dtype)

    def _suitable(self, side: int) -> int:
        if self.side:
            return self.side
        return max(round(side / self.multiple), -(-LEAST_SIDE // self.multiple)) * self.multiple


class Pretrained(Chain):
    """Blocks whose weights come from elsewhere: where they are frozen, nothing of them changes.

    In training, layers without a parameter that learns stay in evaluation mode: batch normalisation keeps the statistics
    that it came with. (Our own networks let the statistics of frozen layers move, as the paper does.) Dropout is always off:
    it takes chance from torch's own generator, and a run that is resumed would not be the same run.
    """

    def train(self, mode: bool = True) -> Self:
        """Training mode for what learns, evaluation mode for the rest."""
        _set_mode(self, mode)
        return self


def _set_mode(module: nn.Module, mode: bool) -> None:
    weights = list(module.parameters())
    learns = not weights or any(p.requires_grad for p in weights)  # without parameters: as what it is part of
    module.training = mode and learns and not isinstance(module, nn.modules.dropout._DropoutNd)
    for child in module.children():
        _set_mode(child, module.training)


class Foreign(PerView):
    """A whole network as the last block.

    It computes under autocast in the precision of what comes in; its parameters stay float32.

    Args:
        network: any module.
        read: gives features (n, d) from the network and images (n, 3, h, w).
        fit: brings images to its size.
    """

    def __init__(self, network: nn.Module, read: Callable[[nn.Module, Tensor], Tensor], fit: Fit) -> None:
        super().__init__()
        self.network, self.fit = network, fit
        self._read = read
        self._own: frozenset[str] = frozenset()

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """Features of images (views x n, c, h, w) in float32; batch statistics, where they are taken, for each view."""
        if views > 1 and self._takes_statistics():
            return torch.cat([self._features(part) for part in x.chunk(views)])
        return self._features(x)

    def _features(self, x: Tensor) -> Tensor:
        # every weight is used once in a pass: there is nothing to cache, and a captured step must not find an old cast
        with torch.autocast(x.device.type, x.dtype, enabled=x.dtype != torch.float32, cache_enabled=False):
            return self._read(self.network, self.fit(x)).flatten(1).float()

    def _takes_statistics(self) -> bool:
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.network.modules())

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let the parameters learn that belong to no earlier block."""
        _let_learn(self.network, self._own, requires_grad)
        return self

    def used_parameters(self) -> tuple[list[str], int]:
        """Names of the parameters that have a say in the features, and the number of features."""
        self.eval()
        self.network.requires_grad_(True)
        with torch.enable_grad():
            features = self(torch.zeros(1, 3, 2 * LEAST_SIDE, 2 * LEAST_SIDE))
            features.sum().backward()
        used = [name for name, p in self.network.named_parameters() if p.grad is not None]
        self.network.zero_grad(set_to_none=True)
        self.network.requires_grad_(False)
        return used, features.shape[1]


class _SomeParameters(nn.Module):
    """Some of the parameters of the network in the last block; hands on the images as they are."""

    def __init__(self, network: nn.Module, names: Collection[str]) -> None:
        super().__init__()
        self._network = (network,)  # inside a tuple: registered once, where the work is done
        self._names = frozenset(names)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        _let_learn(self._network[0], self._names, requires_grad)
        return self


def _let_learn(network: nn.Module, names: Collection[str], learns: bool) -> None:
    for name, parameter in network.named_parameters():
        if name in names:
            parameter.requires_grad_(learns)


def in_blocks(foreign: Foreign) -> tuple[Pretrained, int]:
    """A foreign network as blocks 'stem', (some of) 'layer1' .. 'layer4', 'pool', and the number of its features."""
    used, n_features = foreign.used_parameters()
    groups = group_names(used)
    foreign._own = frozenset(groups.pop("pool"))
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for block, names in groups.items():
        blocks[block] = _SomeParameters(foreign.network, names)
    blocks["pool"] = foreign
    chain = Pretrained(blocks)
    for block_module in chain:
        block_module.requires_grad_(True)
    return chain, n_features


def group_names(names: Iterable[str]) -> dict[str, list[str]]:
    """The parameters of a network by block, from the numbers in their names; they come in the order of the network.

    Stages (or transformer blocks) are divided among 'layer1' .. 'layer4'; with fewer than four, the last one is 'layer4' all
    the same. What comes before them is the 'stem', what comes after them belongs to 'pool'.

    >>> group_names(["conv1.weight", "layer1.0.w", "layer2.0.w", "norm.weight"])
    {'stem': ['conv1.weight'], 'layer3': ['layer1.0.w'], 'layer4': ['layer2.0.w'], 'pool': ['norm.weight']}
    """
    names = list(names)
    matches = [_STAGE.search(name) for name in names]
    numbers = [int(match[1]) if match else None for match in matches]
    stages = sorted({number for number in numbers if number is not None})
    n_blocks = min(4, len(stages))
    groups: dict[str, list[str]] = {block: [] for block in ("stem", "layer1", "layer2", "layer3", "layer4", "pool")}
    seen = False
    for name, number in zip(names, numbers, strict=True):
        seen = seen or number is not None
        if number is not None:
            groups[f"layer{5 - n_blocks + stages.index(number) * n_blocks // len(stages)}"].append(name)
        else:
            groups["pool" if seen else "stem"].append(name)
    return {block: inside for block, inside in groups.items() if inside or block in ("stem", "pool")}
