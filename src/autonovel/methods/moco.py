"""Pre-training by momentum contrast, in its first and second version."""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
from torch import Tensor, nn

from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.maths.contrastive import follow, info_nce, push
from autonovel.methods.base import Look, Method, Seen, Task
from autonovel.methods.simclr import PROJECTION
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.models.views import Chain
from autonovel.settings.stages import MoCoSettings


class MoCo(Method):
    """MoCo (He et al., 2020): find the other view of an image among it and a queue of earlier images.

    The other view and the queue come from a second network, which follows the first one slowly. Uses no labels. The queue makes
    up for small batches.

    In a batch whose images are normalised together, a view can be recognised by the statistics it shares with its partner. So
    the batch is normalised in groups, and the second network's groups differ from the first one's. Where several processes
    share a batch, each forms groups of its own, so the result is like that of one process but not the same.
    """

    settings: MoCoSettings
    norm_groups: ClassVar[int] = 8
    """Groups in which a batch is normalised."""
    queue: Tensor
    written: Tensor
    slow_backbone: Chain
    slow_head: nn.Module

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        assert isinstance(task.recipe.pretrain, MoCoSettings)
        self.settings = task.recipe.pretrain

    def check(self, shape: tuple[int, ...]) -> None:
        """The queue must hold a batch."""
        if self.settings.queue < self.settings.batch:
            raise InputError(
                f"{option('pretrain.queue')} is {self.settings.queue}; "
                f"it must be at least as long as a batch ({self.settings.batch})."
            )

    def head(self, inputs: int) -> HeadSpec:
        """What is compared: a linear projection of the features."""
        return HeadSpec("linear", inputs, PROJECTION)

    def prepare(self, net: Net) -> None:
        """Add the projection, a second network that starts as a copy of the first, and a queue of random directions."""
        net.add_head("pretext", self.head(net.n_features))
        self.slow_backbone = copy.deepcopy(net.backbone).requires_grad_(False).train()
        self.slow_head = copy.deepcopy(net.heads["pretext"]).requires_grad_(False).train()
        self.register_buffer("queue", torch.randn(self.settings.queue, PROJECTION))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """The second network starts where the first does, whatever weights that was given since."""
        if epoch == 0:
            self.slow_backbone.load_state_dict(net.backbone.state_dict())
            self.slow_head.load_state_dict(net.heads["pretext"].state_dict())

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Two of each image, one for each network."""
        return make_views(batch.images, key, batch.index, self.settings.augment, views=range(2), mirror=self.mirror)

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy of each first view over its partner and the queue, which then takes in the partners."""
        first, second = seen.views
        groups = _groups(len(first), self.norm_groups)
        queries = net.head("pretext", net.whole(net.through_learning(first, groups)))
        with torch.no_grad():
            mixed = second.unflatten(0, (groups, -1)).transpose(0, 1).flatten(0, 1)
            features = net.through_learning(mixed, groups, self.slow_backbone)
            features = features.unflatten(0, (-1, groups)).transpose(0, 1).flatten(0, 1)
            keys = net.through_head(self.slow_head, net.whole(features))
        loss = info_nce(queries, keys, self.queue, self.settings.temperature)
        with torch.no_grad():
            queue, written = push(self.queue, self.written, keys)
            self.queue.copy_(queue)
            self.written.copy_(written)
        return {"moco": loss}

    def after_step(self, net: Net) -> None:
        """The second network follows the first."""
        slow = [*self.slow_backbone.parameters(), *self.slow_head.parameters()]
        fast = [*net.backbone.parameters(), *net.heads["pretext"].parameters()]
        follow(slow, fast, self.settings.momentum)


class MoCoV2(MoCo):
    """MoCo v2 (Chen et al., 2020): a projection with a hidden layer."""

    def head(self, inputs: int) -> HeadSpec:
        """One hidden layer as wide as the features."""
        return HeadSpec("perceptron", inputs, PROJECTION, hidden=inputs)


def _groups(images: int, wanted: int) -> int:
    """The largest number of groups, up to the wanted one, that are of equal size and hold two images or more."""
    return max([1, *[g for g in range(2, wanted + 1) if images % g == 0 and images >= 2 * g]])
