"""Features of a pre-trained backbone, computed once and kept on disk.

A feature is found by the pixels of its image, the weights and how it was computed, so estimate, discovery and prediction share
what any of them has computed, whatever the files are called.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from autonovel.data.augment import to_float
from autonovel.data.loader import as_tensor
from autonovel.machine import cpu
from autonovel.machine.prefetch import prefetch
from autonovel.machine.transfer import Arriving, in_parts, send
from autonovel.models.backbones import Backbone, digest
from autonovel.models.feature_files import DIGEST, Features, Store
from autonovel.models.layers import Conv2d, Folds, Linear

Chunk = npt.NDArray[np.uint8] | Tensor

_HASHED_ALONE = 2**22
"""Hashing up to this many bytes is not worth several threads."""


class _Pace(NamedTuple):
    """How the images go through the network.

    Attributes:
        chunk: images at most that are looked up together and come out as one part.
        pixels: of a batch.
        under_way: how many chunks the device has to do when the next is handed to it; none has everything done in turn.
    """

    chunk: int
    pixels: int
    under_way: int

    def batch(self, images: Chunk) -> int:
        """Images of a batch."""
        return max(1, self.pixels // (images.shape[1] * images.shape[2]))


_PACE = {
    # the largest map of a batch stays in the caches and below what the allocator gives back at once
    "cpu": _Pace(chunk=256, pixels=8 * 224 * 224, under_way=0),
    "cuda": _Pace(chunk=2048, pixels=256 * 224 * 224, under_way=2),
}


def stream_features(
    backbone: Backbone,
    images: Chunk | Iterable[Chunk],
    *,
    device: torch.device,
    precision: torch.dtype = torch.float32,
    cache: Path | None = None,
) -> Iterator[Features]:
    """The features of images under a pre-trained backbone, in evaluation mode: part by part, each as soon as it is there.

    Args:
        backbone: has statistics and an identity.
        images: uint8 (n, h, w, c), as a whole (a memory map too) or in parts.
        device: where to compute.
        precision: of the matrix work.
        cache: folder where features are kept; None keeps none.

    Yields:
        float32 (m, d), in the order of the images.
    """
    if backbone.statistics is None or not backbone.identity:
        raise ValueError("Only the features of a pre-trained backbone can be kept.")
    parts = [images] if isinstance(images, np.ndarray | Tensor) else images
    if cache is None:
        return _computed(backbone, parts, device, precision)
    return _kept(backbone, parts, device, precision, cache)


def _computed(
    backbone: Backbone, parts: Iterable[Chunk], device: torch.device, precision: torch.dtype
) -> Iterator[Features]:
    """Features that nobody wants kept: no image needs to be known again."""
    network: _Network | None = None
    pace = _PACE[device.type]
    under_way: deque[tuple[Chunk, Callable[[], Features]]] = deque()  # images stay, or others would get their memory
    for chunk in prefetch(_batches(parts, pace, device)) if pace.under_way else _slices(parts, pace.chunk):
        if not len(chunk):
            yield np.empty((0, backbone.n_features), np.float32)
            continue
        network = network or _Network(backbone, device, precision)
        under_way.append((chunk, network.start(chunk)))
        if len(under_way) > pace.under_way:
            yield under_way.popleft()[1]()
    while under_way:
        yield under_way.popleft()[1]()


def _kept(
    backbone: Backbone, parts: Iterable[Chunk], device: torch.device, precision: torch.dtype, cache: Path
) -> Iterator[Features]:
    """Features of images that are known again, in this computation and in others."""
    network: _Network | None = None
    store: Store | None = None
    pace = _PACE[device.type]
    under_way: deque[_UnderWay] = deque()
    begun: set[bytes] = set()  # the digests of what is under way

    def finish() -> Features:
        assert store is not None
        _, digests, missing, rows_to_come, found = under_way.popleft()
        if rows_to_come is not None:
            rows = rows_to_come()
            found.update(zip(missing, rows, strict=True))
            store.add(missing, rows)
            begun.difference_update(missing)
        # what was under way is in the memory of the store, since it came a moment ago
        whole = [found[digest] if digest in found else store.get(digest) for digest in digests]
        return np.array(whole, np.float32).reshape(len(digests), backbone.n_features)

    if pace.under_way:  # joined in one thread, digested in another: a GPU takes gigabytes of pixels a second
        chunks = prefetch(_with_digests(prefetch(_batches(parts, pace, device), room=1)))
    else:
        chunks = _with_digests(_slices(parts, pace.chunk))
    try:
        for chunk, digests in chunks:
            if store is None:
                made = (*_made_by(backbone), tuple(chunk.shape[1:3]), str(precision))
                store = Store(cache, repr(made), backbone.n_features)
            found = {digest: row for digest in digests if (row := store.get(digest)) is not None}
            rows = {digest: row for row, digest in enumerate(digests) if digest not in found and digest not in begun}
            missing, some, rows_to_come = list(rows), chunk, None
            if missing:
                network = network or _Network(backbone, device, precision)
                if len(missing) < len(chunk):
                    some = chunk[list(rows.values())]
                rows_to_come = network.start(some)
                begun.update(missing)
            under_way.append(_UnderWay(some, digests, missing, rows_to_come, found))
            if len(under_way) > pace.under_way:
                yield finish()
        while under_way:
            yield finish()
    finally:  # a computation that is stopped keeps what it has
        if store is not None:
            store.close()


def _made_by(backbone: Backbone) -> tuple[object, ...]:
    """What a feature depends on beside the image. A name proves nothing: the file that bears it may be rotted or a stranger's."""
    model = backbone.architecture
    return digest(backbone.blocks), backbone.statistics, model.backbone, model.width, model.shortcut


class _UnderWay(NamedTuple):
    """A chunk that the device may still be at work on.

    Attributes:
        images: kept until then, so that their memory is not used for others.
        digests: of the images.
        missing: those among them that nobody had computed before.
        features: waits for those of these; None where none is missing.
        found: rows of the others, but for those that a part before is at work on.
    """

    images: Chunk
    digests: list[bytes]
    missing: list[bytes]
    features: Callable[[], Features] | None
    found: dict[bytes, Features]


def _slices(parts: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """The images where they are, at most ``size`` at a time."""
    for part in parts:
        for start in range(0, max(1, len(part)), size):
            yield part[start : start + size]


def _batches(parts: Iterable[Chunk], pace: _Pace, device: torch.device) -> Iterator[Tensor]:
    """The images in full batches, however they were divided, and where the device fetches them without anyone waiting."""
    held: list[Tensor] = []
    for part in parts:
        size, first = min(pace.chunk, pace.batch(part)), 0
        if held and (held[0].shape[1:] != part.shape[1:] or held[0].is_cuda != getattr(part, "is_cuda", False)):
            yield _joined(held, device)
            held = []
        while True:
            piece = part[first : first + size - sum(map(len, held))]
            held.append(piece if isinstance(piece, Tensor) else as_tensor(piece))
            first += len(piece)
            if sum(map(len, held)) == size:
                yield _joined(held, device)
                held = []
            if first >= len(part):
                break
    if held:
        yield _joined(held, device)


def _joined(pieces: list[Tensor], device: torch.device) -> Tensor:
    """The images as one tensor: on the device where they are there, otherwise in memory that it can fetch them from."""
    if device.type == "cpu" or pieces[0].is_cuda:
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    whole = torch.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=torch.uint8, pin_memory=True)
    return torch.cat(pieces, out=whole)


def _with_digests(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[bytes]]]:
    """The chunks, with what each of their images is found by."""
    for chunk in chunks:
        pixels = np.ascontiguousarray(chunk.cpu().numpy() if isinstance(chunk, Tensor) else chunk)
        if pixels.nbytes <= _HASHED_ALONE:
            yield chunk, _digests(pixels)
            continue
        # several images at a time: with each handed to a thread by itself, it takes a quarter longer
        shares = np.array_split(pixels, min(len(pixels), 4 * _hashers()))
        yield chunk, [digest for share in _hashing().map(_digests, shares) for digest in share]


def _hashers() -> int:
    """Threads that compute digests, which releases the interpreter: one passes a gigabyte a second, a GPU takes three."""
    return min(8, os.cpu_count() or 1)


@functools.cache
def _hashing() -> Executor:
    return ThreadPoolExecutor(_hashers())


def _digests(images: npt.NDArray[np.uint8]) -> list[bytes]:
    return [digest_of(image) for image in images]


def digest_of(image: npt.NDArray[np.uint8]) -> bytes:
    """What an image (h, w, c) is known by."""
    # processors have instructions for SHA-256, which make it two to three times as fast as others
    return hashlib.sha256(image.data).digest()[: DIGEST - 6] + struct.pack("<HHH", *image.shape)


class _Network:
    """A copy of the backbone that does nothing but compute features, as fast as it can here."""

    def __init__(self, backbone: Backbone, device: torch.device, precision: torch.dtype) -> None:
        assert backbone.statistics is not None
        self.device, self.precision = device, precision
        self.mean, self.std = (torch.tensor(s, device=device).view(1, -1, 1, 1) for s in backbone.statistics)
        blocks = copy.deepcopy(backbone.blocks).requires_grad_(False).eval()
        for layer in list(blocks.modules()):
            if isinstance(layer, Folds):
                layer.fold()
            if isinstance(layer, Conv2d | Linear):
                layer.to(precision)  # once, instead of in every pass
        self.blocks: nn.Module = blocks.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def __call__(self, images: Chunk) -> Features:
        """The features of these images."""
        return self.start(images)()

    def start(self, images: Chunk) -> Callable[[], Features]:
        """Has a GPU begin with these images; what comes back waits for their features. A CPU computes them at once."""
        pixels = torch.from_numpy(np.ascontiguousarray(images)) if isinstance(images, np.ndarray) else images
        count = torch.get_num_threads() if self.device.type == "cpu" else 1
        full = _PACE[self.device.type].batch(images)
        size = min(full, -(-len(images) // count))  # something for each thread to do

        def compute(part: slice) -> Tensor:
            with torch.inference_mode():
                rows = self._sent(pixels[part], full)
                parts_done = list(in_parts(lambda some: self._features(to_float(some)), rows, full))
                return parts_done[0] if len(parts_done) == 1 else torch.cat(parts_done)

        parts = [slice(start, start + size) for start in range(0, len(images), size)]
        # whole images side by side: threads that share one image wait for each other at the end of every layer
        parts_done = list(cpu.single_threads(count).map(compute, parts) if count > 1 else map(compute, parts))
        kept = [rows[: min(size, len(images) - part.start)] for rows, part in zip(parts_done, parts, strict=True)]
        return Arriving(torch.cat(kept)).numpy

    def _sent(self, rows: Tensor, full: int) -> Tensor:
        """Rows of a batch on the device. A GPU gets rows of zeros as well, up to a power of two or a full batch.

        cuDNN plans every layer anew for every number of rows that it meets, so there should be few of them.
        """
        rows = send(rows, self.device)
        if self.device.type == "cpu":
            return rows
        lacking = min(full, 1 << (len(rows) - 1).bit_length()) - len(rows)
        return torch.cat([rows, rows.new_zeros(lacking, *rows.shape[1:])]) if lacking else rows

    def _features(self, x: Tensor) -> Tensor:
        x = ((x - self.mean) / self.std).to(self.precision)
        features: Tensor = self.blocks(x.contiguous(memory_format=torch.channels_last))
        return features.float()
