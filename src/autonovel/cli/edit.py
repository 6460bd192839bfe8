"""The commands with which a person corrects a run: name, merge, split, move, mark, undo, redo, regroup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError, option
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional
from autonovel.cli.results import print_changes


@dataclass(frozen=True)
class EditVerb(Verb):
    """A command that changes the clusters of a finished run."""

    run: Positional[Path]
    """The run folder."""

    @contextmanager
    def edited(self) -> Iterator[Any]:
        """The run; what was changed is printed afterwards."""
        from autonovel.runs.folder import load

        run = load(self.run)
        before = run.clusters
        yield run
        print_changes(before, load(self.run).clusters)


@dataclass(frozen=True)
class Name(EditVerb):
    """Give a cluster a name."""

    cluster: Positional[int]
    """The number of the cluster."""
    name: Positional[str]
    """The name; put quotes around one with spaces."""

    def do(self) -> None:
        """Name it."""
        with self.edited() as run:
            run.name(self.cluster, self.name)


@dataclass(frozen=True)
class Merge(EditVerb):
    """Make one cluster out of two or more; the first one keeps its number and name."""

    clusters: Positional[tuple[int, ...]] = ()
    """The cluster that the others join, and the others."""
    suggested: bool = False
    """Merge those that look like one class to the network itself, in place of naming them; one undo takes all of it back."""

    def do(self) -> None:
        """Merge them."""
        if self.suggested == bool(self.clusters) or len(self.clusters) == 1:
            raise InputError(f"Name two clusters or more to merge, or give {option('suggested')} and name none.")
        with self.edited() as run:
            if self.suggested:
                run.merge_suggested()
            else:
                run.merge(*self.clusters)


@dataclass(frozen=True)
class Split(EditVerb):
    """Split a cluster into two or more by what its images look like."""

    cluster: Positional[int]
    """The cluster to split."""
    into: Positional[int] = 2
    """How many clusters to make of it."""

    def do(self) -> None:
        """Split it."""
        with self.edited() as run:
            run.split(self.cluster, self.into)


@dataclass(frozen=True)
class Move(EditVerb):
    """Move images into another cluster, a known class or a cluster of their own."""

    cluster: Positional[str]
    """Where they belong: the number or name of a cluster, a known class, or "new" for a cluster of their own. A number is always
    that of a cluster; run.move in Python also takes known classes that are called by one."""
    images: Positional[tuple[str, ...]]
    """The images, as in the first column of predictions.csv."""

    def do(self) -> None:
        """Move them."""
        with self.edited() as run:
            run.move(list(self.images), int(self.cluster) if re.fullmatch(r"-?[0-9]+", self.cluster) else self.cluster)


@dataclass(frozen=True)
class Mark(EditVerb):
    """Say what a cluster is: "not a class", a known class (its name), or "new" after all."""

    cluster: Positional[int]
    """The cluster to mark."""
    kind: Positional[str]
    """"not a class", "new", or the name of a known class."""

    def do(self) -> None:
        """Mark it."""
        with self.edited() as run:
            run.mark(self.cluster, self.kind)


@dataclass(frozen=True)
class Undo(EditVerb):
    """Take back the last change."""

    def do(self) -> None:
        """Undo it."""
        with self.edited() as run:
            run.undo()


@dataclass(frozen=True)
class Redo(EditVerb):
    """Make the change again that was last taken back."""

    def do(self) -> None:
        """Redo it."""
        with self.edited() as run:
            run.redo()


@dataclass(frozen=True)
class Regroup(EditVerb):
    """Sort the images of a run into another number of classes: in seconds, without training again."""

    n_new: int
    """How many new classes there are."""

    def do(self) -> None:
        """Regroup."""
        with self.edited() as run:
            run.regroup(self.n_new)
