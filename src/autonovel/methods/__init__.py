"""What is learned in each stage: the order of images, what is shown of them, the losses. Knows nothing of the training loop."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from autonovel.data.loader import Batch
from autonovel.models.net import Net
from autonovel.settings import Training


class Method(Protocol):
    """A stage's method."""

    @property
    def settings(self) -> Training:
        """How the stage is trained."""

    def prepare(self, net: Net) -> None:
        """Give the network the heads that the method trains."""

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """Which images each step of an epoch sees: int64 (steps, batch), from the visible labels (n,) and a random key."""

    def ramp(self, epoch: int) -> float:
        """The weight of slowly rising losses in this epoch."""

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """What the network is shown of a batch, float32 (n, c, h, w) each, under the epoch's random key (int64 scalar).

        Depends on nothing that is learned, so the loop may make the views of the next batch while it learns from this one.
        """

    def losses(self, net: Net, seen: list[Tensor], labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """The weighted losses of a batch by name; a loss may be a vector (one value per head). Their sum is minimised.

        Args:
            net: with the method's heads.
            seen: the views behind the network's frozen blocks.
            labels: int64 (n,) of the whole batch, -1 where unlabelled.
            ramp: float32 scalar in [0, 1], the weight of losses that come in slowly.
        """


def losses_of(method: Method, net: Net, batch: Batch, key: Tensor, ramp: Tensor) -> dict[str, Tensor]:
    """The losses of a batch, from its images to the end."""
    return method.losses(net, net.through_frozen(method.views(batch, key)), batch.labels, ramp)
