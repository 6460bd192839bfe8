"""What a method is: the contract between what is learned and the loop that trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from autonovel.data.loader import Batch, shuffled
from autonovel.models.net import Net
from autonovel.settings.recipe import Recipe
from autonovel.settings.stages import Training

T = TypeVar("T")

Losses = dict[str, "float | list[float]"]
"""The mean of each loss over an epoch; a loss that is a vector has one value per head."""


@dataclass(frozen=True)
class Task:
    """What a method is made for.

    Attributes:
        recipe: every setting.
        n_known: how many classes are labelled.
        n_new: how many are to be found; 0 for a method that does not need to know.
        n_images: how many images there are, labelled and not.
        families: the family of each known class, if there are several families.
    """

    recipe: Recipe
    n_known: int = 0
    n_new: int = 0
    n_images: int = 0
    families: npt.NDArray[np.int64] | None = None


class Seen(NamedTuple):
    """What a loss sees of a batch.

    Attributes:
        views: the views behind the network's frozen blocks.
        labels: int64 (n,) of the whole batch, -1 where unlabelled.
        index: int64 (n,), which image of the data set each row is.
    """

    views: list[Tensor]
    labels: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody asks for


class Look(Protocol):
    """What a hook may ask between epochs."""

    seed: int
    """Of the run; everything random depends on it."""

    @property
    def labels(self) -> Tensor:
        """Int64 (n,) on the CPU, -1 where unlabelled."""

    def features(self, index: Tensor) -> Tensor:
        """Features (m, d) of these images under the network as it is now, in evaluation mode."""

    def agreed(self, decide: Callable[[], T]) -> T:
        """What the first process decides, for all of them: a GPU may round a close decision either way.

        The others wait meanwhile, so nothing may be asked there that all processes work on, such as features. What is decided
        lies on the CPU.
        """


class Method(nn.Module):
    """What one stage learns. Knows nothing of loops, devices or files.

    A method is made from a :class:`Task` and then used by the engine in the order of the functions below. Tensors of its
    own (a queue, a momentum network, targets) are buffers, made in :meth:`prepare`; they are kept in the checkpoint beside
    the network's.
    """

    sees: ClassVar[Literal["images", "labels", "both"]] = "images"
    """What the result depends on: all images but no label, the labelled images alone, or both."""
    needs_number: ClassVar[bool] = False
    """Whether the number of new classes must be known."""
    doubts: ClassVar[bool] = False
    """Whether the probabilities of the heads "new" and "over" say where else another view of the image might be put."""
    whole_batches: ClassVar[bool] = False
    """Whether the loss makes sense only for a batch exactly as :meth:`order` composed it (an episode, say)."""

    settings: Training
    """How the stage is trained."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.mirror = task.recipe.mirror != "no"
        """Whether views are mirrored by chance."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse settings that cannot work for images of this shape (height, width, channels), with one sentence."""

    def prepare(self, net: Net) -> None:
        """Give the network the heads that the method trains, and make the method's own tensors."""

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """Which images each step of an epoch sees: int64 (steps, batch), from the visible labels (n,) and a random key.

        One shuffled pass over all images, or over the labelled ones where the method sees no others.
        """
        index = torch.arange(len(labels)) if self.sees != "labels" else torch.nonzero(labels >= 0).flatten()
        return shuffled(index, self.settings.batch, *key)

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Called before an epoch (counted from 0); may fill the method's own tensors."""

    def ramp(self, epoch: int) -> float:
        """The weight of slowly rising losses in this epoch."""
        return 1.0

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """What the network is shown of a batch, float32 (n, c, h, w) each, under the step's random key (int64 scalar).

        Depends on nothing that is learned, so the loop may make the views of the next batch while it learns from this one.
        """
        raise NotImplementedError

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The weighted losses of a batch by name; a loss may be a vector (one value per head). Their sum is minimised.

        Args:
            net: with the method's heads.
            seen: views, labels and places of the images.
            ramp: float32 scalar in [0, 1], the weight of losses that come in slowly.
        """
        raise NotImplementedError

    def after_step(self, net: Net) -> None:
        """Called after the weights moved, as a part of the step that may be captured: moves the method's own tensors."""

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Called once after the last epoch with its mean losses (none where there are no epochs)."""


def losses_of(method: Method, net: Net, batch: Batch, key: Tensor, ramp: Tensor) -> dict[str, Tensor]:
    """The losses of a batch, from its images to the end."""
    views = net.through_frozen(method.views(batch, key))
    return method.losses(net, Seen(views, batch.labels, batch.whole_index), ramp)
