"""Pre-training by SimCLR."""

from __future__ import annotations

from torch import Tensor

from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.maths.contrastive import nt_xent
from autonovel.methods.base import Method, Seen, Task
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.settings.stages import SimCLRSettings

PROJECTION = 128
"""Outputs of the projection in which views are compared."""


class SimCLR(Method):
    """SimCLR (Chen et al., 2020): find the other view of an image among the views of all images in the batch.

    Uses no labels. Every other image of the batch is taken for another object, so large batches help.
    """

    settings: SimCLRSettings

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        assert isinstance(task.recipe.pretrain, SimCLRSettings)
        self.settings = task.recipe.pretrain

    def prepare(self, net: Net) -> None:
        """Add a projection with one hidden layer."""
        spec = HeadSpec("mlp", net.n_features, PROJECTION, hidden=net.n_features)
        net.add_head("pretext", spec)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Two of each image."""
        return make_views(batch.images, key, batch.index, self.settings.augment, views=range(2), mirror=self.mirror)

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy of each view over all others of the batch."""
        first, second = net.head_of("pretext", net.features_of(seen.views))
        return {"simclr": nt_xent(first, second, self.settings.temperature)}
