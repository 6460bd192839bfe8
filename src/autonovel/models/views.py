"""Several views of a batch in one pass through the network, each with batch statistics of its own.

Two views of 128 images as one batch of 256 are half the operations, and large enough to fill a GPU where 128 are not.
Everything but batch normalisation treats images one by one, so only that has to know where one view ends.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.machine.processes import Share


class PerView(nn.Module):
    """A layer whose result depends on which images belong to one view: (views x n, ...) with all of a view together."""


def pass_through(layer: nn.Module, x: Tensor, views: int) -> Tensor:
    """The result of any layer for that many views."""
    y: Tensor = layer(x, views) if isinstance(layer, PerView) else layer(x)
    return y


class Chain(nn.Sequential, PerView):
    """Layers one after the other."""

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """Pass the views through every layer."""
        for layer in self:
            x = pass_through(layer, x, views)
        return x


class GlobalAverage(nn.Module):
    """The mean over all places of an image: (n, c, h, w) to features (n, c)."""

    def forward(self, x: Tensor) -> Tensor:
        """Average in float32: ranking statistics compare single features, which would tie when rounded to bfloat16."""
        return x.float().mean((2, 3))


class BatchNorm(PerView):
    """Batch normalisation of (n, c) or (n, c, h, w), with a mean and variance for each view.

    The running statistics take in one view after the other, as if each had passed alone. Where several processes share a
    batch (``share``), the statistics are those of all its images. What comes out has the precision of what came in, or with
    ``exact`` float32: of features that are compared one by one, a fifth would tie in bfloat16.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, momentum: float = 0.1, epsilon: float = 1e-5, exact: bool = False) -> None:
        super().__init__()
        self.momentum, self.epsilon, self.exact = momentum, epsilon, exact
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.share: Share | None = None

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """Normalise; in training by the batch's own statistics."""
        x = x.float() if self.exact else x
        if self.training and (torch.compiler.is_compiling() or self.share is not None):
            return self._in_sums(x, views)
        if self.training and views > 1:
            return torch.cat([self._by_torch(part) for part in x.chunk(views)])
        return self._by_torch(x)

    def _by_torch(self, x: Tensor) -> Tensor:
        running, affine = (self.running_mean, self.running_var), (self.weight, self.bias)
        return F.batch_norm(x, *running, *affine, self.training, self.momentum, self.epsilon)

    def _in_sums(self, x: Tensor, views: int) -> Tensor:
        """As plain sums and one multiplication and addition, which a compiler fuses well with what is around them."""
        parts = x.unflatten(0, (views, -1)).float()
        within = [1, *range(3, parts.dim())]  # all but view and channel
        mean, square = parts.mean(within), parts.square().mean(within)
        var = (square - mean.square()).clamp(min=0)
        count = parts[0].numel() // parts.shape[2]
        if self.share is not None:
            mean, var, count = self.share.pool(mean, var, count)
        scale = self.weight * torch.rsqrt(var + self.epsilon)
        shift = self.bias - mean * scale
        with torch.no_grad():
            unbiased = var * (count / max(1, count - 1))
            for v in range(views):
                self.running_mean.lerp_(mean[v].detach(), self.momentum)
                self.running_var.lerp_(unbiased[v].detach(), self.momentum)
        shape = (views, 1, -1, *[1] * (parts.dim() - 3))
        normal: Tensor = parts * scale.view(shape) + shift.view(shape)
        return normal.to(x.dtype).flatten(0, 1)
