"""A run as the web page sees it: what it asks for, and the changes of a person."""

from __future__ import annotations

import hashlib
import io
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.report.clusters import Order, Shown, from_source, has_pictures_in_shards, shown_clusters, shown_names
from autonovel.report.findings import centres, suggest
from autonovel.runs.folder import Folder
from autonovel.runs.likely import Likely, likely_names
from autonovel.runs.state import standing
from autonovel.runs.verbs import VERBS, Edit
from autonovel.settings.kinds import is_a

MOST_NAMES = 20_000
"""Of larger clusters the page is sent the rows only, not the names of the files."""

MOST_ROWS = 100_000
"""Rows of a cluster that are sent; those first in the order that was asked for."""

MOST_FOUND = 2_000
MOST_POINTS = 100_000
SIDES = (256, 512, 1024, 2048)
"""Pixels of the longer side of pictures that are sent."""


@dataclass(frozen=True)
class _Snapshot:
    """The clusters after some number of edits."""

    edits: int
    clusters: list[Shown]
    group: npt.NDArray[np.int32]
    likely: dict[int, list[Likely]]
    headline: str


class Session:
    """What the page asks of a run. Methods may be called from several threads."""

    def __init__(self, run: Folder) -> None:
        self.run = run
        self._lock = threading.RLock()
        self._map_lock = threading.Lock()
        self._seen: _Snapshot | None = None
        run.summary  # noqa: B018, refuses a run without a result

    # What does not change while the page is open

    @cached_property
    def version(self) -> str:
        """Names this run's pictures, so that a browser may keep them for ever."""
        parts = [self.run.file("config.json").read_bytes()]
        index = self.run.path / "thumbnails" / "index.json"
        if index.exists():
            parts.append(str(index.stat().st_mtime_ns).encode())
        return hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]

    @cached_property
    def count(self) -> int:
        """How many unlabelled images there are."""
        return len(self.run.machine.images)

    @cached_property
    def names(self) -> Sequence[str]:
        """What every unlabelled image is called on the page: its path below what was given, else its id."""
        return shown_names(self.run)

    @cached_property
    def _sources(self) -> npt.NDArray[np.int64]:
        """Rows of images.csv; empty where there is none."""
        listed = self.run.images and self.run.parts is None
        return self.run.unlabelled if listed else np.zeros(0, dtype=np.int64)

    @cached_property
    def cells(self) -> npt.NDArray[np.int32]:
        """For every unlabelled image its cell on the contact sheets, counted through; -1 where it has none."""
        thumbnails = self.run.thumbnails
        if self.run.parts is not None:
            return np.zeros(0, dtype=np.int32)
        cells = np.full(self.count, -1, dtype=np.int32)
        if thumbnails is not None and len(self._sources):
            place = np.full(len(self.run.images), -1, dtype=np.int32)
            place[thumbnails.rows] = np.arange(thumbnails.count, dtype=np.int32)
            cells = place[self._sources]
        return cells

    # The clusters

    def _now(self) -> _Snapshot:
        """The clusters as they are, made again when the journal has grown."""
        with self._lock:
            edits = len(self.run.edits)
            if self._seen is None or self._seen.edits != edits:
                clusters = shown_clusters(self.run, self._seen.clusters if self._seen is not None else ())
                parts = self.run.parts is not None
                likely = {} if parts else likely_names(self.run, {c.number: c.rows for c in clusters if c.number >= 0})
                group = self.run.state.group.astype(np.int32, copy=False)
                self._seen = _Snapshot(edits, clusters, group, likely, self.run.headline)
            return self._seen

    def state(self) -> dict[str, Any]:
        """What every view of the page needs."""
        with self._lock:
            seen = self._now()
            done, undone = standing(self.run.edits)
            return {
                "title": self.run.path.resolve().name,
                "version": self.version,
                "edits": seen.edits,
                "undo": bool(done),
                "redo": bool(undone),
                "images": self.count,
                "known": list(self.run.state.known),
                "headline": seen.headline,
                "kind": [self.run.kind_found(1), self.run.kind_found(2)],
                "estimated": self.run.summary.get("n_new_estimated"),
                "interval": self.run.summary.get("n_new_interval"),
                "sheets": self._sheets(),
                "clusters": [self._card(c) | {"likely": seen.likely.get(c.number, [])} for c in seen.clusters],
            }

    def _sheets(self) -> dict[str, int] | None:
        """How contact sheets are laid out; of none, where each picture comes from its shard; None without pictures."""
        thumbnails = self.run.thumbnails
        if thumbnails is None:
            return {"columns": 1, "cells": 1, "count": 0, "side": 64} if self._in_shards else None
        names = ("columns", "cells", "count", "side")
        return {name: getattr(thumbnails, name) for name in names}

    @cached_property
    def _in_shards(self) -> bool:
        return has_pictures_in_shards(self.run)

    def _card(self, cluster: Shown) -> dict[str, Any]:
        first = cluster.most_typical(64)
        shown = (first if self.run.thumbnails is None else first[self.cells[first] >= 0]).tolist()
        return {
            "number": cluster.number,
            "name": cluster.name,
            "named": cluster.named,
            "kind": cluster.kind,
            "size": cluster.size,
            "confidence": round(cluster.confidence, 4),
            "colour": cluster.colour,
            "typical": (shown or first.tolist())[:8],
        }

    def images_of(self, number: int, order: Order) -> dict[str, Any]:
        """The images of a cluster, in an order."""
        return self._listed(self._cluster(number).ordered(order, self.names)[:MOST_ROWS].tolist())

    def _cluster(self, number: int) -> Shown:
        for cluster in self._now().clusters:
            if cluster.number == number:
                return cluster
        raise KeyError(number)

    def alike(self, number: int) -> list[int]:
        """The other clusters of new classes, those whose images are most like this one's first."""
        one = self._cluster(number)
        others = [c for c in self._now().clusters if c.number >= 0 and c.number != number and c.size]
        middle = centres(self.run.features, [one.rows, *(c.rows for c in others)])
        nearest = np.square(middle[1:] - middle[0]).sum(1).argsort(kind="stable")
        return [others[place].number for place in nearest.tolist()]

    def suggestions(self) -> list[dict[str, Any]]:
        """Clusters to merge or to look at, which no person has named or marked yet; and images like none of the classes."""
        now = self._now().clusters
        unseen = {c.number for c in now if c.kind == "new" and not c.named}
        suggested = [
            {"kind": one.kind, "text": one.text, "clusters": one.clusters}
            for one in suggest(self.run, now)
            if unseen & set(one.clusters)
        ]
        if unlike := int(self._unlike.sum()):
            what = "1 image resembles" if unlike == 1 else f"{unlike:,} images resemble"
            suggested.append({"kind": "unlike", "text": f"{what} none of the classes.", "clusters": []})
        return suggested

    def unlike_any(self) -> dict[str, Any]:
        """The images that resemble none of the classes."""
        rows = np.flatnonzero(self._unlike).tolist()
        return {"total": len(rows), **self._listed(rows[:MOST_FOUND])}

    def _listed(self, rows: list[int], names: list[str] | None = None) -> dict[str, Any]:
        probability = self.run.machine.probability
        if self.run.parts is None and len(rows) <= MOST_NAMES:
            names = [self.names[row] for row in rows]
        return {
            "rows": rows,
            "names": names,
            "probabilities": np.round(probability[rows].astype(np.float64), 4).tolist(),
        }

    def search(self, text: str) -> dict[str, Any]:
        """The images whose name holds this text, whatever its case."""
        wanted = text.casefold()
        if self.run.parts is not None:
            total, places = self.run.parts.holding(text, MOST_FOUND) if wanted else (0, {})
            return {"total": total, **self._listed(list(places), list(places.values()))}
        matching = [row for row, name in enumerate(self.names) if wanted in name.casefold()] if wanted else []
        return {"total": len(matching), **self._listed(matching[:MOST_FOUND])}

    def image(self, row: int) -> dict[str, Any]:
        """What is known of an image, and the images most like it."""
        self._check(row)
        seen = self._now()
        called = {cluster.number: cluster.name for cluster in seen.clusters}
        machine = self.run.machine
        said = int(machine.group[row])
        neighbours = self.run.neighbours(row, 12).tolist()
        return {
            "row": row,
            "name": self.names[row],
            "id": machine.images[row],
            "cluster": called[int(seen.group[row])],
            "said": machine.known[-1 - said] if said < 0 else called.get(said, f"new {said}"),
            "probability": round(float(machine.probability[row]), 4),
            "unlike": bool(self._unlike[row]),
            "neighbours": [
                {"row": other, "name": self.names[other], "cluster": called[int(seen.group[other])]}
                for other in neighbours
            ],
        }

    @cached_property
    def _unlike(self) -> npt.NDArray[np.bool_]:
        return self.run.unlike

    def map(self) -> bytes:
        """The map for the page: the number of points n as int32, then n rows, x, y (in the unit square), cluster numbers."""
        seen = self._now()
        rows, places = self._points
        parts = (rows, places[:, 0], places[:, 1], seen.group[rows])
        return struct.pack("<i", len(rows)) + b"".join(
            np.ascontiguousarray(part, dtype="<i4" if part.dtype.kind == "i" else "<f4").tobytes() for part in parts
        )

    @cached_property
    def _points(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """The images on the map, evenly taken where there are too many, and their places in the unit square."""
        with self._map_lock:  # its own: drawing the map takes seconds, and the person may go on meanwhile
            places = np.asarray(self.run.map, dtype=np.float32)
        if self.run.parts is not None:
            return self.run.mapped.astype(np.int32), unit_square(places)
        rows = np.arange(len(places), dtype=np.int32)
        if len(rows) > MOST_POINTS:
            rows = rows[np.linspace(0, len(rows) - 1, MOST_POINTS).astype(np.int64)]
        return rows, unit_square(places[rows])

    # Pictures

    def _check(self, row: int) -> None:
        if not 0 <= row < self.count:
            raise KeyError(row)

    def sheet(self, number: int) -> bytes:
        """A contact sheet as JPEG."""
        thumbnails = self.run.thumbnails
        if thumbnails is None or not 0 <= number < thumbnails.sheets:
            raise KeyError(number)
        return thumbnails.sheet(number)

    def picture(self, row: int, side: int = SIDES[-1]) -> bytes:
        """An image up to this large, from its file if that is still there, else from its thumbnail."""
        self._check(row)
        if self.run.parts is not None:
            enough = next((known for known in SIDES if known >= side), SIDES[-1])
            image = from_source(self.run.images[len(self.run.labelled) + row], enough)
            if image is None:
                raise KeyError(row)
            return _as_jpeg(image)
        if not len(self._sources):
            raise KeyError(row)
        where = int(self._sources[row])
        enough = next((known for known in SIDES if known >= side), SIDES[-1])
        large = from_source(self.run.images[where], enough)
        if large is not None:
            return _as_jpeg(large)
        thumbnails = self.run.thumbnails
        if thumbnails is None or not thumbnails.has(where):
            raise KeyError(row)
        with self._lock:
            small = thumbnails.image(where).convert("RGB")
        return _as_jpeg(small)

    # A person's changes

    def edit(self, wish: dict[str, Any]) -> None:
        """Make one change: ``do`` is the verb, ``after`` the number of edits that the page has seen."""
        self.run.edit(_wished(wish), after=_number(wish, "after"))

    def table(self, number: int | None = None) -> Iterator[str]:
        """The current result, or that of one cluster, as lines of CSV."""
        import csv

        buffer = io.StringIO()
        writer = csv.writer(buffer)
        seen, parts = self._now(), self.run.parts is not None
        clusters = {cluster.number: cluster for cluster in seen.clusters}
        writer.writerow(("image", "path", "cluster", "name", "kind", "probability"))
        if number is not None:
            self._cluster(number)
        for row, name in enumerate(self.run.machine.images):
            cluster = clusters[int(seen.group[row])]
            if number not in (None, cluster.number):
                continue
            path = self.run.images[self._sources[row]].path if len(self._sources) else name if parts else ""
            place = cluster.number if cluster.number >= 0 else ""
            sure = f"{self.run.machine.probability[row]:.4f}"
            writer.writerow((name, path, place, cluster.name, cluster.kind, sure))
            if row % 1000 == 999:
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
        yield buffer.getvalue()


def unit_square(places: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Places moved and scaled, alike in both directions, to lie in the unit square around its middle."""
    if not len(places):
        return places
    low, high = places.min(axis=0), places.max(axis=0)
    scale = max(float((high - low).max()), 1e-9)
    return np.asarray((places - (low + high) / 2) / scale * 0.998 + 0.5, dtype=np.float32)


def _as_jpeg(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _number(wish: dict[str, Any], key: str) -> int:
    value = wish.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"The page sent no number for {key}; reload it.")
    return value


def _wished(wish: dict[str, Any]) -> Edit:
    """The verb that the page sent, and its fields."""
    kind: Any = VERBS.get(str(wish.get("do")))
    if kind is None:
        raise InputError("The page asked for a change that is not known; reload it.")
    hints = get_type_hints(kind)
    sent = {f.name: wish.get(f.name, f.default) for f in fields(kind)}
    for name, value in sent.items():
        if not is_a(hints[name], value):
            raise InputError(f"The page sent no {name} that can be used; reload it.")
    return kind.of(sent)  # type: ignore[no-any-return]
