"""Stage 2: the known classes."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.data.augment import make_view
from autonovel.data.loader import Batch, shuffled
from autonovel.maths.losses import cross_entropy
from autonovel.models.net import Net, make_head
from autonovel.settings import Recipe


class KnownClasses:
    """Cross-entropy on the labelled images."""

    def __init__(self, recipe: Recipe, n_known: int) -> None:
        self.settings = recipe.supervised
        self._kind, self._temperature, self._n_known = recipe.model.head, recipe.joint.swap.temperature, n_known

    def prepare(self, net: Net) -> None:
        """Add the head of the known classes."""
        net.heads["known"] = make_head(self._kind, net.n_features, self._n_known, self._temperature)

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """One shuffled pass over the labelled images."""
        return shuffled(torch.nonzero(labels >= 0).flatten(), self.settings.batch, *key)

    def ramp(self, epoch: int) -> float:
        """Not used."""
        return 1.0

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image."""
        return [make_view(batch.images, key, batch.index, self.settings.augment)]

    def losses(self, net: Net, seen: list[Tensor], labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy over the known classes."""
        scores = net.head("known", net.features_of(seen)[0])
        return {"known": cross_entropy(scores, labels, labels >= 0)}
