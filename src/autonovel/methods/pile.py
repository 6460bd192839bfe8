"""Common to methods that cluster the unlabelled images alone, after what the stages before have learned."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.data.loader import shuffled
from autonovel.methods.base import Look, Losses, Method, Task
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net


class PileMethod(Method):
    """One pass over the unlabelled images is an epoch; a known class is the mean of its images in the end.

    The network forgets the classifier of the known classes, for nothing holds it. For answers over known and new classes
    together a stage is added that learns them (``incremental``).
    """

    sees = "both"
    needs_number = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._model, self._n_known, self._n_new = task.recipe.model, task.n_known, task.n_new
        self._n_images = task.n_images

    def prepare(self, net: Net) -> None:
        """Nearest means answer for the known classes."""
        if self._n_known:
            net.add_head("known", HeadSpec("nearest", net.n_features, self._n_known))

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """One shuffled pass over the unlabelled images."""
        return shuffled(torch.nonzero(labels < 0).flatten(), self.settings.batch, *key)

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Take the means of the known classes."""
        if self._n_known:
            index = torch.nonzero(look.labels >= 0).flatten()
            features, classes = look.features(index), look.labels[index]
            means = [features[classes == c].mean(0) for c in range(self._n_known)]
            net.heads["known"].centres.copy_(torch.stack(means))  # type: ignore[operator]
