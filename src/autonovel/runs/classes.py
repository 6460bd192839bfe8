"""Which output of the network is which class after a person's edits. Needs no torch.

The network answers with the classes that the machine knew and found. What its outputs are called now, which of them are added up
and which are divided is decided here and nowhere else. Single images that a person corrected are not in it; the share of the
images on which the answer is still the edited one says how much that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.runs.edits import apply
from autonovel.runs.state import Kind, State, first_state, standing

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder

FEW_MOVED = 0.05
"""Images moved by hand out of a cluster say nothing of further images where they are a smaller share of it than this."""


class Class(NamedTuple):
    """A class that an answer can be.

    Attributes:
        name: what it is called.
        kind: a known class, a new one, or "not a class".
        clusters: the clusters found by the machine that count towards it, whole or in part.
    """

    name: str
    kind: Kind
    clusters: tuple[int, ...]


class OutputPart(NamedTuple):
    """An output of the network, or a part of one that a person divided.

    Attributes:
        output: the place of the output, known classes first.
        place: the place of its class in :attr:`Outputs.classes`.
        cluster: the number of its cluster as it is now; None in a known class.
    """

    output: int
    place: int
    cluster: int | None


class Outputs(NamedTuple):
    """What becomes of the network's own outputs.

    Attributes:
        classes: as in ``run.classes`` but for new ones without images that no output stands for, and "not a class" at the
            end where something is that.
        parts: every output, or the parts into which a person divided it, in the order of the outputs.
        middles: float32 (parts, d), the middle of the features of each; an image is of that part of an output whose middle
            is nearest. Zeros where the output is whole.
        agreement: share of the unlabelled images for which the network's answer is the class they have now.
    """

    classes: tuple[Class, ...]
    parts: tuple[OutputPart, ...]
    middles: npt.NDArray[np.float32]
    agreement: float

    @property
    def silent(self) -> list[str]:
        """New classes that no output of the network stands for."""
        return [c.name for c in self.classes if c.kind == "new" and not c.clusters]

    @property
    def divided(self) -> dict[int, list[int]]:
        """The outputs that have several parts, and which parts they are."""
        return _divided(self.parts)


def _divided(parts: Sequence[OutputPart]) -> dict[int, list[int]]:
    of: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        of.setdefault(part.output, []).append(number)
    return {output: numbers for output, numbers in of.items() if len(numbers) > 1}


def outputs_of(run: Folder) -> Outputs:
    """The outputs of the run's network."""
    machine, state = run.machine, run.state
    n_known = len(machine.known)
    pieces = [(known, -1 - known, _NONE) for known in range(n_known)]  # output, number of the cluster now, images
    for cluster in range(machine.n_new):
        of = parts_of(cluster, machine.group, machine.n_new, state) or {_empty_now(run, cluster): _NONE}
        pieces += [(n_known + cluster, number, rows) for number, rows in of.items()]
    used = {number for _, number, _ in pieces} | state.members.keys()
    listed = [number for number, mark in sorted(state.marks.items()) if mark.kind == "new" and number in used]
    nothing = n_known + len(listed)  # the place of "not a class"
    place = {-1 - known: known for known in range(n_known)}
    place |= {number: n_known + i for i, number in enumerate(listed)}
    place |= {number: mark.known for number, mark in state.marks.items() if mark.kind == "known"}
    parts = []
    for output, number, _ in pieces:
        to = place.get(number, nothing)
        parts.append(OutputPart(output, to, None if to < n_known or number not in state.marks else number))
    names = [*machine.known, *map(state.called, listed)]
    names += ["not a class"] if any(part.place == nothing for part in parts) else []
    classes = []
    for i, name in enumerate(names):
        kind: Kind = "known" if i < n_known else "new" if i < nothing else "not a class"
        clusters = {part.output - n_known: None for part in parts if part.place == i and part.output >= n_known}
        classes.append(Class(name, kind, tuple(clusters)))
    middles, answered = _middles(run, parts, [rows for _, _, rows in pieces])
    numbers, where = np.unique(state.group, return_inverse=True)
    current = np.array([place.get(number, nothing) for number in numbers.tolist()], dtype=np.int64)[where]
    agreement = float((answered == current).mean()) if len(current) else 1.0
    return Outputs(tuple(classes), tuple(parts), middles, agreement)


_NONE = np.zeros(0, dtype=np.int64)


def _middles(
    run: Folder, parts: Sequence[OutputPart], rows_of: Sequence[npt.NDArray[np.int64]]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The middles of the parts, and the place of the class that the network's answer for each image stands for."""
    group = run.machine.group
    output = np.where(group < 0, -1 - group, group + len(run.machine.known))
    whole = {part.output: part.place for part in reversed(parts)}
    answered = np.array([whole[o] for o in range(len(whole))], dtype=np.int64)[output]
    divided = _divided(parts)
    features = np.asarray(run.features, dtype=np.float32) if divided else np.zeros((0, 0), np.float32)
    middles = np.zeros((len(parts), features.shape[1]), np.float32)
    for o, numbers in divided.items():
        middles[numbers] = [features[rows_of[number]].mean(0) for number in numbers]
        rows = np.flatnonzero(output == o)
        apart = np.stack([np.square(features[rows] - middles[number]).sum(1) for number in numbers])
        answered[rows] = np.array([parts[number].place for number in numbers])[apart.argmin(0)]
    return middles, answered


def parts_of(number: int, machine: npt.NDArray[np.int64], n_new: int, state: State) -> dict[int, npt.NDArray[np.int64]]:
    """Where the images of a machine's cluster are now: cluster -> their rows; the largest part first.

    What a person divided or made a cluster of counts, however little it is. Single images that she moved into a cluster that
    the machine had found, or into a known class, are corrections and say nothing of further images, unless they are many.

    Args:
        number: the machine's cluster.
        machine: (n,), the machine's cluster of every image.
        n_new: how many clusters the machine found.
        state: what the clusters are now.
    """
    members = np.flatnonzero(machine == number)
    rows_by_part: dict[int, npt.NDArray[np.int64]] = {}
    for group in np.unique(state.group[members]).tolist():
        part = members[state.group[members] == group]
        corrections = group < n_new and bool(state.moved[part].all())
        if not corrections or len(part) >= FEW_MOVED * len(members):
            rows_by_part[group] = part
    return dict(sorted(rows_by_part.items(), key=lambda item: -len(item[1])))


GONE = np.iinfo(np.int64).max
"""What an empty cluster became when it was dissolved, or all were made anew."""


def _empty_now(run: Folder, cluster: int) -> int:
    """The number of the cluster that a cluster of the machine without images is now."""
    entries, state, now = run.edits, first_state(run.machine), cluster
    for line in standing(entries)[0]:
        entry, before, state = entries[line], state, apply(state, entries[line])
        if entry["do"] == "merge" and now in entry["clusters"]:
            now = entry["into"]
        elif entry["do"] == "dissolve" and now == entry["cluster"]:
            now = GONE
        elif entry["do"] == "regroup" and now not in entry["kept"]:
            now = GONE if now in before.marks and before.marks[now].kind == "new" else now
    return now
