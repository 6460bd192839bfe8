"""What a run leaves in its folder when it is done: answers, pictures, the estimate, the summary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autonovel.answers.judge import Answers
from autonovel.data.images import NO_SOURCE, ImageSet
from autonovel.discovery.plan import Stage
from autonovel.machine.device import Mode
from autonovel.maths.count.result import ClassEstimate
from autonovel.runs.answers import Answer, ImageRecord
from autonovel.runs.folder import Run
from autonovel.runs.seen import write_seen
from autonovel.settings.recipe import Recipe


def summarise(
    data: ImageSet, recipe: Recipe, stages: Sequence[Stage], seed: int, mode: Mode, answers: Answers
) -> dict[str, Any]:
    """The part of the summary that needs no truth; the number of classes and the times are added elsewhere."""
    n_known, labelled = data.n_known, int(data.is_labelled.sum())
    sizes = np.bincount(answers.place, minlength=answers.joint.shape[1]).tolist()
    return {
        "n_known": n_known,
        "images": {"labelled": labelled, "unlabelled": len(data) - labelled},
        "cluster_sizes": sizes[n_known:],
        "known_sizes": sizes[:n_known],
        "unlike": int(answers.unlike.sum()),
        "device": describe_device(mode, recipe.model.size or data.images.shape[1]),
        "seed": seed,
        "method": recipe.method,
        "recipe": recipe.name,
        "preset": recipe.preset,
        "answering_stage": stages[-1].name,
    }


def number_found(n_new: int | None, estimate: ClassEstimate | None) -> dict[str, Any]:
    """The part of the summary about the number of new classes."""
    return {
        "n_new": n_new,
        "n_new_estimated": None if estimate is None else estimate.n_new,
        "n_new_interval": None if estimate is None or estimate.interval is None else list(estimate.interval),
    }


def write_outcome(
    run: Run, data: ImageSet, features: Tensor, answers: Answers, summary: dict[str, Any], *, pictures: bool = True
) -> None:
    """Write everything that a person or another program asks for; the summary comes last and says that all is there."""
    n_known, unlabelled = data.n_known, np.flatnonzero(~data.is_labelled)
    names = [*data.class_names, *(f"new {c}" for c in range(answers.joint.shape[1] - n_known))]
    ids = [data.ids[i] for i in unlabelled.tolist()]
    rows = zip(ids, answers.place.tolist(), answers.probability.tolist(), strict=True)
    run.write_predictions(
        Answer(image, None if c < n_known else c - n_known, names[c], p, c < n_known) for image, c, p in rows
    )
    run.write_array("probabilities.npy", answers.joint.astype(np.float16))
    run.write_rows("unlike.csv", ("image",), [(ids[row],) for row in np.flatnonzero(answers.unlike)])
    run.write_images(_records(data))
    run.write_features("features.npy", features.numpy())
    if pictures:
        run.write_thumbnails(data.images)
        write_seen(run, data.images)
    if not run.has("names.json"):
        run.write_json("names.json", {})
    run.write_last("summary.json", plain(summary))


def _records(data: ImageSet) -> Iterator[ImageRecord]:
    for i, image in enumerate(data.ids):
        label = None if data.labels[i] < 0 else data.class_names[data.labels[i]]
        source = data.sources[i] if data.sources else NO_SOURCE
        yield ImageRecord(image, source.absolute, source.relative, label, source.digest)


def finished_already(run: Run) -> str:
    """The message for a run that has nothing left to do."""
    return f"{run.path} is finished already; delete the folder or choose another one to run again."


def write_estimate(run: Run, estimate: ClassEstimate, seconds: float) -> None:
    """Keep an estimate, and how many seconds it took."""
    run.write_json("estimate.json", plain(asdict(estimate)) | {"seconds": seconds})


def read_estimate(run: Run) -> tuple[ClassEstimate, float]:
    """What estimate.json holds: the estimate, and how many seconds it took."""
    kept = run.read_json("estimate.json")
    seconds = float(kept.pop("seconds", 0.0))
    return ClassEstimate(**kept), seconds


def describe_device(mode: Mode, side: int) -> str:
    """The device in words, for images with this side."""
    many = f"{mode.world.size} processes, each " if mode.world.several else ""
    if mode.device.type == "cuda":
        return f"{many}cuda: {torch.cuda.get_device_name(mode.device)}"
    precision = str(mode.precision_for(side)).removeprefix("torch.")
    threads = torch.get_num_threads()
    return f"{many}cpu: {threads} thread{'s' * (threads > 1)}, {precision}"


def plain(value: Any) -> Any:
    """NaN and infinite numbers, which JSON does not have, as null."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
