"""A convolution that trains well in bfloat16 on a CPU; elsewhere it is torch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Conv2d(nn.Conv2d):
    """A convolution whose gradient for the weights is taken in float32 where several threads of a CPU share the work.

    There, bfloat16 makes the forward pass and the gradient for the input twice as fast, but not the gradient for the
    weights; and for that one torch's threads wait for each other without sleeping, so that a step takes a hundred times
    as long where another program wants the same cores.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Images (n, c, h, w) to images."""
        if input.device.type == "cpu" and self._learns_in_bfloat16() and torch.get_num_threads() > 1:
            dtype = torch.get_autocast_dtype("cpu")
            y: Tensor = _Mixed.apply(input.to(dtype), self.weight, dtype, self.stride, self.padding)  # type: ignore[no-untyped-call]
            return y if self.bias is None else y + self.bias.to(dtype)[:, None, None]
        return super().forward(input)

    def _learns_in_bfloat16(self) -> bool:
        return torch.is_autocast_enabled("cpu") and torch.is_grad_enabled() and self.weight.requires_grad


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype, stride: Any, padding: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dtype, ctx.stride, ctx.padding = dtype, stride, padding
        with torch.autocast("cpu", enabled=False):
            return F.conv2d(x, weight.to(dtype), None, stride, padding)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        (x, weight), (grad,) = ctx.saved_tensors, outputs
        for_x = _gradient(ctx, grad, x, weight.to(ctx.dtype), (True, False)) if ctx.needs_input_grad[0] else None
        return for_x, _gradient(ctx, grad.float(), x.float(), weight, (False, True)), None, None, None


def _gradient(ctx: Any, grad: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> Tensor:
    both = torch.ops.aten.convolution_backward(
        grad, x, weight, None, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, (*wanted, False)
    )
    result: Tensor = both[0] if wanted[0] else both[1]
    return result
