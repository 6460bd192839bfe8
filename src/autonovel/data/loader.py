"""From an ImageSet to batches on the device, and the order in which an epoch visits the images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.data.augment import make_key
from autonovel.data.images import ImageSet
from autonovel.errors import InputError


class Batch(NamedTuple):
    """What a step sees.

    Attributes:
        images: uint8 (b, h, w, c).
        labels: int64 (b,), -1 where unlabelled.
        index: int64 (b,), the images' places in the data set.
    """

    images: Tensor
    labels: Tensor
    index: Tensor


class DeviceImages:
    """A data set that lies on the device as one uint8 tensor; a batch is a gather."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, device: torch.device, *, size: int = 0) -> None:
        self.images = resize(torch.from_numpy(np.ascontiguousarray(images)), size).to(device)
        self.labels = torch.from_numpy(np.ascontiguousarray(labels)).to(device)

    @classmethod
    def of(cls, data: ImageSet, device: torch.device, *, size: int = 0) -> DeviceImages:
        """The images and the visible labels of an image set."""
        return cls(data.images, data.labels, device, size=size)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> Batch:
        """The images at these places."""
        return Batch(self.images[index], self.labels[index], index)


def resize(images: Tensor, size: int) -> Tensor:
    """Square-resize uint8 (n, h, w, c), in chunks; size 0 leaves them as they are."""
    if size == 0 or images.shape[1:3] == (size, size):
        return images
    parts = []
    for chunk in images.split(4096):
        pixels = F.interpolate(chunk.permute(0, 3, 1, 2).float(), (size, size), mode="bilinear", antialias=True)
        parts.append(pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1))
    return torch.cat(parts).contiguous()


def shuffled(index: Tensor, batch: int, *key: object) -> Tensor:
    """One shuffled pass over the images at index: int64 (steps, batch).

    The last batch is filled from the start of the pass, so that all batches have one shape.
    """
    batch = min(batch, len(index))
    order = index[torch.randperm(len(index), generator=host_generator(*key))]
    steps = -(-len(order) // batch)
    return torch.cat([order, order[: steps * batch - len(order)]]).view(steps, batch)


def mixed(known: Tensor, new: Tensor, batch: int, known_per_batch: int, *key: object) -> Tensor:
    """One pass over the known images with a fixed number of them in each batch, filled up with new ones: (steps, batch).

    New images are visited as often as it takes to fill the batches.
    """
    if not 0 < known_per_batch < batch:
        raise InputError(f"--joint.known-per-batch must lie between 1 and {batch - 1} (the batch size less one).")
    first = shuffled(known, known_per_batch, *key, "known")
    steps, per_step = len(first), batch - known_per_batch
    passes = [shuffled(new, len(new), *key, "new", p).flatten() for p in range(-(-steps * per_step // len(new)))]
    second = torch.cat(passes)[: steps * per_step].view(steps, per_step)
    return torch.cat([first, second], 1)


def host_generator(*key: object) -> torch.Generator:
    """A generator on the CPU that depends on nothing but the key."""
    return torch.Generator().manual_seed(make_key(*key))
