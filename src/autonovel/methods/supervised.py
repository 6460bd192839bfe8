"""The known classes, by their labels."""

from __future__ import annotations

from torch import Tensor

from autonovel.data.augment import make_view
from autonovel.data.loader import Batch
from autonovel.maths.losses import cross_entropy
from autonovel.methods.base import Method, Seen, Task
from autonovel.models.heads import class_head
from autonovel.models.net import Net


class KnownClasses(Method):
    """Cross-entropy on the labelled images."""

    sees = "labels"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.supervised
        self._model, self._n_known = task.recipe.model, task.n_known

    def prepare(self, net: Net) -> None:
        """Add the head of the known classes."""
        net.add_head("known", class_head(self._model, net.n_features, self._n_known))

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image."""
        return [make_view(batch.images, key, batch.index, self.settings.augment, mirror=self.mirror)]

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy over the known classes."""
        scores = net.head("known", net.features_of(seen.views)[0])
        return {"known": cross_entropy(scores, seen.labels, seen.labels >= 0)}
