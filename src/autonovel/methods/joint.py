"""What the objectives for known and new classes together have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.data.loader import mixed
from autonovel.methods.base import Method, Task
from autonovel.models.heads import class_head
from autonovel.models.net import Net
from autonovel.settings import Joint


class JointObjective(Method):
    """The order of images, the ramp and the numbers of classes."""

    sees = "both"
    needs_number = True
    settings: Joint

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.joint
        self._model, self._n_known, self._n_new = task.recipe.model, task.n_known, task.n_new

    def prepare(self, net: Net) -> None:
        """A head of the known classes, where no stage before has trained one."""
        if self._n_known and "known" not in net.heads:
            net.add_head("known", class_head(self._model, net.n_features, self._n_known))

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """One shuffled pass over all images, or over the labelled ones with a fixed share of them in each batch."""
        s = self.settings
        if not s.known_per_batch or not self._n_known:
            return super().order(labels, *key)
        labelled, unlabelled = torch.nonzero(labels >= 0).flatten(), torch.nonzero(labels < 0).flatten()
        return mixed(labelled, unlabelled, s.batch, s.known_per_batch, *key)

    def ramp(self, epoch: int) -> float:
        """The weight of consistency and incremental loss."""
        return self.settings.ramp_at(epoch)
