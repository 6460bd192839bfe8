"""A person's edits: each is checked against the clusters as they are, and becomes one line of the journal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, TrainingError, listed
from autonovel.runs.files import RunFiles
from autonovel.runs.journal import JOURNAL, Entry, open_journal
from autonovel.runs.merging import Merging, still_to_merge
from autonovel.runs.state import State, apply, replay, standing, usual_name
from autonovel.runs.tree import divide, divide_by_tree

LONGEST_NAME = 200
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that turn the text around them, so that a name reads as another one."""

_USUAL = re.compile(r"(new )+[0-9]+")


class Conflict(InputError):  # noqa: N818, what happened is the better word
    """Somebody else edited the run meanwhile; look again before editing.

    Attributes:
        edits: the number of lines that the journal has now.
    """

    def __init__(self, message: str, edits: int) -> None:
        super().__init__(message)
        self.edits = edits


def edit(
    run: RunFiles, after: int | None, states: Callable[[list[Entry]], State], make: Callable[[State], Entry]
) -> None:
    """Add an edit to the journal: it is on the disk when this returns, and the file of names follows.

    Args:
        run: the folder.
        after: number of edits that the caller knows of, or None for whatever there is.
        states: the clusters after these lines of the journal.
        make: the entry for the clusters as they are.
    """
    with open_journal(run.path / JOURNAL) as journal:
        count = len(journal.entries)
        if after is not None and after != count:
            raise Conflict(
                f"The run in {run.path} was edited meanwhile ({count} edits, not {after}); look at it again first.",
                count,
            )
        entry = make(states(journal.entries))
        done, undone = standing(journal.entries)
        if (entry["do"] == "undo" and not done) or (entry["do"] == "redo" and not undone):
            raise InputError(f"There is nothing to {entry['do']} in {run.path}.")
        journal.append({**entry, "at": datetime.now(UTC).isoformat(timespec="milliseconds")})
        with suppress(TrainingError):  # the journal decides; this file is for people who look into the folder
            names = states(journal.entries).given_names
            run.write_json("names.json", {str(number): name for number, name in names.items()})


class States:
    """The clusters after the lines of a journal, worked out from the last state that was asked for where that is possible."""

    def __init__(self, path: Path, start: State) -> None:
        self._path = path
        self._first = start
        self._kept: tuple[list[Entry], State] = ([], start)

    def __call__(self, entries: list[Entry]) -> State:
        """The clusters after these lines; refuses lines that do not fit the run."""
        before, state = self._kept
        further = entries[len(before) :]
        try:
            if entries[: len(before)] != before or any(entry["do"] in ("undo", "redo") for entry in further):
                state = replay(self._first, entries)
            else:
                for entry in further:
                    state = apply(state, entry)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"The edits in {self._path} do not fit its predictions.csv ({error!r}).") from error
        self._kept = (list(entries), state)
        return state


def name(state: State, cluster: int, name: str) -> Entry:
    """Give a cluster a name."""
    number = _cluster(state, cluster)
    if state.marks[number].kind == "known":
        raise InputError(f"Cluster {number} is the known class {state.called(number)!r}; mark it 'new' to name it.")
    return {"do": "name", "cluster": number, "name": check_name(state, number, name)}


def check_name(state: State, number: int, name: Any) -> str:
    """The name as it is kept, without blanks around it; refused with the reason where it cannot be."""
    if not isinstance(name, str):
        raise InputError(f"The name of cluster {number} must be text, not {name!r}.")
    clean = _normal(name.strip())
    if all(unicodedata.category(letter)[0] in "CZ" for letter in clean):
        raise InputError(
            f"The name of cluster {number} is empty; give it a word, or undo to go back to an earlier one."
        )
    if len(clean) > LONGEST_NAME:
        raise InputError(f"The name of cluster {number} has {len(clean)} letters; use {LONGEST_NAME} at most.")
    if any(unicodedata.category(letter) in _CONTROLS or letter in _DIRECTIONS for letter in clean):
        raise InputError(f"The name {clean!r} has control characters in it; leave them out.")
    if clean == "not a class":
        raise InputError(f"{clean!r} is no name; if cluster {number} is none, mark it as {clean!r}.")
    if clean in map(_normal, state.known):
        raise InputError(
            f"{clean!r} is a known class; if cluster {number} is that class, mark it as {clean!r} instead of naming it."
        )
    if taken := [n for n in state.marks if n != number and state.names.get(n) == clean]:
        raise InputError(f"Cluster {taken[0]} is called {clean!r} already; merge the two or choose another name.")
    if _USUAL.fullmatch(clean) and clean != usual_name(number, state.known):
        raise InputError(f"{clean!r} is what a cluster is called while it has no name; choose another name.")
    return clean


def merge(state: State, clusters: Sequence[int]) -> Entry:
    """Put clusters together."""
    into, *others = [_cluster(state, cluster) for cluster in clusters]
    if len({into, *others}) < len(clusters):
        raise InputError(f"A cluster cannot be merged with itself ({', '.join(map(str, clusters))}); name each once.")
    return {"do": "merge", "into": into, "clusters": others}


def merge_suggested(state: State, said: Merging | None, machine: npt.NDArray[np.int64]) -> Entry:
    """Put together what the heads take for one class, as one edit; the first of each group keeps its number and name."""
    if said is None:
        raise InputError("This run suggests nothing, since only objective swap does; name the clusters to merge.")
    groups = still_to_merge(said, machine, state)
    if not groups:
        why = (
            "the heads of this run cannot tell classes apart"
            if said.n_new is None
            else (
                f"its heads tell {said.n_new} classes apart, and what they take for one is merged or has names of its own"
            )
        )
        raise InputError(
            f"There is nothing to merge as suggested: {why}; name the clusters to merge, if there are any."
        )
    new = [number for number, mark in state.marks.items() if mark.kind == "new"]
    clusters = np.where(np.isin(state.group, new), state.group, -1)
    for into, *others in groups:
        clusters[np.isin(clusters, others)] = into
    left = sorted(set(new) - {other for _, *others in groups for other in others})
    return {"do": "regroup", "k": len(left), "numbers": left, "kept": left, "clusters": clusters.tolist()}


def split(state: State, cluster: int, k: int, features: npt.NDArray[np.floating]) -> Entry:
    """Divide a cluster; the entry lists the images that leave it."""
    number = _cluster(state, cluster)
    members = np.flatnonzero(state.group == number)
    parts = _count(k, "parts", 2, len(members), f"cluster {number} has {len(members)} images")
    found = divide(features[members], parts)
    if found.max() + 1 < parts:
        raise InputError(f"Cluster {number} cannot be split into {parts}: only {found.max() + 1} of its images differ.")
    first = state.next_number
    return {
        "do": "split",
        "cluster": number,
        "parts": {str(first + part - 1): members[found == part].tolist() for part in range(1, parts)},
    }


def move(state: State, images: Iterable[str | int] | str | int, to: int | str | None, ids: Sequence[str]) -> Entry:
    """Put images into a cluster, a known class or (None, and "new" unless a class is called so) a cluster of their own."""
    asked: list[str | int] = list(images) if isinstance(images, Iterable) and not isinstance(images, str) else [images]
    if not asked:
        raise InputError("There are no images to move; give their ids or rows.")
    row_of = {image: row for row, image in enumerate(ids)} if any(isinstance(image, str) for image in asked) else {}
    rows = sorted({_row(image, row_of, len(ids)) for image in asked})
    if to is None or (to == "new" and to not in state.known and to not in map(state.called, state.marks)):
        return {"do": "move", "rows": rows, "cluster": state.next_number, "new": True}
    if not isinstance(to, str):
        return {"do": "move", "rows": rows, "cluster": _cluster(state, to)}
    if to in state.known:
        return {"do": "move", "rows": rows, "known": to}
    if called := [number for number in state.marks if state.called(number) == to]:
        return {"do": "move", "rows": rows, "cluster": called[0]}
    raise InputError(f"There is no class {to!r}; give the number of a cluster, its name, a known class or 'new'.")


def mark(state: State, cluster: int, what: str) -> Entry:
    """Say what a cluster is."""
    number = _cluster(state, cluster)
    if what in ("new", "not a class"):
        return {"do": "mark", "cluster": number, "as": what}
    if what in state.known:
        return {"do": "mark", "cluster": number, "as": "known", "known": what}
    classes = f" ({', '.join(state.known[:8])}{', ...' if len(state.known) > 8 else ''})" if state.known else ""
    raise InputError(f"A cluster can be 'new', 'not a class' or a known class{classes}, not {what!r}.")


def regroup(state: State, k: int, features: npt.NDArray[np.floating]) -> Entry:
    """Divide the images of all new classes into k clusters; the entry gives the cluster of each image, -1 for the others."""
    new = [number for number, mark in state.marks.items() if mark.kind == "new"]
    rows = np.flatnonzero(np.isin(state.group, new))
    parts = _count(k, "clusters", 1, len(rows), f"there are {len(rows)} images in new classes")
    before = state.group[rows]
    found = divide_by_tree(features[rows] if len(rows) < len(state.group) else features, parts)
    found = _with_moved(before, found, state.moved[rows])
    kept = _same_clusters(before, found)
    taken = {*kept.values(), *(number for number in state.marks if number not in new)}
    free = (number for number in range(len(taken) + parts) if number not in taken)
    numbers = [kept[part] if part in kept else next(free) for part in range(parts)]
    clusters = np.full(len(state.group), -1, dtype=np.int64)
    clusters[rows] = np.array(numbers, dtype=np.int64)[found]
    return {
        "do": "regroup",
        "k": parts,
        "numbers": sorted(numbers),
        "kept": sorted(kept.values()),
        "clusters": clusters.tolist(),
    }


def _with_moved(
    before: npt.NDArray[np.int64], found: npt.NDArray[np.int64], moved: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Images that a person moved go where most of the cluster went that she put them into."""
    found = found.copy()
    for number in np.unique(before[moved]):
        inside = before == number
        settled = inside & ~moved if (inside & ~moved).any() else inside
        found[inside & moved] = np.bincount(found[settled]).argmax()
    return found


def _same_clusters(before: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> dict[int, int]:
    """New group -> the cluster before that it shares over half of the images of both with; at most one each way."""
    same = {}
    for number in np.unique(before):
        inside = before == number
        shared = np.bincount(found[inside])
        part = int(shared.argmax())
        if shared[part] > ((found == part) | inside).sum() / 2:
            same[part] = int(number)
    return same


def _normal(text: str) -> str:
    """One spelling of letters that Unicode can spell in several ways."""
    return unicodedata.normalize("NFC", text)


def _is_number(value: object) -> bool:
    return isinstance(value, SupportsIndex) and not isinstance(value, bool | np.bool_ | np.ndarray)


def _whole(value: Any, what: str) -> int:
    if not _is_number(value):
        raise InputError(f"{what} must be a whole number, not {value!r}.")
    return int(value)


def _count(k: Any, what: str, least: int, most: int, why: str) -> int:
    number = _whole(k, f"The number of {what}")
    if number < least:
        raise InputError(f"The number of {what} must be at least {least}, not {number}.")
    if number > most:
        raise InputError(f"{number} {what} are too many: {why}.")
    return number


def _cluster(state: State, cluster: Any) -> int:
    """The number of a cluster that exists."""
    number = _whole(cluster, "The number of a cluster")
    if number not in state.marks:
        raise InputError(f"There is no cluster {number}; this run has {_ranges(sorted(state.marks))}.")
    return number


def _ranges(numbers: Sequence[int]) -> str:
    """'clusters 0 to 4, 7 and 9 to 12'."""
    if not numbers:
        return "no clusters"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    text = listed(" to ".join(map(str, run)) for run in runs)
    return f"cluster{'s' if len(numbers) > 1 else ''} {text}"


def _row(image: str | int, row_of: dict[str, int], count: int) -> int:
    """The row of an image given by its id or its row."""
    if isinstance(image, str):
        if image not in row_of:
            raise InputError(f"There is no unlabelled image {image!r} in this run; predictions.csv lists them.")
        return row_of[image]
    row = _whole(image, "The row of an image")
    if not 0 <= row < count:
        raise InputError(f"There is no row {row}; this run has rows 0 to {count - 1}.")
    return row
