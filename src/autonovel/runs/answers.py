"""The machine's answer for every unlabelled image, and the list of all images: predictions.csv and images.csv."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.runs.files import RunFiles, damaged
from autonovel.runs.summary import read_summary

PREDICTION_FIELDS = ("image", "cluster", "name", "probability", "known")
IMAGE_FIELDS = ("image", "source", "path", "label", "digest")


class Answer(NamedTuple):
    """The answer for one image, whoever gives it.

    Attributes:
        image: its id.
        cluster: the number of its cluster; None where the answer is a known class.
        name: the name of its class.
        probability: that the answer is right, as the machine saw it.
        known: whether the answer is a known class.
        unlike: whether the image is unlike anything seen.
    """

    image: str
    cluster: int | None
    name: str
    probability: float
    known: bool
    unlike: bool = False


class ImageRecord(NamedTuple):
    """Where an image of the run came from.

    Attributes:
        image: its id.
        source: the absolute path of its file, empty where it came from none.
        path: the same relative to the folder or table that was given.
        label: its known class, None for an unlabelled image.
        digest: tells whether the file has changed since it was read; empty where nobody knows.
    """

    image: str
    source: str
    path: str
    label: str | None
    digest: str = ""


@dataclass(frozen=True)
class MachineAnswers:
    """The columns of predictions.csv.

    Attributes:
        known: names of the known classes.
        n_new: number of clusters.
        images: ids.
        group: (n,) number of the cluster; -1 for the first known class, -2 for the second, ...
        probability: (n,).
        names: cluster -> its name, where it is not the usual one.
    """

    known: tuple[str, ...]
    n_new: int
    images: Sequence[str]
    group: npt.NDArray[Any]
    probability: npt.NDArray[Any]
    names: dict[int, str] = field(default_factory=dict)


def read_answers(run: RunFiles) -> MachineAnswers:
    """Read predictions.csv."""
    classes = known_classes(run)
    images, clusters, names, probabilities, known = run.read_columns("predictions.csv", PREDICTION_FIELDS)
    is_known = np.array(known, dtype=object) == "1"
    try:
        group = np.array([int(c) if c else -1 for c in clusters], dtype=np.int64)
        probability = np.array(probabilities, dtype=np.float64)
        place = {name: -1 - k for k, name in enumerate(classes)}
        group[is_known] = [place[names[row]] for row in np.flatnonzero(is_known)]
        if (group[~is_known] < 0).any():
            raise ValueError("a row has neither a cluster nor a known class")
    except (ValueError, KeyError) as error:
        raise damaged(run, "predictions.csv", error) from error
    n_new = max(_n_new(run), int(group.max(initial=-1)) + 1)  # a cluster may be empty
    numbers, first = np.unique(group, return_index=True)
    given = {int(c): names[row] for c, row in zip(numbers, first, strict=True) if c >= 0}
    return MachineAnswers(
        classes,
        n_new,
        tuple(images),
        group,
        probability,
        {cluster: name for cluster, name in given.items() if name != f"new {cluster}"},
    )


def known_classes(run: RunFiles) -> tuple[str, ...]:
    """The names of the known classes."""
    try:
        return tuple(run.read_json("config.json")["run"]["data"]["class_names"])
    except (KeyError, TypeError) as error:
        raise damaged(run, "config.json", f"it names no known classes: {error}") from error


def _n_new(run: RunFiles) -> int:
    """How many new classes the summary says there are; 0 where there is none yet."""
    return int(read_summary(run)["n_new"]) if run.has("summary.json") else 0


def write_predictions(run: RunFiles, answers: Iterable[Answer]) -> None:
    """Write predictions.csv, the unlabelled images in data-set order."""
    run.write_rows(
        "predictions.csv",
        PREDICTION_FIELDS,
        ((a.image, "" if a.known else a.cluster, a.name, f"{a.probability:.4f}", int(a.known)) for a in answers),
    )


def read_images(run: RunFiles) -> list[ImageRecord]:
    """Read images.csv; none where it is not there yet."""
    if not run.has("images.csv"):
        return []
    columns = run.read_columns("images.csv", IMAGE_FIELDS)
    return [
        ImageRecord(image, source, path, label or None, digest)
        for image, source, path, label, digest in zip(*columns, strict=True)
    ]


def write_images(run: RunFiles, images: Iterable[ImageRecord]) -> None:
    """Write images.csv, all images in data-set order."""
    run.write_rows("images.csv", IMAGE_FIELDS, ((i.image, i.source, i.path, i.label or "", i.digest) for i in images))


def read_unlike(run: RunFiles, answers: MachineAnswers) -> npt.NDArray[np.bool_]:
    """Which unlabelled images are unlike anything seen, from unlike.csv."""
    if not run.has("unlike.csv"):
        return np.zeros(len(answers.images), dtype=bool)
    listed = set(run.read_columns("unlike.csv", ("image",))[0])
    return np.fromiter((image in listed for image in answers.images), dtype=bool, count=len(answers.images))
