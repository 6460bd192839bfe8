"""The rules that move weights against their gradients.

They are the part of torch.optim that is needed here (one learning rate, one kind of tensor, memory that exists from the
start), and call the same fused operations. torch.optim itself imports torch's compiler when the first optimiser is made,
which takes one to four seconds before the first step, and checks on every step what never changes here. The fused operations
are private to torch; where a version of torch does not have them, torch.optim does the work.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from autonovel.settings.stages import Training

MOMENTUM = 0.9
"""Of gradient descent."""


class Optimiser(Protocol):
    """A rule with the weights it moves. Its tensors are changed in place only, so that they can be saved, restored and captured.

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

    NEEDS = ("_fused_sgd_",)
    """What it uses of torch's private functions."""

    def __init__(self, weights: list[Tensor], settings: Training) -> None:
        self.weights, self.lr = weights, _lr_of(weights, settings)
        self.memory = {"momentum_buffer": [torch.zeros_like(w) for w in weights]}
        self._settings = settings

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        learning, gradients = _with_gradients(self.weights)
        torch._fused_sgd_(
            [self.weights[i] for i in learning],
            gradients,
            [self.memory["momentum_buffer"][i] for i in learning],
            weight_decay=self._settings.weight_decay,
            momentum=MOMENTUM,
            lr=self.lr,
            dampening=0.0,
            nesterov=self._settings.optimiser == "nesterov",
            maximize=False,
            is_first_step=False,
        )


class Adam:
    """Adam (Kingma and Ba, 2015), with weight decay as a part of the gradient."""

    NEEDS = ("_fused_adam_", "_foreach_add_")
    """What it uses of torch's private functions."""
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


class TorchOptim:
    """A rule carried out by torch.optim, with the weights, learning rate and memory of the rule itself."""

    def __init__(self, rule: SGD | Adam, settings: Training) -> None:
        self.weights, self.lr, self.memory = rule.weights, rule.lr, rule.memory
        decay = settings.weight_decay
        if isinstance(rule, Adam):
            self._optim: torch.optim.Optimizer = torch.optim.Adam(
                rule.weights,
                lr=self.lr,
                betas=rule.BETAS,
                eps=rule.EPSILON,
                weight_decay=decay,
                foreach=False,
                capturable=self.lr.device.type == "cuda",
            )
        else:
            self._optim = torch.optim.SGD(
                rule.weights,
                lr=self.lr,
                momentum=MOMENTUM,
                weight_decay=decay,
                nesterov=settings.optimiser == "nesterov",
                foreach=False,
            )
        for i, weight in enumerate(self.weights):  # what it would make on its first step, and then changes in place
            self._optim.state[weight] = {name: kept[i] for name, kept in self.memory.items()}

    def step(self) -> None:
        """Move every weight that has a gradient."""
        self._optim.step()


def make_optimiser(weights: list[Tensor], settings: Training) -> Optimiser:
    """The rule that the settings name."""
    rule = (Adam if settings.optimiser == "adam" else SGD)(weights, settings)
    return rule if all(hasattr(torch, name) for name in rule.NEEDS) else TorchOptim(rule, settings)


def _lr_of(weights: list[Tensor], settings: Training) -> Tensor:
    return torch.tensor(settings.lr, device=weights[0].device)


def _with_gradients(weights: list[Tensor]) -> tuple[list[int], list[Tensor]]:
    """The positions of the weights that have a gradient, and their gradients."""
    pairs = [(i, w.grad) for i, w in enumerate(weights) if w.grad is not None]
    return [i for i, _ in pairs], [gradient for _, gradient in pairs]
