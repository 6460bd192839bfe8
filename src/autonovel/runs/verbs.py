"""What a person may change: a class for each verb, from which the commands, the page and the methods of a run follow.

An edit is checked against the clusters as they are (``entry``) and becomes one line of the journal; ``apply`` says what that line
makes of the clusters. Nothing here imports numpy before it is needed, so that ``--help`` is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, SupportsIndex, TypeVar

from autonovel.base.errors import InputError, listed, option
from autonovel.runs.naming import check_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from autonovel.runs.folder import Folder
    from autonovel.runs.journal import Entry
    from autonovel.runs.state import State

P = ParamSpec("P")
R = TypeVar("R", bound="Folder")

MOST_REGROUPED = 100_000
"""Images that are grouped anew as a whole, which takes the square of them."""

FLAG = {"typed": "as a flag"}
"""Of a field that is typed with its name on the command line; others are typed at their place, one of many words last."""


class Edit:
    """An edit that somebody asks for. Its documentation is the help of the command, its fields are what is typed or sent."""

    DO: ClassVar[str]
    """The word for it: of the command, of the page, of the method and in the journal."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Edit:
        """The edit with these fields."""
        return cls(**given)

    def entry(self, state: State, run: Folder) -> Entry:
        """The line of the journal; refused with a sentence where it makes no sense for the clusters as they are."""
        return {"do": self.DO}

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """The clusters after a line of the journal."""
        raise NotImplementedError


@dataclass(frozen=True)
class Name(Edit):
    """Give a cluster a name."""

    DO = "name"
    cluster: int
    """The number of the cluster."""
    name: str
    """The name, which no other class may have; put quotes around one with spaces."""

    def entry(self, state: State, run: Folder) -> Entry:
        """The number and the name as it is kept."""
        number = cluster_of(state, self.cluster)
        if state.marks[number].kind == "known":
            raise InputError(f"Cluster {number} is the known class {state.called(number)!r}; mark it 'new' to name it.")
        return {"do": "name", "cluster": number, "name": check_name(state, number, self.name)}

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """One cluster is called something else."""
        from autonovel.runs.state import usual_name

        names = {n: name for n, name in state.names.items() if n != entry["cluster"]}
        if entry["name"] != usual_name(entry["cluster"], state.known):
            names[entry["cluster"]] = entry["name"]
        return replace(state, names=names)


@dataclass(frozen=True, init=False)
class Merge(Edit):
    """Make one cluster out of two or more; the first one keeps its number and name."""

    DO = "merge"
    clusters: tuple[int, ...] = ()
    """The cluster that the others join, and the others."""
    suggested: bool = field(default=False, metadata=FLAG)
    """Merge those that look like one class to the network itself, in place of naming them; one undo takes all of it back."""

    def __init__(self, *clusters: int, suggested: bool = False) -> None:
        object.__setattr__(self, "clusters", clusters)
        object.__setattr__(self, "suggested", suggested)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Merge:
        """The edit with these fields."""
        return cls(*given.get("clusters", ()), suggested=given.get("suggested", False))

    def entry(self, state: State, run: Folder) -> Entry:
        """The numbers; of a suggestion, the cluster of every image."""
        if self.suggested == bool(self.clusters) or len(self.clusters) == 1:
            raise InputError(f"Name two clusters or more to merge, or give {option('suggested')} and name none.")
        if self.suggested:
            return _merge_suggested(state, run)
        into, *others = [cluster_of(state, cluster) for cluster in self.clusters]
        if len({into, *others}) < len(self.clusters):
            numbers = ", ".join(map(str, self.clusters))
            raise InputError(f"A cluster cannot be merged with itself ({numbers}); name each once.")
        return {"do": "merge", "into": into, "clusters": others}

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """Images change their group; the first name that there is stays."""
        import numpy as np

        into, others = entry["into"], entry["clusters"]
        names = {n: name for n, name in state.names.items() if n not in others}
        given = [state.names[n] for n in (into, *others) if n in state.names]
        if given:  # the first one's name, or the first name there is
            names[into] = given[0]
        return replace(
            state,
            group=np.where(np.isin(state.group, others), into, state.group),
            marks={n: mark for n, mark in state.marks.items() if n not in others},
            names=names,
        )


@dataclass(frozen=True)
class Split(Edit):
    """Split a cluster into two or more by what its images look like; the largest part keeps number and name."""

    DO = "split"
    cluster: int
    """The cluster to split."""
    into: int = 2
    """How many clusters to make of it."""

    def entry(self, state: State, run: Folder) -> Entry:
        """The images that leave the cluster, by the number of their new one."""
        import numpy as np

        from autonovel.runs.dividing import divide

        number = cluster_of(state, self.cluster)
        members = np.flatnonzero(state.group == number)
        parts = count_of(self.into, "parts", 2, len(members), f"cluster {number} has {len(members)} images")
        part_of = divide(run.features[members], parts)
        if (differ := part_of.max() + 1) < parts:
            raise InputError(f"Cluster {number} cannot be split into {parts}: only {differ} of its images differ.")
        first = state.next_number
        rows = {str(first + part - 1): members[part_of == part].tolist() for part in range(1, parts)}
        return {"do": "split", "cluster": number, "parts": rows}

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """The parts are what the cluster was."""
        group = state.group.copy()
        marks = dict(state.marks)
        for number, rows in entry["parts"].items():
            group[rows] = int(number)
            marks[int(number)] = marks[entry["cluster"]]
        return replace(state, group=group, marks=marks, next_number=max(state.next_number, max(marks) + 1))


@dataclass(frozen=True, init=False)
class Move(Edit):
    """Move images into another cluster, a known class or a cluster of their own."""

    DO = "move"
    images: tuple[str | int, ...]
    """The images, as in the first column of predictions.csv; the bare name of a file does where only one is called so."""
    to: int | str | None
    """Where they belong: the number or name of a cluster, a known class, or "new" for a cluster of their own. A number is always
    that of a cluster; run.move in Python also takes known classes that are called by one."""

    def __init__(self, images: Iterable[str | int] | str | int, to: int | str | None) -> None:
        several = images if isinstance(images, Iterable) and not isinstance(images, str) else (images,)
        object.__setattr__(self, "images", tuple(several))
        object.__setattr__(self, "to", to)

    def entry(self, state: State, run: Folder) -> Entry:
        """The rows and where they go; None is a cluster of their own, as "new" is unless a class is called so."""
        ids, to = run.machine.images, self.to
        if not self.images:
            raise InputError("There are no images to move; give their ids or rows.")
        named = any(isinstance(image, str) for image in self.images)
        if named and run.parts is not None:
            row_of = run.parts.places_of(image for image in self.images if isinstance(image, str))
        else:
            row_of = {image: row for row, image in enumerate(ids)} if named else {}
        rows = sorted({_row(image, row_of, ids) for image in self.images})
        if to is None or (to == "new" and to not in state.known and to not in map(state.called, state.marks)):
            return {"do": "move", "rows": rows, "cluster": state.next_number, "new": True}
        if not isinstance(to, str):
            return {"do": "move", "rows": rows, "cluster": cluster_of(state, to)}
        if to in state.known:
            return {"do": "move", "rows": rows, "known": to}
        if called := [number for number in state.marks if state.called(number) == to]:
            return {"do": "move", "rows": rows, "cluster": called[0]}
        raise InputError(f"There is no class {to!r}; give the number of a cluster, its name, a known class or 'new'.")

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """The rows are elsewhere, where a person put them."""
        from autonovel.runs.state import Role

        group, moved = state.group.copy(), state.moved.copy()
        group[entry["rows"]] = entry["cluster"] if "cluster" in entry else -1 - state.known.index(entry["known"])
        moved[entry["rows"]] = True
        if not entry.get("new"):
            return replace(state, group=group, moved=moved)
        number = entry["cluster"]
        marks = {**state.marks, number: Role("new")}
        return replace(state, group=group, moved=moved, marks=marks, next_number=max(state.next_number, number + 1))


@dataclass(frozen=True)
class Mark(Edit):
    """Say what a cluster is: "not a class", a known class (its name), or "new" after all."""

    DO = "mark"
    cluster: int
    """The cluster to mark."""
    kind: str
    """"not a class", "new", or the name of a known class."""

    def entry(self, state: State, run: Folder) -> Entry:
        """What it is, and which known class."""
        number, what = cluster_of(state, self.cluster), self.kind
        if what in ("new", "not a class"):
            return {"do": "mark", "cluster": number, "as": what}
        if what in state.known:
            return {"do": "mark", "cluster": number, "as": "known", "known": what}
        classes = f" ({', '.join(state.known[:8])}{', ...' if len(state.known) > 8 else ''})" if state.known else ""
        raise InputError(f"A cluster can be 'new', 'not a class' or a known class{classes}, not {what!r}.")

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """One cluster is something else."""
        from autonovel.runs.state import Role

        mark = Role("known", state.known.index(entry["known"])) if "known" in entry else Role(entry["as"])
        return replace(state, marks={**state.marks, entry["cluster"]: mark})


@dataclass(frozen=True)
class Dissolve(Edit):
    """Give each image of a cluster to the class whose middle is nearest among the others; the cluster is gone then."""

    DO = "dissolve"
    cluster: int
    """The cluster that is none."""

    def entry(self, state: State, run: Folder) -> Entry:
        """The images by the cluster they go to, or by -1 - k where that is the known class k."""
        import numpy as np

        from autonovel.runs.geometry import nearest_middles

        number = cluster_of(state, self.cluster)
        members = dict(state.members)
        rows = members.pop(number, np.zeros(0, dtype=np.int64))
        classes = [n for n in members if n < 0 or state.marks[n].kind != "not a class"]
        if not classes:
            raise InputError(f"There is no class beside cluster {number} that its images could go to.")
        nearest = nearest_middles(run.features, rows, [members[n] for n in classes])
        parts = {str(n): rows[nearest == i].tolist() for i, n in enumerate(classes) if (nearest == i).any()}
        return {"do": "dissolve", "cluster": number, "parts": parts}

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """Its images are elsewhere, where nobody put them one by one."""
        number, group, moved = entry["cluster"], state.group.copy(), state.moved.copy()
        for to, rows in entry["parts"].items():
            _ = state.marks[int(to)] if int(to) >= 0 else state.known[-1 - int(to)]
            group[rows], moved[rows] = int(to), False
        if (group == number).any():
            raise ValueError(f"cluster {number} would still have images")
        return replace(
            state,
            group=group,
            moved=moved,
            marks={n: mark for n, mark in state.marks.items() if n != number},
            names={n: name for n, name in state.names.items() if n != number},
        )


@dataclass(frozen=True)
class Regroup(Edit):
    """Sort the images of a run into another number of classes, without training again: the features that were kept are grouped
    as a discovery groups them. Images that were moved stay with the cluster they were put into, and a cluster that stays mostly
    the same keeps its number and name."""

    DO = "regroup"
    n_new: int = field(metadata=FLAG)
    """How many new classes there are."""

    def entry(self, state: State, run: Folder) -> Entry:
        """The cluster of each image of a new class, -1 for the others."""
        import numpy as np

        from autonovel.runs.regrouping import group_anew, same_clusters, with_moved

        new = [number for number, mark in state.marks.items() if mark.kind == "new"]
        rows = np.flatnonzero(np.isin(state.group, new))
        parts = count_of(self.n_new, "clusters", 1, len(rows), f"there are {len(rows)} images in new classes")
        if len(rows) > MOST_REGROUPED:
            raise InputError(
                f"{len(rows):,} images are too many to be sorted again in place; run discover again with "
                f"{option('n_new', parts)}, which needs the features alone."
            )
        before = state.group[rows]
        part_of = with_moved(before, group_anew(run, rows, parts), state.moved[rows])
        kept = same_clusters(before, part_of)
        taken = {*kept.values(), *(number for number in state.marks if number not in new)}
        free = (number for number in range(len(taken) + parts) if number not in taken)
        numbers = [kept[part] if part in kept else next(free) for part in range(parts)]
        clusters = np.full(len(state.group), -1, dtype=np.int64)
        clusters[rows] = np.array(numbers, dtype=np.int64)[part_of]
        return _regrouped(parts, sorted(numbers), sorted(kept.values()), clusters)

    @staticmethod
    def apply(state: State, entry: Entry) -> State:
        """Every image of a new class is where the line says."""
        import numpy as np

        from autonovel.runs.state import Role

        clusters = np.array(entry["clusters"], dtype=np.int64)
        if clusters.shape != state.group.shape:
            raise ValueError(f"a cluster is given for {len(clusters)} images, not for {len(state.group)}")
        marks = {n: mark for n, mark in state.marks.items() if mark.kind != "new"}
        named = {*marks, *entry["kept"]}  # another cluster may take the number of one that is gone, but not its name
        marks |= {number: Role("new") for number in entry["numbers"]}
        return replace(
            state,
            group=np.where(clusters >= 0, clusters, state.group),
            marks=marks,
            names={n: name for n, name in state.names.items() if n in named},
            next_number=max(state.next_number, max(marks, default=-1) + 1),
        )


@dataclass(frozen=True)
class Undo(Edit):
    """Take back the last change."""

    DO = "undo"


@dataclass(frozen=True)
class Redo(Edit):
    """Make the change again that was last taken back."""

    DO = "redo"


# ------------------------------------------------------------------------------------------------ as methods of a run


class AsMethod(Generic[P]):
    """A verb as a method: ``run.name(3, "heron")`` is ``run.edit(Name(3, "heron"))``."""

    def __init__(self, kind: Callable[P, Edit]) -> None:
        self.kind: Any = kind
        self.__doc__ = kind.__doc__

    def __get__(self, run: R, owner: type[R] | None = None) -> Callable[P, R]:
        """The method of a run."""

        def method(*words: P.args, **named: P.kwargs) -> R:
            return run.edit(self.kind(*words, **named))

        method.__doc__ = self.__doc__
        method.__name__ = method.__qualname__ = self.kind.DO
        method.__signature__ = _signature(self.kind)  # type: ignore[attr-defined]
        return method


class Verbs:
    """All that a person may change, as methods."""

    name = AsMethod(Name)
    merge = AsMethod(Merge)
    split = AsMethod(Split)
    move = AsMethod(Move)
    mark = AsMethod(Mark)
    dissolve = AsMethod(Dissolve)
    undo = AsMethod(Undo)
    redo = AsMethod(Redo)
    regroup = AsMethod(Regroup)


VERBS: dict[str, type[Edit]] = {
    word: method.kind for word, method in vars(Verbs).items() if isinstance(method, AsMethod)
}
"""Every verb by its word."""


def _signature(kind: Any) -> Any:
    import inspect

    return inspect.signature(kind)


# ------------------------------------------------------------------------------------------------ what an edit is checked by


def cluster_of(state: State, cluster: Any) -> int:
    """The number of a cluster that exists."""
    number = _whole(cluster, "The number of a cluster")
    if number not in state.marks:
        raise InputError(f"There is no cluster {number}; this run has {_ranges(sorted(state.marks))}.")
    return number


def count_of(k: Any, what: str, least: int, most: int, why: str) -> int:
    """A number of clusters or parts that there can be."""
    number = _whole(k, f"The number of {what}")
    if number < least:
        raise InputError(f"The number of {what} must be at least {least}, not {number}.")
    if number > most:
        raise InputError(f"{number} {what} are too many: {why}.")
    return number


def _whole(value: Any, what: str) -> int:
    is_yes_or_no = isinstance(value, bool) or type(value).__name__ in ("bool", "bool_", "ndarray")  # those of numpy too
    if not isinstance(value, SupportsIndex) or is_yes_or_no:
        raise InputError(f"{what} must be a whole number, not {value!r}.")
    return int(value)


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


def _row(image: str | int, row_of: dict[str, int], ids: Sequence[str]) -> int:
    """The row of an image given by its id, by the bare name of its file where only one is called so, or by its row."""
    count = len(ids)
    if isinstance(image, str):
        if image in row_of:
            return row_of[image]
        called = {other: row for row, other in enumerate(ids) if other.endswith(f"/{image}")}
        if not called:
            raise InputError(f"There is no unlabelled image {image!r} in this run; predictions.csv lists them.")
        if len(called) > 1:
            several = ", ".join(map(repr, [*called][:4])) + (", ..." if len(called) > 4 else "")
            raise InputError(f"{len(called)} images are called {image!r}; say which: {several}.")
        return next(iter(called.values()))
    row = _whole(image, "The row of an image")
    if not 0 <= row < count:
        raise InputError(f"There is no row {row}; this run has rows 0 to {count - 1}.")
    return row


# ------------------------------------------------------------------------------------------------ grouping all images anew


def _regrouped(k: int, numbers: list[int], kept: list[int], clusters: npt.NDArray[np.int64]) -> Entry:
    return {"do": "regroup", "k": k, "numbers": numbers, "kept": kept, "clusters": clusters.tolist()}


def _merge_suggested(state: State, run: Folder) -> Entry:
    """Put together what the heads take for one class, as one edit; the first of each group keeps its number and name."""
    import numpy as np

    from autonovel.runs.merging import read_merging, still_to_merge

    said = read_merging(run)
    if said is None:
        raise InputError("This run suggests nothing, since only objective swap does; name the clusters to merge.")
    groups = still_to_merge(said, run.machine.group, state)
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
    return _regrouped(len(left), left, left, clusters)
