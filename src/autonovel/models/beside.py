"""Several pre-trained networks that see the same images, their features side by side.

Networks err in different ways: two of them group better than a single larger one. Each has as much weight as the others, so its
features come at unit length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.models.foreign import Pretrained
from autonovel.models.views import Chain, PerView, pass_through

Statistics = tuple[Sequence[float], Sequence[float]]


class Beside(PerView):
    """Whole networks as the last block: features (n, sum of theirs), those of each at unit length.

    Args:
        networks: each from images (n, 3, h, w) to features, with blocks of the usual names.
        statistics: mean and standard deviation by which each wants its pixels normalised; what comes in is so by the first.
    """

    def __init__(self, networks: Sequence[Chain], statistics: Sequence[Statistics]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        mean, std = (torch.tensor(values) for values in statistics[0])
        for number, (own_mean, own_std) in enumerate(statistics):
            own = torch.tensor(own_std)
            self.register_buffer(f"scale{number}", (std / own).view(1, -1, 1, 1), persistent=False)
            self.register_buffer(
                f"shift{number}", ((mean - torch.tensor(own_mean)) / own).view(1, -1, 1, 1), persistent=False
            )
        self._alike = [theirs == statistics[0] for theirs in statistics]

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """Features in float32."""
        features = []
        for number, network in enumerate(self.networks):
            own = x
            if not self._alike[number]:
                scale, shift = (self.get_buffer(f"{name}{number}") for name in ("scale", "shift"))
                own = (x.float() * scale + shift).to(x.dtype)
            features.append(F.normalize(pass_through(network, own, views).float()))
        return torch.cat(features, 1)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let the parameters learn that belong to no earlier block."""
        for network in self.networks:
            network.get_submodule("pool").requires_grad_(requires_grad)
        return self


class _Blocks(nn.Module):
    """The blocks of one name of all networks, for freezing; hands on the images as they are."""

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self._blocks = tuple(blocks)  # inside a tuple: registered once, where the work is done

    def forward(self, x: Tensor) -> Tensor:
        return x

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        for block in self._blocks:
            block.requires_grad_(requires_grad)
        return self


def side_by_side(networks: Sequence[Chain], statistics: Sequence[Statistics]) -> Pretrained:
    """The networks as blocks 'stem', 'layer1' .. 'layer4' (as far as there are any) and 'pool', which does the work."""
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for name in ("stem", "layer1", "layer2", "layer3", "layer4"):
        if alike := [block for network in networks for own, block in network.named_children() if own == name]:
            blocks[name] = _Blocks(alike)
    blocks["pool"] = Beside(networks, statistics)
    return Pretrained(blocks)
