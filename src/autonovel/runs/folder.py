"""The run folder: everything about a run, and what a person did with it. Reading it needs no torch.

docs/run-folder.md lists the files. This module puts together what the others of this package read and write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import TrainingError, kind_found
from autonovel.runs import answers, geometry, parts, thumbnails
from autonovel.runs.answers import Answer, ImageRecord, MachineAnswers
from autonovel.runs.edits import States, edit
from autonovel.runs.files import RunFiles, check_format, damaged, missing, no_run, unfinished
from autonovel.runs.headline import headline
from autonovel.runs.journal import JOURNAL, Entry, read_entries
from autonovel.runs.merging import read_merging, still_to_merge
from autonovel.runs.parts import Parts
from autonovel.runs.state import Cluster, State, first_state
from autonovel.runs.summary import read_summary
from autonovel.runs.thumbnails import Thumbnails
from autonovel.runs.verbs import Edit, Verbs

if TYPE_CHECKING:
    from autonovel.runs import weights

T = TypeVar("T")

MOST_MAPPED = 20_000
"""Images of a large pile that are on the map, and among which neighbours are looked for."""


class Folder(RunFiles, Verbs):
    """A run folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._kept: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The run in this folder; refused where there is none."""
        run = cls(path)
        if not run.exists:
            raise no_run(run, "config.json")
        check_format(run)
        return run

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.path}': {self.headline})"

    @property
    def headline(self) -> str:
        """What it has come to, in a sentence: how many images are new, in how many classes."""
        if not self.finished:
            return "not finished" if self.exists else "empty"
        return headline(self)

    def _keep(self, what: str, file: str, make: Callable[[], T]) -> T:
        """What was made of a file, made again when the file is another one."""
        try:
            now = os.stat(self.path / file)
            version: Any = (now.st_mtime_ns, now.st_size, now.st_ino)
        except OSError:
            version = None
        if self._kept.get(what, (self,))[0] != version:
            self._kept[what] = (version, make())
        kept: T = self._kept[what][1]
        return kept

    # What the machine did

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.has("summary.json")

    @property
    def config(self) -> dict[str, Any]:
        """What identifies this run: the recipe, the data, the seed, the versions it was made with."""
        config = self.read_json("config.json")
        if not isinstance(config.get("versions", {}), dict):
            raise damaged(self, "config.json", "its versions are no table")
        return config

    @property
    def summary(self) -> dict[str, Any]:
        """The result."""
        self._check_finished()
        return read_summary(self)

    def _check_finished(self) -> None:
        if not self.finished:
            raise unfinished(self)

    @property
    def machine(self) -> MachineAnswers:
        """What the machine answered, before any edit."""
        self._check_finished()
        if self.parts is not None:
            known, n_new = answers.known_classes(self), int(self.summary["n_new"])
            return self._keep("machine", parts.FOLDER, lambda: self._parts.answers(known, n_new))
        return self._keep("machine", "predictions.csv", lambda: answers.read_answers(self))

    @property
    def parts(self) -> Parts | None:
        """The answers for a pile of shards, one Parquet file for each; None where predictions.csv holds them."""
        return self._parts if self.has(parts.FOLDER) else None

    @property
    def _parts(self) -> Parts:
        return self._keep("parts", parts.FOLDER, lambda: parts.Parts(self))

    @property
    def images(self) -> Sequence[ImageRecord]:
        """All images, labelled or not, in the order of the input."""
        listed: list[ImageRecord] = self._keep("images", "images.csv", lambda: answers.read_images(self))
        return listed if self.parts is None else self.parts.records(listed)

    @property
    def labelled(self) -> list[ImageRecord]:
        """The labelled images."""
        listed: list[ImageRecord] = self._keep("images", "images.csv", lambda: answers.read_images(self))
        return [record for record in listed if record.label is not None]

    @property
    def unlabelled(self) -> npt.NDArray[np.int64]:
        """(n_unlabelled,) for each row of predictions.csv, its row in images.csv (and so in the thumbnails)."""
        if self.parts is not None:
            return np.arange(len(self.labelled), len(self.images))
        rows = self._keep(
            "unlabelled", "images.csv", lambda: np.flatnonzero([record.label is None for record in self.images])
        )
        if self.images:
            self._check_rows("images.csv", len(rows))
        return rows

    @property
    def unlike(self) -> npt.NDArray[np.bool_]:
        """(n_unlabelled,) which images are unlike anything seen."""
        if self.parts is not None:
            return self._keep("unlike", parts.FOLDER, lambda: self._parts.column("unlike", bool))
        return answers.read_unlike(self, self.machine)

    @property
    def features(self) -> npt.NDArray[np.float16 | np.float32]:
        """The features of every unlabelled image, in the order of the input."""
        features = self._array("features.npy")
        if features is None:
            raise missing(self, "features.npy")
        self._check_rows("features.npy", len(features))
        return features

    @property
    def labelled_features(self) -> npt.NDArray[np.float16 | np.float32] | None:
        """The features of every labelled image; None where they were not kept."""
        features = self._array("features-labelled.npy")
        if features is not None and len(features) and features.shape[1] != self.features.shape[1]:
            raise damaged(self, "features-labelled.npy", f"rows of {features.shape[1]}, those of features.npy differ")
        return features

    @property
    def probabilities(self) -> npt.NDArray[np.float16] | None:
        """(n_unlabelled, n_known + n_new) of the machine's answers; None where they were not kept."""
        return self._array("probabilities.npy")

    def _array(self, name: str) -> npt.NDArray[Any] | None:
        if not self.has(name):
            return None
        return self.read_array(name, "f", 2)

    def _check_rows(self, name: str, rows: int) -> None:
        """Refuse a file that does not have a row for each unlabelled image."""
        images = len(self.machine.images)
        if rows != images:
            raise damaged(self, name, f"it has {rows} rows for {images} unlabelled images")

    @property
    def thumbnails(self) -> Thumbnails | None:
        """Small pictures of all images; None where there are none."""
        return self._keep("thumbnails", thumbnails.INDEX, lambda: thumbnails.read_thumbnails(self))

    # What the clusters are now, after a person's edits

    @property
    def edits(self) -> list[Entry]:
        """What a person changed: the lines of edits.jsonl."""
        return self._keep("edits", JOURNAL, lambda: read_entries(self.path / JOURNAL))

    @property
    def state(self) -> State:
        """The clusters now."""
        return self._states(self.edits)

    @property
    def _states(self) -> States:
        return self._keep(
            "states",
            "predictions.csv" if self.parts is None else parts.FOLDER,
            lambda: States(self.path, first_state(self.machine)),
        )

    @property
    def predictions(self) -> Sequence[Answer]:
        """The answer for every unlabelled image, in the order of the input, with a person's edits."""
        machine, state = self.machine, self.state
        if self.parts is not None:
            return self.parts.predictions(state)
        shown = {c.number: parts.shown_as(c) for c in state.clusters}
        groups, sure, unlike = state.group.tolist(), machine.probability.tolist(), self.unlike.tolist()
        return [
            Answer(image, *shown[group][:2], p, shown[group][2], far)
            for image, group, p, far in zip(machine.images, groups, sure, unlike, strict=True)
        ]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The place in :attr:`classes` of every unlabelled image's class; -1 for images in no class."""
        return self.state.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """The known classes, then the new ones."""
        return self.state.classes

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters by number, then the known classes among the answers."""
        return self.state.clusters

    @property
    def names(self) -> dict[int, str]:
        """Names that a person gave to clusters."""
        return self.state.given_names

    def kind_found(self, count: int = 2) -> str:
        """What this many of its clusters are called: new classes, or just clusters where no class was known."""
        return kind_found(self.summary.get("n_known", len(self.state.known)), count)

    @property
    def suggested(self) -> list[list[int]]:
        """Groups of clusters that look like one class to the heads of the network, and are not merged yet."""
        said = read_merging(self)
        return [] if said is None else still_to_merge(said, self.machine.group, self.state)

    @property
    def typicality(self) -> npt.NDArray[np.float32]:
        """(n_unlabelled,) how close each image is to the centre of its cluster; the closest has 1."""
        if self.parts is not None:
            return self._keep("typical", parts.FOLDER, lambda: self._parts.column("typical", np.float16))
        state = self.state
        if self._kept.get("typicality", (None,))[0] is not state:
            self._kept["typicality"] = (state, geometry.typicality(self.features, state.group))
        typical: npt.NDArray[np.float32] = self._kept["typicality"][1]
        return typical

    def neighbours(self, row: int, k: int = 12) -> npt.NDArray[np.int64]:
        """The rows of predictions.csv whose features are nearest to this one's, the nearest first."""
        if self.parts is None:
            return geometry.neighbours(self.features, row, k)
        # among those on the map, and without looking whether a file of gigabytes has changed
        others = self.mapped[self.mapped != row]
        features = np.load(self._no_link("features.npy"), mmap_mode="r")
        rows = np.concatenate([features[row][None], self._sample[self.mapped != row]])
        near: npt.NDArray[np.int64] = others[geometry.neighbours(rows, 0, k) - 1]
        return near

    @property
    def mapped(self) -> npt.NDArray[np.int64]:
        """The rows of predictions.csv that are on the map: all, or an even share of very many."""
        n = len(self.machine.images)
        return (
            np.arange(n)
            if self.parts is None or n <= MOST_MAPPED
            else np.linspace(0, n - 1, MOST_MAPPED).astype(np.int64)
        )

    @property
    def _sample(self) -> npt.NDArray[Any]:
        """The features of the images on the map."""
        if self.parts is None:
            return self.features
        # read, not mapped: each row would keep a page of memory
        return self._keep("sample", "features.npy", lambda: read_rows(self._no_link("features.npy"), self.mapped))

    @property
    def map(self) -> npt.NDArray[np.float32]:
        """(n_unlabelled, 2) a map on which similar images lie together; made once and kept in map.npy."""
        kept = self._array("map.npy")
        if kept is None:
            places = geometry.draw_map(self._sample)
            with suppress(TrainingError):  # a folder that cannot be written can still be looked at
                self.write_array("map.npy", places)
            return places
        if len(kept) != len(self.mapped):
            self._check_rows("map.npy", len(kept))
        return kept

    def edit(self, verb: Edit, *, after: int | None = None) -> Self:
        """Make an edit: one line of the journal.

        Args:
            verb: what to change, one of :mod:`autonovel.runs.verbs`.
            after: number of edits the caller knows of; another number raises :class:`autonovel.runs.edits.Conflict`.
        """
        edit(self, verb, after, self._states)
        return self

    # Writing the result

    def write_predictions(self, predictions: Iterable[Answer]) -> None:
        """Write predictions.csv: the unlabelled images in data-set order."""
        answers.write_predictions(self, predictions)

    def write_images(self, images: Iterable[ImageRecord]) -> None:
        """Write images.csv: all images in data-set order."""
        answers.write_images(self, images)

    def write_features(self, name: str, features: npt.NDArray[np.float32]) -> None:
        """Write features (n, d): in half the space where their numbers allow it."""
        # a network from elsewhere may have any numbers; beyond those of float16 they would become infinite
        fits = np.abs(features).max(initial=0) <= np.finfo(np.float16).max
        self.write_array(name, features.astype(np.float16) if fits else features)

    def write_thumbnails(self, images: npt.NDArray[np.uint8]) -> None:
        """Write the contact sheets of all images, (n, h, w, c) in data-set order."""
        thumbnails.write_thumbnails(self, images)

    def write_tensors(self, name: str, tensors: weights.State, metadata: dict[str, str] | None = None) -> None:
        """Write a .safetensors file."""
        from autonovel.runs import weights

        weights.write_tensors(self, name, tensors, metadata)

    def read_tensors(self, name: str) -> tuple[weights.State, dict[str, str]]:
        """Tensors and metadata of a .safetensors file."""
        from autonovel.runs import weights

        return weights.read_tensors(self, name)

    def read_metadata(self, name: str) -> dict[str, str]:
        """The metadata of a .safetensors file; reads no tensor."""
        from autonovel.runs import weights

        return weights.read_metadata(self, name)


def read_rows(path: os.PathLike[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Some rows of a .npy file."""
    mapped = np.load(path, mmap_mode="r")
    rows_read, size = np.empty((len(rows), mapped.shape[1]), mapped.dtype), mapped.strides[0]
    with open(path, "rb", buffering=0) as file:
        for place, row in enumerate(rows.tolist()):
            file.seek(mapped.offset + row * size)
            rows_read[place] = np.frombuffer(file.read(size), mapped.dtype)
    return rows_read


def load(path: str | os.PathLike[str]) -> Folder:
    """Open the run in this folder."""
    return Folder.open(path)


Run = Folder


def versions() -> dict[str, str]:
    """What the run was made with."""
    import platform
    from importlib.metadata import version

    import autonovel

    return {"autonovel": autonovel.__version__, "torch": version("torch"), "python": platform.python_version()}
