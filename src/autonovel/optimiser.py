"""The rules that move weights against their gradients.

They call the same fused operations as torch.optim, of which they are a part: one learning rate, one kind of tensor, memory
that is there from the start. torch.optim imports torch's compiler when the first optimiser is made, which takes one to four
seconds before the first step, and asks on every step what never changes here.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from autonovel.settings import Training


class Optimiser(Protocol):
    """A rule with the weights it moves. Nothing of it is ever replaced, so that it can be kept, restored and captured.

    Attributes:
        weights: what is moved.
        lr: the learning rate, a scalar beside the weights.
        memory: tensors that the rule keeps for the weights, by name, each list in the order of the weights.
    """

    weights: list[Tensor]
    lr: Tensor
    memory: dict[str, list[Tensor]]

    def step(self) -> None:
        """Move every weight that has a gradient."""


class SGD:
    """Gradient descent with momentum, and weight decay as a part of the gradient."""

    def __init__(self, weights: list[Tensor], settings: Training) -> None:
        self.weights, self.lr = weights, _lr_of(weights, settings)
        self.memory = {"momentum_buffer": [torch.zeros_like(w) for w in weights]}
        self._settings = settings

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        learning, gradients = _with_gradients(self.weights)
        momentum = self._settings.momentum
        torch._fused_sgd_(
            [self.weights[i] for i in learning],
            gradients,
            [self.memory["momentum_buffer"][i] for i in learning] if momentum else [],
            weight_decay=self._settings.weight_decay,
            momentum=momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=self._settings.nesterov,
            maximize=False,
            is_first_step=False,
        )


class Adam:
    """Adam (Kingma and Ba, 2015), with weight decay as a part of the gradient."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, weights: list[Tensor], settings: Training) -> None:
        self.weights, self.lr = weights, _lr_of(weights, settings)
        self.memory = {
            "step": [torch.zeros((), device=w.device) for w in weights],
            "exp_avg": [torch.zeros_like(w) for w in weights],
            "exp_avg_sq": [torch.zeros_like(w) for w in weights],
        }
        self._settings = settings

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        learning, gradients = _with_gradients(self.weights)
        steps, mean, square = ([kept[i] for i in learning] for kept in self.memory.values())
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            [self.weights[i] for i in learning],
            gradients,
            mean,
            square,
            [],
            steps,
            lr=self.lr,
            beta1=self.BETAS[0],
            beta2=self.BETAS[1],
            weight_decay=self._settings.weight_decay,
            eps=self.EPSILON,
            amsgrad=False,
            maximize=False,
        )


def make_optimiser(weights: list[Tensor], settings: Training) -> Optimiser:
    """The rule that the settings name."""
    return (Adam if settings.optimiser == "adam" else SGD)(weights, settings)


def _lr_of(weights: list[Tensor], settings: Training) -> Tensor:
    return torch.tensor(settings.lr, device=weights[0].device)


def _with_gradients(weights: list[Tensor]) -> tuple[list[int], list[Tensor]]:
    """Where in the list weights with a gradient are, and the gradients."""
    found = [(i, w.grad) for i, w in enumerate(weights) if w.grad is not None]
    return [i for i, _ in found], [gradient for _, gradient in found]
