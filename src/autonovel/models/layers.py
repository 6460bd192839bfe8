"""Layers that compute in the precision of what comes in; their weights are float32 always.

Casts are written out, not left to torch's autocast: what is compiled with that inside cannot be kept for later runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """Weights times features."""

    def forward(self, input: Tensor) -> Tensor:
        """Features (n, d) to (n, outputs)."""
        return F.linear(input, self.weight.to(input.dtype), self.bias.to(input.dtype))


class Conv2d(nn.Conv2d):
    """A convolution whose gradient for the weights is taken in float32 where several threads of a CPU share the work.

    There, bfloat16 makes the forward pass and the gradient for the input twice as fast, but not the gradient for the
    weights; and for that one torch's threads wait for each other without sleeping, so that a step takes a hundred times
    as long where another program wants the same cores.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Images (n, c, h, w) to images."""
        dtype = input.dtype
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        if input.device.type == "cpu" and dtype == torch.bfloat16 and learns and torch.get_num_threads() > 1:
            y: Tensor = _Mixed.apply(input, self.weight, self.bias, self.stride, self.padding)  # type: ignore[no-untyped-call]
            return y
        bias = None if self.bias is None else self.bias.to(dtype)
        return F.conv2d(input, self.weight.to(dtype), bias, self.stride, self.padding)


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype), stride, padding)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        (x, weight), (grad,) = ctx.saved_tensors, outputs
        of_input, _, of_bias = ctx.needs_input_grad[:3]
        for_x = _gradients(ctx, grad, x, weight.to(x.dtype), (True, False, False))[0] if of_input else None
        _, for_weight, for_bias = _gradients(ctx, grad.float(), x.float(), weight, (False, True, of_bias))
        return for_x, for_weight, for_bias, None, None


def _gradients(ctx: Any, grad: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]) -> Any:
    """For input, weights and bias."""
    bias_sizes = [len(weight)] if wanted[2] else None
    return torch.ops.aten.convolution_backward(
        grad, x, weight, bias_sizes, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, wanted
    )
