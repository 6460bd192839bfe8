"""Images in folders, one per class or otherwise: all is checked first, then written down in files.csv, then done."""

from __future__ import annotations

import csv
import filecmp
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autonovel.base.errors import AutonovelWarning, InputError, listed, option
from autonovel.data.reading.folder import starts_like_image
from autonovel.data.reading.problems import as_path, printable
from autonovel.data.reading.workers import fingerprint_of_file
from autonovel.export.formats import NotAgreed, Options, check_folder
from autonovel.export.items import Item, items_of
from autonovel.export.names import Namer, safe_name, shortened
from autonovel.export.pictures import has_picture, sheet_of, tell, write_picture
from autonovel.export.place import PLACE, device_of, is_full
from autonovel.machine.disk import check_room, remove_cut_off
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

LIST, LIST_FIELDS = "files.csv", ("file", "source", "image")
PROBLEMS, PROBLEM_FIELDS = "problems.csv", ("image", "source", "problem")
MOST_NAMED = 5
"""Folders that a question lists at most."""

PNG_BYTES = 20_000
"""About as much as the picture of a thumbnail takes."""


class Placed(NamedTuple):
    """A file to be.

    Attributes:
        file: its path below the target.
        item: the image.
        size: its bytes; 0 where it is made of a thumbnail.
    """

    file: str
    item: Item
    size: int


class Unplaceable(NamedTuple):
    """An image that cannot be placed, and why."""

    image: str
    source: str
    problem: str


class Listed(NamedTuple):
    """A line of files.csv: a file below the target, where it came from, and which image it is."""

    file: str
    source: str
    image: str


class Wish(NamedTuple):
    """Where an image is to be: a folder below the target, with ``/`` between its parts, and a name that may be taken there."""

    item: Item
    folder: str
    name: str


Layout = Callable[[Sequence[Item], Sequence[str]], Iterable[Wish]]
"""Says where images go, from the images and the names that are taken in the target; an image may have several places."""


def write_folders(run: Run, to: Path, options: Options) -> Path:
    """Write one folder per class."""
    place_images(run, to, options, by_class)
    return to


def by_class(items: Sequence[Item], taken: Sequence[str]) -> list[Wish]:
    """One folder per class; files keep their names."""
    folders = Namer(taken)
    folder_of = {key: folders.give(safe_name(key[1])) for key in dict.fromkeys((i.kind, i.name) for i in items)}
    return [Wish(item, folder_of[item.kind, item.name], _own_name(item)) for item in items]


def _own_name(item: Item) -> str:
    return printable(item.file.name) if item.source else shortened(safe_name(item.image), 100) + ".png"


def place_images(run: Run, to: Path, options: Options, layout: Layout) -> list[Placed]:
    """Put the images in folders, with ``files.csv`` (which file came from where) and, where there are any, ``problems.csv``.

    Returns:
        What is in its place.
    """
    check_folder(run, to, options)
    items = items_of(run, all=options.all)
    sources = {os.path.abspath(item.file) for item in items if item.source}  # some may lie in the target
    spare = {line: os.path.abspath(to / line.file) not in sources and _is_spare(to, line) for line in _listed(to)}
    old, kept = [line for line in spare if spare[line]], [line for line in spare if not spare[line]]
    plan, problems = _plan(run, items, layout, to, {line.file for line in old}, options.how)
    problems = _explained(problems, kept)
    _check(plan, problems, to, options)
    to.mkdir(parents=True, exist_ok=True)
    _remove(to, old)
    files = RunFiles(to)
    # before the first file is touched: whatever happens then, this says what came from where
    files.write_rows(LIST, LIST_FIELDS, [*kept, *((p.file, p.item.source, p.item.image) for p in plan)])
    failed = _place(run, plan, to, options)
    problems += failed.values()
    if problems:
        files.write_rows(PROBLEMS, PROBLEM_FIELDS, problems)
        warnings.warn(
            f"{len(problems):,} of {len(items):,} images could not be placed; see {to / PROBLEMS}.",
            AutonovelWarning,
        )
    else:
        files.remove(PROBLEMS)
    tell(sum(not placed.item.source for placed in plan))
    return [placed for placed in plan if placed.file not in failed]


def _plan(
    run: Run, items: Sequence[Item], layout: Layout, to: Path, old: set[str], how: str
) -> tuple[list[Placed], list[Unplaceable]]:
    """Where every image goes."""
    files = [entry.name for entry in to.iterdir() if not entry.is_dir()] if to.is_dir() else []
    wishes = list(layout(items, [LIST, PROBLEMS, *files]))
    folders = dict.fromkeys(wish.folder for wish in wishes)
    namers = {folder: Namer(_names_in(to / folder, folder, old)) for folder in folders}
    plan, problems = [], []
    for item, folder, name in wishes:
        size = _size(item)
        if item.source and size is None:
            problems.append(Unplaceable(item.image, item.source, "the file is missing or cannot be read"))
        elif item.source and (why := _why_not(item, how)):
            problems.append(Unplaceable(item.image, item.source, why))
        elif not item.source and not has_picture(run, item.row):
            problems.append(Unplaceable(item.image, "", "it came from no file, and the run has no thumbnail of it"))
        else:
            plan.append(Placed(f"{folder}/{namers[folder].give(name)}", item, size or 0))
    return plan, problems


def _why_not(item: Item, how: str) -> str:
    """Why a file is left where it is, although the run names it: the folder may be a stranger's, who can name any file."""
    if how == "move":
        if not item.digest:
            return "the run does not know what was in the file, so it is not moved"
        return "" if _is_unchanged(item) else "the file has changed since the run, so it is not moved"
    try:
        same_kind = starts_like_image(str(item.file))
    except OSError:
        same_kind = False
    return "" if same_kind or _is_unchanged(item) else "the file has changed since the run and is no image now"


def _is_unchanged(item: Item) -> bool:
    mark = fingerprint_of_file(str(item.file))
    return mark is not None and f"{mark:014x}" == item.digest


def _is_spare(to: Path, line: Listed) -> bool:
    """Whether a file of an earlier export can be made again: it is a link or a picture, or the same as its source.

    The beginning of its source is what a machine that stopped left of it.
    """
    file = to / line.file
    if file.is_symlink() or not line.source:
        return True
    try:
        source = Path(as_path(line.source))
        return filecmp.cmp(file, source, shallow=False) or _is_beginning(file, source)
    except OSError:  # the source is gone: the file was moved here, or is all that is left
        return False


def _is_beginning(file: Path, whole: Path) -> bool:
    """Whether a file holds the beginning of another one and nothing more, but for zeros in place of the rest."""
    if file.stat().st_size > whole.stat().st_size:
        return False
    with file.open("rb") as mine, whole.open("rb") as theirs:
        while part := mine.read(2**20):
            if part != theirs.read(len(part)):
                break
        else:
            return True
        theirs.seek(mine.tell() - len(part))
        return theirs.read(len(part)).startswith(part.rstrip(b"\0")) and not any(
            rest.strip(b"\0") for rest in iter(lambda: mine.read(2**20), b"")
        )


def _explained(problems: Sequence[Unplaceable], kept: Sequence[Listed]) -> list[Unplaceable]:
    """The problems; of files that are left of an earlier export alone, where they are."""
    now = {line.source: line.file for line in kept}
    left = "an earlier export left it in "
    return [p._replace(problem=left + now[p.source]) if p.source in now else p for p in problems]


def _names_in(path: Path, folder: str, old: set[str]) -> Iterator[str]:
    """Names of files that are there and stay."""
    if path.is_dir():
        yield from (entry.name for entry in path.iterdir() if f"{folder}/{entry.name}" not in old)


def _size(item: Item) -> int | None:
    """Bytes of the image's file; None where there is no file that can be read."""
    source = item.file
    try:
        return source.stat().st_size if item.source and source.is_file() and os.access(source, os.R_OK) else None
    except OSError:
        return None


def _check(plan: Sequence[Placed], problems: Sequence[Unplaceable], to: Path, options: Options) -> None:
    """Refuse what cannot work, before anything is changed."""
    if not plan and problems:
        first = problems[0]
        raise InputError(
            f"None of the {len(problems):,} images can be placed ({first.source or first.image}: {first.problem}); "
            "were the files moved or renamed since the run?"
        )
    filed = [placed for placed in plan if placed.item.source]
    if options.how == "move":
        _check_move([placed.item.file for placed in filed], options)
    device = device_of(to)
    other = [p for p in filed if os.stat(p.item.file).st_dev != device]
    if options.how == "hardlink" and other:
        raise InputError(
            f"{to} is on another file system than {other[0].item.source}, where hard links cannot lead; "
            f"use {option('how', 'link')} or {option('how', 'copy')}."
        )
    copied = {"copy": filed, "move": other}.get(options.how, [])
    bytes_needed = sum(p.size for p in copied) + PNG_BYTES * (len(plan) - len(filed))
    instead = f"choose another {option('to')}, or {option('how', 'link')}, which takes no room"
    check_room(to, bytes_needed, "The images take", instead)


def _check_move(sources: Sequence[Path], options: Options) -> None:
    seen = set[str]()
    for source in sources:
        real = os.path.abspath(source)
        if real in seen:
            raise InputError(
                f"{source} is the file of two images and can be moved only once; use {option('how', 'copy')}."
            )
        seen.add(real)
    folders = list(dict.fromkeys(source.parent for source in sources))
    for folder in folders:
        if not os.access(folder, os.W_OK):
            raise InputError(f"Files cannot be moved out of {folder}, which is read-only; use {option('how', 'copy')}.")
    if not options.yes:
        shown = listed([*folders[:MOST_NAMED], f"{len(folders) - MOST_NAMED:,} more"][: max(1, len(folders))])
        raise NotAgreed(
            f"{len(sources):,} files would be moved out of {shown}; add {option('yes', True)} if that is what you want."
        )


def _place(run: Run, plan: Sequence[Placed], to: Path, options: Options) -> dict[str, Unplaceable]:
    """Put the files in their places; those that cannot be are given back."""
    problems = {}
    for folder in dict.fromkeys(os.path.dirname(placed.file) for placed in plan):
        (to / folder).mkdir(parents=True, exist_ok=True)
        remove_cut_off(to / folder)
    for placed in sorted(plan, key=lambda placed: sheet_of(run, placed.item)):
        target, item = to / placed.file, placed.item
        try:
            if item.source:
                PLACE[options.how](item.file, target)
            else:
                write_picture(run, item.row, target)
        except OSError as error:
            if is_full(error):
                raise
            problems[placed.file] = Unplaceable(item.image, item.source, error.strerror or str(error))
    return problems


def _listed(to: Path) -> Iterator[Listed]:
    """What earlier exports put there and what is still there."""
    if not (to / LIST).is_file():
        return
    with (to / LIST).open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        if next(rows, None) != list(LIST_FIELDS):
            raise InputError(f"{to / LIST} is not the list of an export; choose another folder with {option('to')}.")
        for row in rows:
            # only what lies one or two folders below the target was written by an export
            if len(row) == 3 and _is_below(row[0]) and os.path.lexists(to / row[0]):
                yield Listed(*row)


def _is_below(file: str) -> bool:
    parts = Path(file).parts
    return len(parts) in (2, 3) and ".." not in parts and not Path(file).is_absolute()


def _remove(to: Path, old: Sequence[Listed]) -> None:
    """Delete files of an earlier export, and the folders that are empty then."""
    for line in old:
        (to / line.file).unlink(missing_ok=True)
    for folder in {(to / line.file).parent for line in old}:
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
