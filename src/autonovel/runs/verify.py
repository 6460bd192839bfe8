"""Whether a finished run is whole and unchanged: every file, a person's edits, and what the files say of each other."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from autonovel.base.errors import InputError
from autonovel.runs import checksums
from autonovel.runs.folder import Folder


def problems_of(run: Folder) -> Iterator[str]:
    """A sentence for everything that is wrong; none where the run is whole.

    Raises:
        InputError: the run is not finished, or its list of checksums cannot be read.
    """
    _ = run.checksums
    if not run.finished:
        _ = run.summary  # says so
    yield from _odd_entries(run.path)
    wrong = list(_changed(run))
    yield from wrong
    for read in _READERS:
        try:
            read(run)
        except InputError as error:
            if str(error) not in wrong:
                wrong.append(str(error))
                yield str(error)


def _odd_entries(folder: Path) -> Iterator[str]:
    """What no run has in its folder: links, pipes and devices."""
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            yield f"{path} is {'a link' if stat.S_ISLNK(mode) else 'no file'}; no run writes such a thing."


def _changed(run: Folder) -> Iterator[str]:
    known = run.checksums
    if not known:
        yield f"{run.path} has no {checksums.FILE}, so that nothing tells whether its files have changed."
    for name in known:
        try:
            if run.has(name):
                run.file(name)
        except InputError as error:
            yield str(error)
        except OSError as error:
            yield f"{run.path / name} cannot be read ({error.strerror})."


_READERS: tuple[Callable[[Folder], object], ...] = (
    lambda run: run.summary,
    lambda run: run.machine,
    lambda run: run.unlabelled,
    lambda run: run.unlike,
    lambda run: run.features,
    lambda run: run.thumbnails,
    lambda run: run.edits,
    lambda run: run.state,
)
"""What reads the files together, and refuses those that do not fit."""
