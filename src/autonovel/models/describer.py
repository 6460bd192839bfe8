"""The features of the images of a shard, as one file: what a worker does, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np

from autonovel.data.images import Pixels
from autonovel.data.loader import as_tensor, resize
from autonovel.data.reading.decode import Form, UnusableImageError, decode
from autonovel.data.reading.described import Made, Rows, as_file
from autonovel.data.reading.problems import Problem
from autonovel.data.reading.shards import Entry, ShardToRead, read_shard
from autonovel.machine.device import Mode
from autonovel.machine.prefetch import prefetch
from autonovel.models.backbones import Backbone, build_backbone, digest
from autonovel.models.feature_store import digest_of, stream_features
from autonovel.settings.fields import from_dict
from autonovel.settings.recipe import Model

TASK = "autonovel.models.describer:describer"
"""Of :mod:`autonovel.machine.engines`."""

_AT_ONCE = 256
_DECODERS = 8


def made_of(model: Model, decoded: int, *, fetch: bool = True) -> Made:
    """What features of images that are decoded to this side are made by; ``fetch`` as in :func:`build_backbone`."""
    backbone = _backbone(model, decoded, fetch)
    return Made(digest(backbone.blocks), model.backbone, model.size or decoded, decoded, 3, backbone.n_features)


def given_to(model: Model, decoded: int, made: Made, device: str) -> dict[str, Any]:
    """What a worker is given, as plain values."""
    return {"model": asdict(model), "decoded": decoded, "made": asdict(made), "device": device}


def describer(given: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    """Makes, in a worker, the function from a shard to the content of its file."""
    model, decoded, made = from_dict(Model, given["model"]), given["decoded"], Made(**given["made"])
    mode = Mode.of(given["device"])
    backbone = _backbone(model, decoded)

    def describe(item: dict[str, Any]) -> bytes:
        shard = ShardToRead(**{**item, "paths": tuple(item["paths"]), "labels": tuple(item["labels"])})
        entries: list[Entry] = []
        digests: list[bytes] = []
        problems: list[Problem] = []
        batches = _decoded(read_shard(shard), Form(decoded, 3), mode.device.type != "cpu", problems)

        def pixels() -> Iterator[Any]:
            for some, images in batches:
                entries.extend(entry._replace(content=b"") for entry in some)
                digests.extend(map(digest_of, images))
                yield resize(as_tensor(images), model.size)

        members = stream_features(backbone, pixels(), device=mode.device, precision=mode.precision)
        parts = [np.empty((0, made.width), np.float16), *(part.astype(np.float16) for part in members)]
        features = np.concatenate(parts)
        usable = np.isfinite(features).all(1)
        problems += [Problem(entries[i].image, "features that are not finite") for i in np.flatnonzero(~usable)]
        columns = ([getattr(e, name) for e in entries] for name in ("image", "source", "place", "label"))
        images, sources, places, labels = (_objects(column)[usable] for column in columns)
        rows = Rows(images, sources, places, labels, _objects(digests)[usable], features[usable])
        return as_file(made, shard.address, shard.stamp, rows, problems)

    return describe


def _backbone(model: Model, decoded: int, fetch: bool = True) -> Backbone:
    return build_backbone(model, channels=3, size=model.size or decoded, fetch=fetch)


def _objects(values: list[Any]) -> Any:
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _decoded(
    members: Iterator[Entry | Problem], form: Form, beside: bool, problems: list[Problem]
) -> Iterator[tuple[list[Entry], Pixels]]:
    """The usable images, some hundred at a time; ``beside`` the network, in threads, where that is elsewhere at work."""

    def one(entry: Entry) -> Pixels | str:
        try:
            return decode(entry.content, form)
        except UnusableImageError as unusable:
            return str(unusable)

    def batches(decode_all: Callable[[list[Entry]], list[Pixels | str]]) -> Iterator[tuple[list[Entry], Pixels]]:
        while some := list(islice(members, _AT_ONCE)):
            problems.extend(item for item in some if isinstance(item, Problem))
            entries = [item for item in some if isinstance(item, Entry)]
            images = decode_all(entries)
            said = zip(entries, images, strict=True)
            problems.extend(Problem(entry.image, image) for entry, image in said if isinstance(image, str))
            usable = [i for i, image in enumerate(images) if not isinstance(image, str)]
            if usable:
                yield [entries[i] for i in usable], np.stack([images[i] for i in usable])

    if not beside:
        yield from batches(lambda entries: list(map(one, entries)))
        return
    with ThreadPoolExecutor(_DECODERS) as threads:
        yield from prefetch(batches(lambda entries: list(threads.map(one, entries))))
