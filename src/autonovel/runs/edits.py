"""The journal of a person's edits and the clusters after them: an edit is added to it, and its lines are replayed in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autonovel.base.errors import InputError, TrainingError
from autonovel.runs.journal import JOURNAL, Entry, open_journal
from autonovel.runs.state import State, standing
from autonovel.runs.verbs import VERBS, Edit

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder


class Conflict(InputError):  # noqa: N818, what happened is the better word
    """Somebody else edited the run meanwhile; look again before editing.

    Attributes:
        edits: the number of lines that the journal has now.
    """

    def __init__(self, message: str, edits: int) -> None:
        super().__init__(message)
        self.edits = edits


def edit(run: Folder, verb: Edit, after: int | None, states: Callable[[list[Entry]], State]) -> None:
    """Add an edit to the journal: it is on the disk when this returns, and the file of names follows.

    Args:
        run: the folder.
        verb: what to change.
        after: number of edits that the caller knows of, or None for whatever there is.
        states: the clusters after these lines of the journal.
    """
    with open_journal(run.path / JOURNAL) as journal:
        count = len(journal.entries)
        if after is not None and after != count:
            raise Conflict(
                f"The run in {run.path} was edited meanwhile ({count} edits, not {after}); look at it again first.",
                count,
            )
        entry = verb.entry(states(journal.entries), run)
        done, undone = standing(journal.entries)
        if (entry["do"] == "undo" and not done) or (entry["do"] == "redo" and not undone):
            raise InputError(f"There is nothing to {entry['do']} in {run.path}.")
        journal.append({**entry, "at": datetime.now(UTC).isoformat(timespec="milliseconds")})
        with suppress(TrainingError):  # the journal decides; this file is for people who look into the folder
            names = states(journal.entries).given_names
            run.write_json("names.json", {str(number): name for number, name in names.items()})


def replay(start: State, entries: Sequence[Entry]) -> State:
    """The state after these lines of the journal."""
    state = start
    for number in standing(entries)[0]:
        state = apply(state, entries[number])
    return state


def apply(state: State, entry: Entry) -> State:
    """The state after an edit that is neither undo nor redo.

    Raises:
        LookupError, TypeError, ValueError or AttributeError: no edit of this state leaves such a line.
    """
    named = [entry[key] for key in ("cluster", "into") if key in entry and not entry.get("new")]
    for number in named:
        _ = state.marks[number]  # says so where there is no such cluster
    return VERBS[entry["do"]].apply(state, entry)


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
