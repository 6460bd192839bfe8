"""Common to all objectives for known and new classes together."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.data.loader import mixed
from autonovel.maths.known_space import components
from autonovel.maths.mixed import find_old
from autonovel.methods.base import Look, Method, Seen, Task
from autonovel.models.heads import class_head
from autonovel.models.net import Net
from autonovel.settings.joint import Joint

LOOKS = 4
"""How often during training a pile that may be mixed is searched for images of known classes, with what was learned so far."""


class JointObjective(Method):
    """The order of images and the numbers of classes; which images of the pile are of known classes.

    An image of a known class that is taken for a new one competes for a cluster with the images that are new. Such images
    are looked for before the first epoch and now and then after it, and learned from as if they were labelled.
    """

    sees = "both"
    needs_number = True
    settings: Joint
    taken_for: Tensor
    """int64 (images,): the known class that an image of the pile is taken for, -1 where it is new; absent if all are."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.joint
        self._model, self._n_known, self._n_new = task.recipe.model, task.n_known, task.n_new
        self._pile = task.recipe.pile if task.n_known else "new"
        self._n_images = task.n_images

    def prepare(self, net: Net) -> None:
        """A head of the known classes, where no stage before has trained one; room for what is found out about the pile."""
        if self._n_known and "known" not in net.heads:
            net.add_head("known", class_head(self._model, net.n_features, self._n_known))
        if self._pile != "new":
            self.register_buffer("taken_for", torch.full((self._n_images,), -1))

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Tell old images of the pile from new ones, where it may hold both and it is time."""
        epochs = self.settings.epochs
        if self._pile == "new" or epoch not in {look * epochs // LOOKS for look in range(LOOKS)}:
            return
        labelled, unlabelled = torch.nonzero(look.labels >= 0).flatten(), torch.nonzero(look.labels < 0).flatten()
        device = self.taken_for.device
        known, free = components(*(look.features(index).to(device) for index in (labelled, unlabelled)))

        def taken_for() -> Tensor:
            old = find_old(known, look.labels[labelled].to(device), free, seed=look.seed)
            return old.labels().cpu() if old.mixed or self._pile == "mixed" else torch.full_like(unlabelled, -1)

        self.taken_for.fill_(-1)
        self.taken_for[unlabelled.to(device)] = look.agreed(taken_for).to(device)

    def labels_of(self, seen: Seen) -> Tensor:
        """Int64 (n,): the classes of a batch as far as they are known or were found out, -1 elsewhere."""
        if self._pile == "new":
            return seen.labels
        return torch.where(seen.labels < 0, self.taken_for[seen.index], seen.labels)

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """One shuffled pass over all images, or over the labelled ones with a fixed share of them in each batch."""
        s = self.settings
        if not s.known_per_batch or not self._n_known:
            return super().order(labels, *key)
        labelled, unlabelled = torch.nonzero(labels >= 0).flatten(), torch.nonzero(labels < 0).flatten()
        return mixed(labelled, unlabelled, s.batch, s.known_per_batch, *key)
