"""Features of a pre-trained backbone, computed once and kept on disk.

A feature is found by the pixels of its image, the weights and how it was computed, so estimate, discovery and prediction share
what any of them has computed, whatever the files are called. Every computation leaves files of its own that are written under
another name and renamed when complete: nothing is ever changed in place, and two processes at once need no lock. Files that
nothing has used for a month are removed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import os
import struct
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from autonovel.chance import make_key
from autonovel.data.augment import make_view, to_float
from autonovel.errors import InputError, option
from autonovel.machine import cpu
from autonovel.machine.ahead import ahead
from autonovel.models.backbones import Backbone
from autonovel.models.layers import Conv2d, Folds, Linear
from autonovel.settings import Augment

Features = npt.NDArray[np.float32]
Chunk = npt.NDArray[np.uint8] | Tensor

VIEWS = Augment(crop="resized", area=(0.6, 1.0), flip=True)
"""How random views differ from the image: mild crops and mirror images."""

_MAGIC = b"autonovel features 1\n"
_HEAD = struct.Struct("<21sQQ16s")  # magic, rows, values of a row, checksum of all that follows
_DIGEST = 16
_SUFFIX = ".features"
_UNUSED_DAYS = 30
_FLUSH_SECONDS = 60.0
_CHUNK = {"cpu": 256, "cuda": 2048}
"""Images that are looked up together and come out as one part."""
_HASHED_ALONE = 2**22
"""Up to so many bytes are not worth the trouble of several threads."""
_PIXELS = {"cpu": 8 * 224 * 224, "cuda": 256 * 224 * 224}
"""Pixels of a batch. On a CPU its largest map then stays in the caches and below what the allocator gives back at once."""


def stream_features(
    backbone: Backbone,
    images: Chunk | Iterable[Chunk],
    *,
    device: torch.device,
    precision: torch.dtype = torch.float32,
    cache: Path | None = None,
    views: int = 0,
    augment: Augment = VIEWS,
) -> Iterator[Features]:
    """The features of images under a pre-trained backbone, in evaluation mode: part by part, each as soon as it is there.

    Args:
        backbone: has statistics and an identity.
        images: uint8 (n, h, w, c), as a whole (a memory map too) or in parts.
        device: where to compute.
        precision: of the matrix work.
        cache: folder where features are kept; None keeps none.
        views: of so many random views of each image instead of the image itself; they depend on its pixels alone.
        augment: what a view may change.

    Yields:
        float32 (m, d), or (m, views, d) with views, in the order of the images.
    """
    if backbone.statistics is None or not backbone.identity:
        raise ValueError("Only the features of a pre-trained backbone can be kept.")
    network: _Network | None = None
    store: _Store | None = None
    shape = (backbone.n_features,) if not views else (views, backbone.n_features)
    chunks = _with_digests(images, _CHUNK[device.type])
    for chunk, digests in ahead(chunks) if device.type == "cuda" else chunks:
        if store is None:
            made = (backbone.identity, tuple(chunk.shape[1:3]), str(precision), views, augment if views else None)
            store = _Store(cache, repr(made), int(np.prod(shape)))
        missing = {digest: row for row, digest in enumerate(digests) if digest not in store}
        if missing:
            network = network or _Network(backbone, device, precision)
            wanted = list(missing.values())
            some = chunk if len(wanted) == len(chunk) else chunk[wanted]
            store.add(list(missing), network(some, list(missing), views, augment).reshape(len(wanted), -1))
        yield np.array([store[digest] for digest in digests], np.float32).reshape(len(digests), *shape)
    if store is not None:
        store.close()


def _with_digests(images: Chunk | Iterable[Chunk], size: int) -> Iterator[tuple[Chunk, list[bytes]]]:
    """The images in parts, where they are, with what each is found by."""
    parts = [images] if isinstance(images, np.ndarray | Tensor) else images
    for part in parts:
        for start in range(0, max(1, len(part)), size):
            chunk = part[start : start + size]
            pixels = np.ascontiguousarray(chunk.cpu().numpy() if isinstance(chunk, Tensor) else chunk)
            many = pixels.nbytes > _HASHED_ALONE
            yield chunk, list(_hashing().map(_digest, pixels) if many else map(_digest, pixels))


@functools.cache
def _hashing() -> Executor:
    """Threads that compute digests, which needs no hold of Python: one passes a gigabyte a second, a GPU takes several."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1))


def _digest(image: npt.NDArray[np.uint8]) -> bytes:
    shape = struct.pack("<HHH", *image.shape)
    return hashlib.blake2b(image.data, digest_size=_DIGEST, salt=shape).digest()


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

    def __call__(self, images: Chunk, digests: list[bytes], views: int, augment: Augment) -> Features:
        pixels = torch.from_numpy(np.ascontiguousarray(images)) if isinstance(images, np.ndarray) else images
        index = torch.tensor([int.from_bytes(digest[:4], "little") for digest in digests])
        count = torch.get_num_threads() if self.device.type == "cpu" else 1
        size = max(1, _PIXELS[self.device.type] // (images.shape[1] * images.shape[2]))
        size = min(size, -(-len(images) // count))  # something for each thread to do

        def compute(part: slice) -> Tensor:
            with torch.inference_mode():
                some, which = (rows[part].to(self.device, non_blocking=True) for rows in (pixels, index))
                if not views:
                    return self._features(to_float(some))
                key = torch.tensor(make_key("views"), device=self.device)
                seen = [make_view(some, key, which, augment, view=view) for view in range(views)]
                return torch.stack([self._features(view) for view in seen], 1)

        parts = [slice(start, start + size) for start in range(0, len(images), size)]
        # whole images side by side: threads that share one image wait for each other at the end of every layer
        found = cpu.single_threads(count).map(compute, parts) if count > 1 else map(compute, parts)
        return torch.cat(list(found)).cpu().numpy()  # in the end: a GPU is not to wait after every batch

    def _features(self, x: Tensor) -> Tensor:
        x = ((x - self.mean) / self.std).to(self.precision)
        found: Tensor = self.blocks(x.contiguous(memory_format=torch.channels_last))
        return found.float()


class _Store:
    """Rows of features by digest, in memory and in the files of one folder."""

    def __init__(self, cache: Path | None, made: str, width: int) -> None:
        self._width = width
        self._rows: dict[bytes, Features] = {}
        self._added: list[bytes] = []
        self._written = time.monotonic()
        self._folder: Path | None = None
        self._files: dict[bytes, Path] = {}
        self._used: set[Path] = set()
        if cache is not None:
            self._folder = cache / hashlib.blake2b(made.encode(), digest_size=12).hexdigest()
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"The cache folder {cache} cannot be used ({error.strerror or error}); give another as {option('cache')}."
                ) from None
            _remove_unused(cache)
            for file in self._folder.glob(f"*{_SUFFIX}"):
                digests, rows = _read(file, width)
                self._rows.update(zip(digests, rows, strict=True))
                self._files.update(dict.fromkeys(digests, file))

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._rows

    def __getitem__(self, digest: bytes) -> Features:
        if digest in self._files:
            self._used.add(self._files[digest])
        return self._rows[digest]

    def add(self, digests: list[bytes], rows: Features) -> None:
        """Take in new rows; now and then they are written, so that a computation that is stopped is not lost."""
        self._rows.update(zip(digests, rows, strict=True))
        self._added += digests
        if time.monotonic() - self._written > _FLUSH_SECONDS:
            self._write()

    def close(self) -> None:
        """Write what is new, and remember that the rest was used today."""
        self._write()
        for file in self._used:
            with contextlib.suppress(OSError):  # another user's, or just removed
                os.utime(file)

    def _write(self) -> None:
        if self._folder is None or not self._added:
            return
        body = b"".join([*self._added, *(self._rows[digest].tobytes() for digest in self._added)])
        head = _HEAD.pack(_MAGIC, len(self._added), self._width, _checksum(body))
        name = f"{os.getpid()}-{os.urandom(6).hex()}"
        part = self._folder / f".{name}.part"
        try:
            with part.open("xb") as file:
                file.write(head)
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._folder / f"{name}{_SUFFIX}")
        except OSError:  # a full disk: the features are there all the same, and can be computed again
            part.unlink(missing_ok=True)
        self._added, self._written = [], time.monotonic()


def _read(file: Path, width: int) -> tuple[list[bytes], Features]:
    """The digests and rows of a file; none where it is damaged in any way or was removed meanwhile."""
    nothing: tuple[list[bytes], Features] = ([], np.empty((0, width), np.float32))
    try:
        content = file.read_bytes()
        magic, n, columns, checksum = _HEAD.unpack_from(content)
    except (OSError, struct.error):
        return nothing
    body = memoryview(content)[_HEAD.size :]
    fits = magic == _MAGIC and columns == width and len(body) == n * (_DIGEST + 4 * width)
    if not fits or _checksum(body) != checksum:
        return nothing
    digests = [bytes(body[i * _DIGEST : (i + 1) * _DIGEST]) for i in range(n)]
    return digests, np.frombuffer(body, "<f4", offset=n * _DIGEST).reshape(n, width)


def _checksum(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _remove_unused(cache: Path) -> None:
    """Remove files that nothing has used for a month, and parts that a killed process left behind a day ago."""
    for pattern, days in ((f"*/*{_SUFFIX}", _UNUSED_DAYS), ("*/.*.part", 1)):
        for file in cache.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - file.stat().st_mtime > days * 86400:
                    file.unlink()
