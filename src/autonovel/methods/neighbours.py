"""Clusters from nearest neighbours: an image and what lies next to it get the same answer."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.base.chance import host_generator
from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_view
from autonovel.data.loader import Batch
from autonovel.maths.known_space import nearest, unit
from autonovel.maths.losses import cross_entropy, mean_entropy_loss
from autonovel.maths.neighbours import neighbour_loss
from autonovel.methods.base import Look, Losses, Seen, Task
from autonovel.methods.joint import JointObjective
from autonovel.models.heads import class_head
from autonovel.models.net import Net
from autonovel.settings.augment import Augment
from autonovel.settings.joint import NeighboursSettings

PLAIN = Augment("shift")
"""How the plain view of an image is made."""


class Neighbours(JointObjective):
    """Neighbours in the features of the stages before get the same cluster.

    In the spirit of SCAN (Van Gansbeke et al., 2020), without its last part, in which sure answers teach the rest. Neighbours are
    found once, before the first epoch. Labelled images learn their class beside, at a head of their own.
    """

    settings: NeighboursSettings
    neighbours: Tensor
    """int32 (images, nearest): the nearest images of the pile to each one of it; a labelled image stands for itself."""
    head_losses: Tensor
    """float32 (heads,): what each head lost in the last epoch."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        recipe = task.recipe
        self._taught = bool(recipe.pretrain.epochs or (task.n_known and recipe.supervised.epochs))

    def prepare(self, net: Net) -> None:
        """Add the heads, and room for the neighbours; until they are found, each image is its own."""
        super().prepare(net)
        settings = self.settings
        if not self._taught and not net.pretrained:
            raise InputError(
                f"{option('joint.objective')} neighbours needs features to find neighbours in; "
                f"use {option('pretrain.method', 'simclr')} with one epoch or more ({option('pretrain.epochs')})."
            )
        net.add_head("new", class_head(self._model, net.n_features, self._n_new, stacked=True, count=settings.heads))
        own = torch.arange(self._n_images, dtype=torch.int32)
        self.register_buffer("neighbours", own[:, None].repeat(1, settings.nearest))
        self.register_buffer("head_losses", torch.zeros(settings.heads))

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Find the neighbours before the first epoch; count the losses of each head afresh."""
        super().start_epoch(net, look, epoch)
        self.head_losses.zero_()
        if epoch == 0:
            pile = torch.nonzero(look.labels < 0).flatten()
            device, room = self.neighbours.device, self.neighbours.shape[1]
            points = unit(look.features(pile).to(device))
            near = look.agreed(lambda: nearest(points, min(room, len(pile) - 1)).cpu()).to(device)
            again = torch.arange(room, device=device) % near.shape[1]  # a small pile has fewer than there is room for
            pile = pile.to(device)
            self.neighbours[pile] = pile[near[:, again]].int()

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """As for other objectives, but the second half of a batch are neighbours of the first."""
        order = super().order(labels, *key)
        half = order.shape[1] // 2
        images, table = order[:, :half], self.neighbours.cpu()
        drawn = torch.randint(table.shape[1], images.shape, generator=host_generator(*key, "neighbours"))
        return torch.cat([images, table[images, drawn].long(), order[:, 2 * half :]], 1)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """A plain and a varied one of each image."""
        plain = make_view(batch.images, key, batch.index, PLAIN, mirror=self.mirror)
        varied = make_view(batch.images, key, batch.index, self.settings.augment, view=1, mirror=self.mirror)
        return [plain, varied]

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """What neighbours teach every head; known classes beside."""
        settings, labels = self.settings, self.labels_of(seen)
        free, half = labels < 0, len(labels) // 2
        features = net.features_of(seen.views)
        plain, varied = (scores.log_softmax(2) for scores in net.head_of("new", features))
        images, others = slice(half), slice(half, 2 * half)
        both = free[images] & free[others]
        apart = neighbour_loss(plain[:, images], varied[:, others], both)
        apart = (apart + neighbour_loss(varied[:, images], plain[:, others], both)) / 2
        # over the images alone: some are neighbours of many, so that the second half is no fair sample of the pile
        said = torch.cat([plain[:, images], varied[:, images]], 1).exp()
        uneven = settings.balance * mean_entropy_loss(said, free[images].repeat(2))
        self.head_losses.add_((apart + uneven).detach())
        losses = {"neighbours": apart / settings.heads, "balance": uneven / settings.heads}
        if "known" in net.heads and self.settings.known_weight:
            known = [cross_entropy(scores, labels, ~free) for scores in net.head_of("known", features)]
            losses["known"] = self.settings.known_weight * torch.stack(known).mean()
        return losses

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Let the head answer that neighbours taught best."""
        net.answering_head.fill_(int(self.head_losses.argmin()))
