"""Known and new classes together, learned from labels and from what a method made of the pile: the paper's protocol."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.chance import host_generator
from autonovel.methods.base import Look, Losses, Method, Task
from autonovel.models.heads import HeadSpec
from autonovel.models.layers import Linear
from autonovel.models.net import Net
from autonovel.settings.stages import Training

EPOCHS, BATCH, RATE, SLOWER_AT = 150, 128, 0.1, 50
"""As in the paper, but for the size of a batch, of which it says nothing."""


class LinearClassifier(Method):
    """One linear layer on features that stay as they are; no image passes through the network twice."""

    sees = "both"
    needs_number = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = Training(epochs=0)
        self._n_known, self._n_new = task.n_known, task.n_new

    def prepare(self, net: Net) -> None:
        """Put a head for all classes in the place of that for the known ones."""
        outputs = self._n_known + self._n_new
        net.add_head("known", HeadSpec("linear", net.n_features, outputs, extended_by=self._n_new))

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Learn it from labels, and from the clusters of the pile as if they were labels."""
        labels, device = look.labels, net.mean.device
        features = look.features(torch.arange(len(labels))).to(device)
        clusters = net.head("new", features)[net.answering_head].argmax(1)
        targets = torch.where(labels.to(device) >= 0, labels.to(device), self._n_known + clusters)
        weight, bias = fit_linear(features, targets, self._n_known + self._n_new, look.seed)
        head = net.heads["known"]
        assert isinstance(head, Linear)
        with torch.no_grad():
            head.weight.copy_(weight)
            head.bias.copy_(bias)


def fit_linear(features: Tensor, labels: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Weights (classes, d) and bias (classes,) of a linear classifier, by gradient descent with momentum.

    It learns from features around their mean with a mean length of 1, so that one rate serves every network; both are undone in
    what is returned.
    """
    mean = features.mean(0)
    scale = 1 / (features - mean).norm(dim=1).mean().clamp(min=1e-12)
    features = (features - mean) * scale
    layer = torch.nn.Linear(features.shape[1], classes)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=host_generator(seed, "classifier")) * 0.01)
        layer.bias.zero_()
    layer = layer.to(features.device)
    optimiser = torch.optim.SGD(layer.parameters(), lr=RATE, momentum=0.9)
    with torch.enable_grad():
        for epoch in range(EPOCHS):
            for group in optimiser.param_groups:
                group["lr"] = RATE * (0.1 if epoch >= SLOWER_AT else 1.0)
            order = torch.randperm(len(labels), generator=host_generator(seed, "classifier", epoch)).to(labels.device)
            for part in order.split(BATCH):
                optimiser.zero_grad()
                F.cross_entropy(layer(features[part]), labels[part]).backward()
                optimiser.step()
    weight = layer.weight.detach() * scale
    return weight, layer.bias.detach() - weight @ mean
