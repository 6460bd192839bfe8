"""Layers that compute in the precision of what comes in; their weights are float32 always.

Casts are written out, not left to torch's autocast: what is compiled with that inside cannot be kept for later runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.machine import cpu


@runtime_checkable
class Folds(Protocol):
    """A layer that can be made faster for computing features alone; it cannot be trained after that."""

    def fold(self) -> None:
        """Let one operation do the work of several."""


class Linear(nn.Linear):
    """Weights times features."""

    def forward(self, input: Tensor) -> Tensor:
        """Features (n, d) to (n, outputs)."""
        return F.linear(input, self.weight.to(input.dtype), self.bias.to(input.dtype))


_Sides = tuple[int, ...]


class _Shape(NamedTuple):
    """What a convolution does beside multiplying by its weights."""

    stride: _Sides
    padding: _Sides
    dilation: _Sides
    groups: int


class Conv2d(nn.Conv2d):
    """A convolution whose gradients are taken in parts where several threads of a CPU share the work in bfloat16.

    There, torch's threads wait for each other without sleeping when they compute the gradient for the weights, so that a
    step takes a hundred times as long where another program wants the same cores. So each of them takes its own images.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Images (n, c, h, w) to images."""
        return self.padded(input, self.padding)  # type: ignore[arg-type]  # 'same' and 'valid' are not used here

    def padded(self, input: Tensor, padding: _Sides) -> Tensor:
        """The result with this many zeros on both sides of the rows and columns, whatever the layer's own padding."""
        dtype, shape = input.dtype, _Shape(self.stride, padding, self.dilation, self.groups)
        if input.device.type == "cpu" and dtype == torch.bfloat16 and min(input.shape[2:]) == 1:
            # there torch leaves parts of the gradient for the weights unset: those that meet nothing but padding
            bias = None if self.bias is None else self.bias.float()
            return F.conv2d(input.float(), self.weight.float(), bias, *shape).to(dtype)
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        if input.device.type == "cpu" and dtype == torch.bfloat16 and learns and torch.get_num_threads() > 1:
            y: Tensor = _InParts.apply(input, self.weight, self.bias, shape)  # type: ignore[no-untyped-call]
            return y
        bias = None if self.bias is None else self.bias.to(dtype)
        return F.conv2d(input, self.weight.to(dtype), bias, *shape)


class _InParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: _Shape) -> Tensor:
        lowered = weight.to(x.dtype)
        ctx.save_for_backward(x, lowered)
        ctx.shape = shape
        return F.conv2d(x, lowered, None if bias is None else bias.to(x.dtype), *shape)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        (x, weight), (grad,) = ctx.saved_tensors, outputs
        wanted = ctx.needs_input_grad[:3]

        def gradients(part: Tensor, images: Tensor) -> Any:
            bias_sizes = [len(weight)] if wanted[2] else None
            stride, padding, dilation, groups = ctx.shape
            return torch.ops.aten.convolution_backward(
                part, images, weight, bias_sizes, stride, padding, dilation, False, (0, 0), groups, wanted
            )

        count = torch.get_num_threads()
        parts = list(cpu.single_threads(count).map(gradients, grad.chunk(count), x.chunk(count)))
        for_x, for_weight, for_bias = zip(*parts, strict=True)
        return (
            torch.cat(for_x) if wanted[0] else None,
            _total(for_weight) if wanted[1] else None,
            _total(for_bias) if wanted[2] else None,
            None,
        )


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.float() for part in parts]).sum(0)
