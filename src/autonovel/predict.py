"""Further images to known classes and discovered clusters, under the names that a person gave them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.data.images import ImageSet
from autonovel.data.reading.inputs import open_input
from autonovel.errors import InputError, option
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.progress import Reporter
from autonovel.runs.folder import Run
from autonovel.trained import Answers, restore
from autonovel.verdict import Judge

PART = 8192
"""Images that are answered and written together."""

Floats = npt.NDArray[np.float32]


class Predicted(NamedTuple):
    """The answer for one image.

    Attributes:
        image: its name.
        name: its class, as it is called now.
        cluster: the number of its cluster; None where the answer is a known class.
        probability: that the answer is right, calibrated as the run's own.
        known: whether the answer is a known class.
        unlike: whether the image is unlike anything that the run has seen.
    """

    image: str
    name: str
    cluster: int | None
    probability: float
    known: bool
    unlike: bool


def predict(
    run: Run,
    images: Any,
    *,
    to: str | os.PathLike[str] | None = None,
    device: str = "auto",
    cache: str | os.PathLike[str] | None = None,
    reporter: Reporter | None = None,
) -> list[Predicted]:
    """The classes of further images: known ones and discovered ones, with a person's names, merges and corrections.

    A file that took part in the run, known by its path, gets the answer that the run has for it; the network is not asked
    again.

    Args:
        run: a finished run.
        images: a folder, a table, a list of files, arrays, or an ImageSet.
        to: a file to write as well; its ending says how: .csv, .jsonl or .parquet.
        device: cpu, cuda or auto.
        cache: folder for decoded images and features; the user's cache folder when left out.
        reporter: sees the progress.
    """
    writer = None if to is None else _writer(Path(to))
    mode, shown = Mode.of(device), reporter or Reporter()
    _ = run.summary  # says so where the run is not finished
    judge = Judge.read(run)
    trained = restore(run, mode, Path(cache) / "features" if cache is not None else user_cache() / "features")
    height, width, channels = run.config["run"]["data"]["shape"]
    if isinstance(images, ImageSet) and images.images.shape[1:] == (height, width, channels):
        data = images
    else:
        given = open_input(None, images)
        data = given.load(size=height, channels=channels, least=1, progress=shown.counter("reading images")).images
    found = _recorded(run, data)
    further = np.array([row for row in range(len(data)) if row not in found], dtype=np.int64)
    classes = Classes(run)
    for start in range(0, len(further), PART):
        rows = further[start : start + PART]
        part = data.subset(rows)
        found |= zip(rows.tolist(), classes.named(part.ids, judge, trained.answers(part)), strict=True)
        shown.message(f"{len(found):,} of {len(data):,} images answered")
    answers = [found[row] for row in range(len(data))]
    if writer is not None:
        writer(answers)
    return answers


def _recorded(run: Run, data: ImageSet) -> dict[int, Predicted]:
    """The answers, by row, for files that took part in the run: what it says of them now, with a person's corrections."""
    if not data.sources:
        return {}
    pile = zip(run.predictions, run.unlike.tolist(), strict=True)
    by_source: dict[str, Predicted] = {}
    for record in run.images:
        if record.label is not None:
            answer = Predicted(record.image, record.label, None, 1.0, True, False)
        else:
            p, unlike = next(pile)
            answer = Predicted(p.image, p.name, p.cluster, p.probability, p.known, unlike)
        if record.source:
            by_source[record.source] = answer
    sources = [source.absolute for source in data.sources]
    return {
        row: by_source[source]._replace(image=data.ids[row])
        for row, source in enumerate(sources)
        if source in by_source
    }


class Classes:
    """The classes of a run as they are now, after a person's edits."""

    def __init__(self, run: Run) -> None:
        machine, state = run.machine, run.state
        self._known, self._by_number = machine.known, {cluster.number: cluster for cluster in state.clusters}
        self._parts: list[list[tuple[int, Floats]]] = []
        features = np.asarray(run.features, dtype=np.float32)
        for number in range(machine.n_new):
            members = np.flatnonzero(machine.group == number)
            groups, counts = np.unique(state.group[members], return_counts=True)
            # a few images that were moved by hand say nothing of further images
            kept = groups[counts >= max(1, 0.05 * len(members))]
            self._parts.append([(int(g), features[members[state.group[members] == g]].mean(0)) for g in kept])

    def named(self, ids: Sequence[str], judge: Judge, answers: Answers) -> Iterator[Predicted]:
        """The answers under their present names."""
        verdict = judge.verdict(answers)
        features = answers.features.numpy()
        rows = zip(ids, verdict.place.tolist(), verdict.probability.tolist(), verdict.unlike.tolist(), strict=True)
        for row, (image, place, sure, unlike) in enumerate(rows):
            n_known = len(self._known)
            if place < n_known:
                yield Predicted(image, self._known[place], None, sure, True, unlike)
                continue
            cluster = self._by_number.get(self._nearest_part(place - n_known, features[row]))
            name = f"new {place - n_known}" if cluster is None else cluster.name
            known = cluster is not None and cluster.kind == "known"
            if cluster is not None and cluster.kind == "not a class":
                name = cluster.kind
            yield Predicted(image, name, None if known or cluster is None else cluster.number, sure, known, unlike)

    def _nearest_part(self, number: int, feature: Floats) -> int:
        """Where the machine's cluster was divided, the part whose middle is nearest."""
        parts = self._parts[number]
        if not parts:
            return number
        return min(parts, key=lambda part: float(np.square(part[1] - feature).sum()))[0]


def _writer(path: Path) -> Any:
    writers = {".csv": _write_csv, ".jsonl": _write_lines, ".parquet": _write_parquet}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path} has no ending that says how to write it; choose one of {', '.join(writers)}.")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} cannot be written; give a file in a folder that exists as {option('to')}.")
    return lambda found: write(path, found)


def _write_csv(path: Path, found: Iterable[Predicted]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Predicted._fields)
        for p in found:
            cluster = "" if p.cluster is None else p.cluster
            writer.writerow((p.image, p.name, cluster, f"{p.probability:.4f}", int(p.known), int(p.unlike)))


def _write_lines(path: Path, found: Iterable[Predicted]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for p in found:
            file.write(json.dumps(p._asdict() | {"probability": round(p.probability, 4)}, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, found: Iterable[Predicted]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("Writing Parquet needs pyarrow: pip install 'autonovel[tables]'.") from None
    columns = list(zip(*found, strict=True)) or [() for _ in Predicted._fields]
    table = pyarrow.table({name: list(values) for name, values in zip(Predicted._fields, columns, strict=True)})
    parquet.write_table(table, path)
