"""What the clusters are at one moment, and which lines of the journal are in force. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.runs.answers import MachineAnswers
from autonovel.runs.journal import Entry

Kind = Literal["new", "known", "not a class"]


class Cluster(NamedTuple):
    """A group of images as it is now.

    Attributes:
        number: its number; -1, -2, ... for the images in the first, second, ... known class.
        name: the name a person gave it, that of its known class, or "new 3".
        kind: what it is: a new class, a known one, or not a class.
        members: rows of predictions.csv, ascending.
    """

    number: int
    name: str
    kind: Kind
    members: npt.NDArray[np.int64]


class Role(NamedTuple):
    """What a cluster is; for a known class, its place among them."""

    kind: Kind
    known: int = -1


@dataclass(frozen=True, eq=False)
class State:
    """The clusters at one moment; never changed, an edit makes another one.

    Attributes:
        known: names of the known classes.
        group: (n,) number of each image's cluster, or -1 - k for an image in the known class k.
        marks: every cluster there is, and what it is.
        names: names that were given.
        moved: (n,) images that a person put where they are.
        next_number: the number for the next new cluster; the numbers of clusters that are gone are not given again.
    """

    known: tuple[str, ...]
    group: npt.NDArray[np.int64]
    marks: dict[int, Role]
    names: dict[int, str]
    moved: npt.NDArray[np.bool_]
    next_number: int

    def called(self, number: int) -> str:
        """The name of a cluster, or of the known class that -1 - number stands for."""
        if number < 0:
            return self.known[-1 - number]
        mark = self.marks[number]
        return (
            self.known[mark.known] if mark.kind == "known" else self.names.get(number) or usual_name(number, self.known)
        )

    @property
    def given_names(self) -> dict[int, str]:
        """The names that show: those of clusters that are not a known class."""
        return {n: self.names[n] for n in sorted(self.names) if self.marks[n].kind != "known"}

    @property
    def classes(self) -> tuple[str, ...]:
        """Known classes, then the new ones in the order of their numbers."""
        return self.known + tuple(self.called(n) for n in self._new)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """(n,) the place of every image's class in :attr:`classes`; -1 in clusters that are not a class."""
        n_known = len(self.known)
        table = np.full(n_known + self.next_number, -1, dtype=np.int64)  # from group + n_known to the place
        table[:n_known] = np.arange(n_known)[::-1]
        for number, mark in self.marks.items():
            table[n_known + number] = mark.known  # -1 where it is none
        for place, number in enumerate(self._new):
            table[n_known + number] = n_known + place
        return table[self.group + n_known]

    @property
    def clusters(self) -> list[Cluster]:
        """All clusters by number, then the known classes that images were put into."""
        members = self.members
        numbered = [Cluster(n, self.called(n), self.marks[n].kind, members.get(n, _NONE)) for n in sorted(self.marks)]
        known = sorted((n for n in members if n < 0), reverse=True)
        return numbered + [Cluster(n, self.called(n), "known", members[n]) for n in known]

    @cached_property
    def members(self) -> dict[int, npt.NDArray[np.int64]]:
        """The rows of every group that has any."""
        parts: dict[int, list[npt.NDArray[np.int64]]] = {}
        for start in range(0, len(self.group), 2**20):  # of ten million at once, order alone would take 160 MB
            group = self.group[start : start + 2**20]
            order = np.argsort(group, kind="stable")
            numbers, starts = np.unique(group[order], return_index=True)
            rows = (order + start).astype(self.group.dtype)
            for number, some in zip(numbers.tolist(), np.split(rows, starts[1:]), strict=True):
                parts.setdefault(number, []).append(some)
        return {number: np.concatenate(parts.pop(number)) for number in sorted(parts)}

    @property
    def _new(self) -> list[int]:
        return sorted(n for n, mark in self.marks.items() if mark.kind == "new")


_NONE = np.zeros(0, dtype=np.int64)


def usual_name(number: int, known: Sequence[str]) -> str:
    """What a cluster without a name is called."""
    name = f"new {number}"
    while name in known:  # a known class may be called so
        name = f"new {name}"
    return name


def first_state(answers: MachineAnswers) -> State:
    """The clusters as the machine answered."""
    return State(
        known=answers.known,
        group=answers.group,
        marks={number: Role("new") for number in range(answers.n_new)},
        names=dict(answers.names),
        moved=np.zeros(len(answers.group), dtype=bool),
        next_number=answers.n_new,
    )


def standing(entries: Sequence[Entry]) -> tuple[list[int], list[int]]:
    """Which lines of the journal are in force, and which are undone and can be redone (the last first to be)."""
    done: list[int] = []
    undone: list[int] = []
    for number, entry in enumerate(entries):
        if entry["do"] == "undo":
            undone.append(done.pop())
        elif entry["do"] == "redo":
            done.append(undone.pop())
        else:
            done.append(number)
            undone.clear()
    return done, undone
