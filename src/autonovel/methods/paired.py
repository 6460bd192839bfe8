"""KCL and MCL (Hsu et al., 2018 and 2019): clusters from pair labels that a similarity network gives."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from autonovel.data.augment import make_view
from autonovel.data.loader import Batch
from autonovel.maths.losses import kcl_loss, pair_loss
from autonovel.methods.base import Seen, Task
from autonovel.methods.pile import PileMethod
from autonovel.methods.similarity import LearnedPairs
from autonovel.models.backbones import build_backbone
from autonovel.models.heads import class_head
from autonovel.models.net import Net
from autonovel.settings.compared import PairedSettings


class MCL(PileMethod):
    """The likelihood of the pair labels under the product of two images' class probabilities."""

    settings: PairedSettings

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.mcl
        self.learned = LearnedPairs()

    def prepare(self, net: Net) -> None:
        """Keep the similarity network, and begin with its weights or afresh."""
        super().prepare(net)
        self.learned.take_from(net)
        if self.settings.start == "fresh":
            fresh = build_backbone(net.settings, channels=net.channels, size=net.size)
            net.backbone.load_state_dict(fresh.blocks.state_dict())
        net.add_head("new", class_head(self._model, net.n_features, self._n_new, stacked=True))

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image, which both networks see."""
        return [make_view(batch.images, key, batch.index, self.settings.augment)]

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The loss of all ordered pairs of the batch."""
        same = self.learned.labels(net, seen.views[0])
        scores = net.head("new", net.features_of(seen.views)[0])[0]
        return {"pairs": self.loss(scores.softmax(1), same, seen.labels < 0)}

    def loss(self, probabilities: Tensor, same: Tensor, mask: Tensor) -> Tensor:
        """Of class probabilities (n, c), given pair labels (n, n)."""
        return pair_loss(probabilities, probabilities, same, mask)


class KCL(MCL):
    """The divergence of pairs that belong together, and its distance to a margin for the others."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.kcl

    def loss(self, probabilities: Tensor, same: Tensor, mask: Tensor) -> Tensor:
        """Of class probabilities (n, c), given pair labels (n, n)."""
        return kcl_loss(probabilities, same, mask)


def used(sizes: Sequence[int]) -> int:
    """How many outputs hold at least as many images as the mean output: KCL's and MCL's count of classes.

    >>> used([50, 40, 1, 0, 0])
    2
    """
    return sum(size * len(sizes) >= sum(sizes) for size in sizes if size)
