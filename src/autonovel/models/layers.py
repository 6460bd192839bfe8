"""Layers that compute in the precision of what comes in; their weights are float32 always.

Casts are written out, not left to torch's autocast: what is compiled with that inside cannot be kept for later runs.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
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
    """A convolution whose gradients are taken in parts where several threads of a CPU share the work in bfloat16.

    There, torch's threads wait for each other without sleeping when they compute the gradient for the weights, so that a
    step takes a hundred times as long where another program wants the same cores. So each of them takes its own images.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Images (n, c, h, w) to images."""
        dtype = input.dtype
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        weight, bias = self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype)
        if input.device.type == "cpu" and dtype == torch.bfloat16 and learns and torch.get_num_threads() > 1:
            y: Tensor = _InParts.apply(input, weight, bias, self.stride, self.padding)  # type: ignore[no-untyped-call]
            return y
        return F.conv2d(input, weight, bias, self.stride, self.padding)


class _InParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        (x, weight), (grad,) = ctx.saved_tensors, outputs
        wanted = ctx.needs_input_grad[:3]

        def gradients(part: Tensor, images: Tensor) -> Any:
            bias_sizes = [len(weight)] if wanted[2] else None
            return torch.ops.aten.convolution_backward(
                part, images, weight, bias_sizes, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, wanted
            )

        count = torch.get_num_threads()
        parts = list(single_threads(count).map(gradients, grad.chunk(count), x.chunk(count)))
        for_x, for_weight, for_bias = zip(*parts, strict=True)
        return (
            torch.cat(for_x) if wanted[0] else None,
            _total(for_weight) if wanted[1] else None,
            _total(for_bias) if wanted[2] else None,
            None,
            None,
        )


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.float() for part in parts]).sum(0)


@functools.cache
def single_threads(count: int) -> Executor:
    """So many threads, each of which has one thread for its operations."""

    def work_alone() -> None:
        torch.get_num_threads()  # a thread takes the common number when it is first asked, and then never again
        torch.set_num_threads(1)

    pool = ThreadPoolExecutor(count, initializer=work_alone)
    all_started = threading.Barrier(count)
    list(pool.map(lambda _: all_started.wait(), range(count)))
    torch.set_num_threads(count)  # the last number set is the common one
    return pool
