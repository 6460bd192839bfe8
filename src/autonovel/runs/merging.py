"""The opinion of a run's heads on its clusters: which of them are one class, and which hold several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autonovel.runs.files import RunFiles, damaged
from autonovel.runs.state import State

MERGING = "merging.json"


@dataclass(frozen=True)
class Merging:
    """The content of merging.json, about the clusters as the machine found them.

    Attributes:
        order: (into, other, images between the two for one of the smaller), in the order in which clusters belong together.
        n_new: how many new classes the heads tell apart; None where they cannot.
        mixed: clusters that seem to hold several classes.
    """

    order: tuple[tuple[int, int, float], ...]
    n_new: int | None
    mixed: tuple[int, ...]


def read_merging(run: RunFiles) -> Merging | None:
    """The opinion of the heads; None where it was not asked for."""
    if not run.has(MERGING):
        return None
    said = run.read_json(MERGING)
    try:
        return Merging(
            tuple((int(into), int(other), float(between)) for into, other, between in said["order"]),
            None if said["n_new"] is None else int(said["n_new"]),
            tuple(int(cluster) for cluster in said["mixed"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(run, MERGING, error) from error


def still_to_merge(said: Merging, machine: npt.NDArray[np.int64], state: State) -> list[list[int]]:
    """Clusters of the state that seem to be one class, after a person's edits.

    The merges of the machine's clusters are done again on the clusters as they are now, until as many are left as the heads
    tell apart. A cluster of the machine is where most of its images are. Two clusters to which a person gave names, or
    which she marked, are not put together.
    """
    if said.n_new is None:
        return []
    group = {n: [n] for n, mark in state.marks.items() if mark.kind == "new" and (state.group == n).any()}
    at: dict[int | None, int] = {number: number for number in group}
    for into, other, _ in said.order[: max(0, len(said.order) + 1 - said.n_new)]:
        first, second = (at.get(_now(cluster, machine, state)) for cluster in (into, other))
        if first is None or second is None or first == second or len(group) <= said.n_new:
            continue
        if all(any(number in state.names for number in group[side]) for side in (first, second)):
            continue
        group[first] += group.pop(second)
        at |= dict.fromkeys(group[first], first)
    several = [members for members in group.values() if len(members) > 1]
    return sorted(sorted(members, key=lambda number: (number not in state.names, number)) for members in several)


def _now(cluster: int, machine: npt.NDArray[np.int64], state: State) -> int | None:
    """The new class that most images of a cluster of the machine are in."""
    places, counts = np.unique(state.group[machine == cluster], return_counts=True)
    if not len(places) or 2 * counts.max() <= counts.sum():
        return None
    place = int(places[counts.argmax()])
    return place if place in state.marks and state.marks[place].kind == "new" else None
