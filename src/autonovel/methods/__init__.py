"""What is learned in each stage: one step function and its order of images each. Knows nothing of the training loop."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from autonovel.data.loader import Batch
from autonovel.models.net import Net
from autonovel.settings import Training


class Progress(NamedTuple):
    """Where training stands, as tensors on the device, so that a captured step sees them change.

    Attributes:
        key: int64 scalar, the key of this epoch's randomness.
        ramp: float32 scalar in [0, 1], the weight of losses that come in slowly.
    """

    key: Tensor
    ramp: Tensor


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

    def step(self, net: Net, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """The weighted losses of a batch by name; a loss may be a vector (one value per head). Their sum is minimised."""
