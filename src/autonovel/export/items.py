"""The images of a run as they are handed on: where each came from, and its class after a person's edits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from autonovel.base.errors import InputError, option
from autonovel.data.reading.problems import as_path
from autonovel.runs.state import Kind, usual_name

if TYPE_CHECKING:
    from autonovel.runs.folder import Run


class Item(NamedTuple):
    """An image and its class.

    Attributes:
        image: its id.
        source: the absolute path of its file; empty where it came from none.
        path: the same relative to the folder that was given; its id where it came from none.
        name: its class; "not a class" where a person said that its cluster is none.
        kind: what its class is.
        cluster: the number of its cluster; None in a known class.
        probability: how sure the machine was of its own answer; None for a labelled image.
        unlike: whether it is unlike anything seen.
        row: its row in images.csv; -1 where the run has none.
        digest: tells whether its file has changed since the run; empty where nobody knows.
        machine: what the machine called its class before anybody corrected it; empty for a labelled image.
    """

    image: str
    source: str
    path: str
    name: str
    kind: Kind
    cluster: int | None
    probability: float | None
    unlike: bool
    row: int
    digest: str = ""
    machine: str = ""

    @property
    def file(self) -> Path:
        """Its file, by the exact bytes of its name."""
        return Path(as_path(self.source))

    @property
    def labelled(self) -> bool:
        """Whether its class was given, not found."""
        return self.probability is None


def items_of(run: Run, *, all: bool = False) -> list[Item]:
    """The unlabelled images in the order of the input, or all images."""
    records, said = run.images, _said(run)
    if not records:
        if all:
            raise InputError(f"The run in {run.path} does not list its labelled images; leave {option('all')} out.")
        return [
            Item(
                *(p.image, "", p.image, p.name, _kind(p.name, p.known), p.cluster, p.probability, bool(unlike), -1),
                machine=name,
            )
            for p, unlike, name in zip(run.predictions, run.unlike, said, strict=True)
        ]
    placed = {
        row: Item(
            p.image,
            records[row].source,
            records[row].path or p.image,
            p.name,
            _kind(p.name, p.known),
            p.cluster,
            p.probability,
            bool(unlike),
            row,
            records[row].digest,
            name,
        )
        for row, p, unlike, name in zip(run.unlabelled.tolist(), run.predictions, run.unlike, said, strict=True)
    }
    if not all:
        return list(placed.values())
    return [
        placed[row]
        if r.label is None
        else Item(r.image, r.source, r.path or r.image, r.label, "known", None, None, False, row, r.digest)
        for row, r in enumerate(records)
    ]


def _said(run: Run) -> list[str]:
    """What the machine called the class of each unlabelled image."""
    machine = run.machine
    numbers = np.unique(machine.group).tolist()
    names = {n: machine.known[-1 - n] if n < 0 else machine.names.get(n, usual_name(n, machine.known)) for n in numbers}
    return [names[number] for number in machine.group.tolist()]


def classes_of(run: Run, items: list[Item]) -> list[tuple[str, Kind]]:
    """All classes of the run, known ones first, and "not a class" at the end where images are in none."""
    known = len(run.machine.known)
    classes: list[tuple[str, Kind]] = [(name, "known" if i < known else "new") for i, name in enumerate(run.classes)]
    none: tuple[str, Kind] = ("not a class", "not a class")
    return [*classes, none] if any(item.kind == "not a class" for item in items) else classes


def _kind(name: str, known: bool) -> Kind:
    return "known" if known else "not a class" if name == "not a class" else "new"
