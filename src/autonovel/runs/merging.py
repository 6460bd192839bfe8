"""What the heads of a run say about its number of clusters: which of them are one class, and which hold several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autonovel.runs.files import RunFiles
from autonovel.runs.state import State

MERGING = "merging.json"


@dataclass(frozen=True)
class Merging:
    """What merging.json says, about the clusters as the machine found them.

    Attributes:
        order: (into, other, images between the two for one of the smaller), in the order in which clusters belong together.
        n_new: how many new classes the heads tell apart; None where they cannot.
        mixed: clusters that seem to hold several classes.
    """

    order: tuple[tuple[int, int, float], ...]
    n_new: int | None
    mixed: tuple[int, ...]

    @property
    def groups(self) -> list[list[int]]:
        """The clusters that seem to be one class each, where those are several."""
        found = {cluster: [cluster] for cluster in range(len(self.order) + 1)}
        for into, other, _ in self.order[: max(0, len(found) - self.n_new) if self.n_new is not None else 0]:
            found[into] += found.pop(other)
        return [sorted(group) for group in found.values() if len(group) > 1]


def read_merging(run: RunFiles) -> Merging | None:
    """What the heads say; None where nobody asked them."""
    if not run.has(MERGING):
        return None
    said = run.read_json(MERGING)
    return Merging(
        tuple((int(into), int(other), float(between)) for into, other, between in said["order"]),
        said["n_new"],
        tuple(said["mixed"]),
    )


def still_to_merge(said: Merging, machine: npt.NDArray[np.int64], state: State) -> list[list[int]]:
    """Clusters of the state that seem to be one class, after a person's edits.

    A cluster of the machine is where most of its images are now. Clusters to which a person gave different names, or which she
    marked, are left alone.
    """
    found = []
    for group in said.groups:
        now = {place for cluster in group if (place := _now(cluster, machine, state)) is not None}
        if len(now) > 1 and sum(number in state.names for number in now) < 2:
            found.append(sorted(now, key=lambda number: (number not in state.names, number)))
    return found


def _now(cluster: int, machine: npt.NDArray[np.int64], state: State) -> int | None:
    """The new class that most images of a cluster of the machine are in."""
    places, counts = np.unique(state.group[machine == cluster], return_counts=True)
    if not len(places) or 2 * counts.max() <= counts.sum():
        return None
    place = int(places[counts.argmax()])
    return place if place in state.marks and state.marks[place].kind == "new" else None
