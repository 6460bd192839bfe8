"""Which outputs of the network are which classes after a person's edits. Needs no torch.

The network answers with the classes that the machine knew and found. Names, merges and marks change what its outputs are
called and which are added up. Splits and moves of single images are not in the network; the share of the images on which
its answer is still the edited one says how much that matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.runs.edits import apply
from autonovel.runs.state import Kind, first_state, standing

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder


class Class(NamedTuple):
    """A class that an exported network tells.

    Attributes:
        name: what it is called.
        kind: a known class, a new one, or "not a class".
        clusters: the clusters found by the machine whose probabilities it adds up.
    """

    name: str
    kind: Kind
    clusters: tuple[int, ...]


class Outputs(NamedTuple):
    """What becomes of the network's own outputs.

    Attributes:
        classes: as in ``run.classes``, and "not a class" at the end where something is that.
        column: (n_known + n_new,) the place in classes of every output of the network.
        agreement: share of the unlabelled images for which the network's answer is the class they have now.
    """

    classes: tuple[Class, ...]
    column: npt.NDArray[np.int64]
    agreement: float

    @property
    def table(self) -> npt.NDArray[np.float32]:
        """(n_known + n_new, classes) with a 1 where an output counts towards a class."""
        return np.eye(len(self.classes), dtype=np.float32)[self.column]

    @property
    def silent(self) -> list[str]:
        """New classes that a person made and that no output of the network stands for."""
        return [c.name for c in self.classes if c.kind == "new" and not c.clusters]


def outputs_of(run: Folder) -> Outputs:
    """The outputs of the run's network."""
    machine, state = run.machine, run.state
    n_known = len(machine.known)
    nothing = len(run.classes)  # the place of "not a class"
    place = {
        number: n_known + i for i, number in enumerate(n for n in sorted(state.marks) if state.marks[n].kind == "new")
    }
    place |= {number: mark.known for number, mark in state.marks.items() if mark.kind == "known"}
    place |= {-1 - k: k for k in range(n_known)}
    now = _clusters_now(run)
    column = np.array([*range(n_known), *(place.get(number, nothing) for number in now)], dtype=np.int64)
    names = [*run.classes, *(["not a class"] if (column == nothing).any() else [])]
    classes = []
    for i, name in enumerate(names):
        kind: Kind = "known" if i < n_known else "new" if i < nothing else "not a class"
        classes.append(Class(name, kind, tuple((np.flatnonzero(column[n_known:] == i)).tolist())))
    answered = np.where(machine.group < 0, -1 - machine.group, machine.group + n_known)
    current = np.where(state.labels < 0, nothing, state.labels)
    agreement = float((column[answered] == current).mean()) if len(answered) else 1.0
    return Outputs(tuple(classes), column, agreement)


GONE = np.iinfo(np.int64).min
"""What an empty cluster became when all were made anew."""


def _clusters_now(run: Folder) -> list[int]:
    """For each cluster that the machine found, the number of the cluster it is now; -1 - k for the known class k."""
    machine, entries = run.machine, run.edits
    state = first_state(machine)
    now = list(range(machine.n_new))
    for line in standing(entries)[0]:
        entry, before, state = entries[line], state, apply(state, entries[line])
        if entry["do"] == "merge":
            now = [entry["into"] if number in entry["clusters"] else number for number in now]
        elif entry["do"] == "regroup":
            new = {number for number, mark in before.marks.items() if mark.kind == "new"}
            now = [
                _most(state.group[machine.group == cluster], number if number in entry["kept"] else GONE)
                if number in new
                else number
                for cluster, number in enumerate(now)
            ]
    return now


def _most(groups: npt.NDArray[np.int64], otherwise: int) -> int:
    """The cluster that most of these images are in."""
    numbers, counts = np.unique(groups, return_counts=True)
    return int(numbers[counts.argmax()]) if len(numbers) else otherwise
