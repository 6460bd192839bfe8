"""From an ImageSet to batches on the device, and the order in which an epoch visits the images."""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.chance import host_generator
from autonovel.base.errors import InputError, option
from autonovel.data.images import ImageSet
from autonovel.data.reading.store import gather
from autonovel.machine.memory import free_memory


class Batch(NamedTuple):
    """What a step sees.

    Where several processes share a batch of b images, each has the pixels of its own n and the labels of all.

    Attributes:
        images: uint8 (n, h, w, c), of this process.
        labels: int64 (b,), of the whole batch, -1 where unlabelled.
        index: int64 (n,), the positions of this process's images in the data set.
        whole_index: int64 (b,), the positions of all images of the batch.
    """

    images: Tensor
    labels: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody asks a batch for
    whole_index: Tensor


class Images(Protocol):
    """A data set that serves batches on a device."""

    labels: Tensor
    """int64 (n,) on the device, -1 where unlabelled."""

    @property
    def side(self) -> int:
        """Height of the images in pixels."""

    def batch(self, index: Tensor) -> Batch:
        """The images at these positions (n,). This is inside the step, which may be captured as a graph."""

    def relabelled(self, labels: npt.NDArray[np.int64]) -> Images:
        """The same images with other labels."""

    def reserve(self, batch: int) -> None:
        """Prepare for a stage whose batches have this many images."""

    def begin(self, order: Tensor) -> None:
        """Start an epoch whose steps will ask for these rows of positions (steps, batch) in turn."""

    def fetch(self) -> None:
        """Start a step: make its images available to :meth:`batch`."""

    def end(self) -> None:
        """End an epoch, also one that failed or was interrupted."""

    def chunks(self, positions: npt.NDArray[np.int64] | None = None, size: int = 1024) -> Iterator[Tensor]:
        """The images at these positions (all when left out), in order, as uint8 (m, h, w, c) on the device."""


class DeviceImages:
    """A data set held on the device as one uint8 tensor; a batch is a gather inside the step."""

    def __init__(self, data: ImageSet, device: torch.device, *, size: int = 0) -> None:
        self.images = resize(as_tensor(data.images), size).to(device)
        self.labels = torch.from_numpy(data.labels).to(device)

    @property
    def side(self) -> int:
        """Height of the images in pixels."""
        return self.images.shape[1]

    def batch(self, index: Tensor) -> Batch:
        """Gather the images."""
        return Batch(self.images.index_select(0, index), self.labels[index], index, index)

    def relabelled(self, labels: npt.NDArray[np.int64]) -> DeviceImages:
        """Shares the pixels."""
        other = copy.copy(self)
        other.labels = torch.from_numpy(labels).to(self.labels.device)
        return other

    def reserve(self, batch: int) -> None:
        """Nothing to reserve."""

    def begin(self, order: Tensor) -> None:
        """Nothing to prepare."""

    def fetch(self) -> None:
        """Nothing to wait for."""

    def end(self) -> None:
        """Nothing to end."""

    def chunks(self, positions: npt.NDArray[np.int64] | None = None, size: int = 1024) -> Iterator[Tensor]:
        """Slices of the tensor."""
        wanted = torch.arange(len(self.labels)) if positions is None else torch.from_numpy(positions)
        for chunk in wanted.split(size):
            yield self.images[chunk.to(self.images.device)]


class _ReadAhead:
    """A thread that reads the batches of one epoch ahead of their steps, at most ``AHEAD`` of them."""

    AHEAD = 4

    def __init__(self, read: Callable[[npt.NDArray[np.int64]], Tensor], order: npt.NDArray[np.int64]) -> None:
        self._read = read
        self._waiting: queue.SimpleQueue[Tensor | BaseException] = queue.SimpleQueue()
        self._room, self._ended = threading.Semaphore(self.AHEAD), threading.Event()
        threading.Thread(target=self._work, args=(order,), daemon=True).start()

    def next(self) -> Tensor:
        """Wait for the next batch; raises what went wrong in the thread."""
        got = self._waiting.get()
        self._room.release()
        if isinstance(got, BaseException):
            raise got
        return got

    def end(self) -> None:
        """Have the thread end, whether or not all batches were fetched."""
        self._ended.set()
        self._room.release()  # it may be waiting for room

    def _work(self, order: npt.NDArray[np.int64]) -> None:
        try:
            for row in order:
                self._room.acquire()
                if self._ended.is_set():
                    # the next batch is fetched beside the step that failed, and whoever waits for it must not wait for ever
                    raise RuntimeError("The epoch has ended.")
                self._waiting.put(self._read(row))
        except BaseException as error:  # handed to the thread that waits for the batch
            self._waiting.put(error)


class StreamedImages:
    """A data set too large for the device: a thread reads ahead, and each step finds its images in a buffer there."""

    def __init__(self, data: ImageSet, device: torch.device, *, size: int = 0) -> None:
        self._data, self._source, self._device, self._size = data, data.images, device, size
        self.labels = torch.from_numpy(data.labels).to(device)
        self._buffer: Tensor | None = None
        self._reader: _ReadAhead | None = None

    @property
    def side(self) -> int:
        """Height of the images in pixels."""
        return self._size or int(self._source.shape[1])

    def batch(self, index: Tensor) -> Batch:
        """The images that :meth:`fetch` made available."""
        assert self._buffer is not None
        return Batch(self._buffer, self.labels[index], index, index)

    def relabelled(self, labels: npt.NDArray[np.int64]) -> StreamedImages:
        """Reads the same images."""
        return StreamedImages(replace(self._data, labels=labels), self._device, size=self._size)

    def reserve(self, batch: int) -> None:
        """Allocate the buffer."""
        height, width, channels = self._source.shape[1:]
        side = (self._size, self._size) if self._size else (height, width)
        self._buffer = torch.zeros((batch, *side, channels), dtype=torch.uint8, device=self._device)

    def begin(self, order: Tensor) -> None:
        """Start reading."""
        # a reader of its own for each epoch: one that was interrupted leaves batches behind
        self._reader = _ReadAhead(self._batch, order.numpy())

    def fetch(self) -> None:
        """Wait for the next batch and put it where the step looks for it."""
        assert self._buffer is not None
        assert self._reader is not None
        self._buffer.copy_(self._reader.next(), non_blocking=True)

    def end(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.end()

    def chunks(self, positions: npt.NDArray[np.int64] | None = None, size: int = 1024) -> Iterator[Tensor]:
        """Read chunk by chunk."""
        wanted = np.arange(len(self._source)) if positions is None else positions
        for start in range(0, len(wanted), size):
            yield self._rows(wanted[start : start + size]).to(self._device)

    def _batch(self, positions: npt.NDArray[np.int64]) -> Tensor:
        images = self._rows(positions)
        return images.pin_memory() if self._device.type == "cuda" else images

    def _rows(self, positions: npt.NDArray[np.int64]) -> Tensor:
        return resize(as_tensor(gather(self._source, positions)), self._size)


def put_on(device: torch.device, data: ImageSet, *, size: int = 0, sharers: int = 1) -> DeviceImages | StreamedImages:
    """The data set on the device as a whole where it takes at most half of the free memory, streamed otherwise.

    ``sharers`` processes on this machine do the same.
    """
    pixels = size * size or data.images.shape[1] * data.images.shape[2]
    # processes on one machine share its memory; each has a GPU of its own
    free = free_memory(device) / (sharers if device.type == "cpu" else 1)
    fits = len(data) * pixels * data.channels <= free / 2
    return (DeviceImages if fits else StreamedImages)(data, device, size=size)


_RESIZED_AT_ONCE = {"cpu": 2**22, "cuda": 2**26}
"""Pixels, before or after, of the images that are numbers of four bytes at a time while they are resized."""


def resize(images: Tensor, size: int) -> Tensor:
    """Images uint8 (n, h, w, c) resized to squares of this size, some at a time, as files are; size 0 leaves them as they are."""
    n, height, width, channels = images.shape
    if size == 0 or (height, width) == (size, size):
        return images
    resized = images.new_empty((n, size, size, channels))
    step = max(1, _RESIZED_AT_ONCE[images.device.type] // (channels * max(height * width, size * size)))
    for start in range(0, n, step):
        some = images[start : start + step].permute(0, 3, 1, 2).float()
        pixels = F.interpolate(some, (size, size), mode="bilinear", antialias=True)
        resized[start : start + step] = pixels.round_().clamp_(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return resized


def shuffled(index: Tensor, batch: int, *key: object) -> Tensor:
    """One pass over the images at these positions in random order: int64 (steps, batch).

    The last batch is filled up from the start of the pass, so that all batches have one shape.
    """
    batch = min(batch, len(index))
    order = index[torch.randperm(len(index), generator=host_generator(*key))]
    steps = -(-len(order) // batch)
    return torch.cat([order, order[: steps * batch - len(order)]]).view(steps, batch)


def mixed(known: Tensor, new: Tensor, batch: int, known_per_batch: int, *key: object) -> Tensor:
    """One pass over the labelled images, a fixed number in each batch, filled up with unlabelled ones: (steps, batch).

    The unlabelled images are visited as often as it takes to fill the batches.
    """
    if not 0 < known_per_batch < batch:
        raise InputError(
            f"{option('joint.known_per_batch')} is {known_per_batch}; it must lie between 1 and {batch - 1}, the batch less one."
        )
    first = shuffled(known, known_per_batch, *key, "known")
    steps, per_step = len(first), batch - known_per_batch
    return torch.cat([first, _passes(new, steps * per_step, *key, "new").view(steps, per_step)], 1)


def _passes(images: Tensor, count: int, *key: object) -> Tensor:
    """This many of the images: one shuffled pass over them after the other."""
    rounds = range(-(-count // len(images)))
    return torch.cat([shuffled(images, len(images), *key, r).flatten() for r in rounds])[:count]


def as_tensor(images: npt.NDArray[Any]) -> Tensor:
    """An array of images as a tensor; copied only where the array is not contiguous or not writable."""
    return torch.from_numpy(np.require(images, requirements=["C", "W"]))
