"""Pre-training by rotation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_view, quarter_turns
from autonovel.data.loader import Batch
from autonovel.methods.base import Method, Seen, Task
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net


class Rotation(Method):
    """RotNet (Gidaris et al., 2018): tell by how many quarter turns an image was rotated. Uses no labels."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.pretrain

    def check(self, shape: tuple[int, ...]) -> None:
        """Images must be square."""
        if shape[0] != shape[1]:
            raise InputError(f"Rotation needs square images; set {option('model.size')}.")

    def prepare(self, net: Net) -> None:
        """Add a head for the four rotations."""
        net.add_head("pretext", HeadSpec("linear", net.n_features, 4))

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image, in all four rotations."""
        return [quarter_turns(make_view(batch.images, key, batch.index, self.settings.augment, mirror=self.mirror))]

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy over the four rotations of every image in the batch."""
        scores = net.head("pretext", net.features_of(seen.views)[0])
        turns = torch.arange(4, device=scores.device).repeat_interleave(len(seen.labels))
        return {"rotation": F.cross_entropy(scores, turns)}
