"""Which image files there are, in folders and in lists of files."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.data.images import Source
from autonovel.data.reading.problems import Problem, printable

IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".mpo",
    ".heic", ".heif", ".avif", ".jp2", ".jxl", ".psd", ".svg", ".eps", ".ico", ".cr2", ".nef", ".arw", ".dng",
})  # fmt: skip
"""Endings of image files, of formats that are read and of others: a file named so counts when it is left out."""

_LITTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF", b"BM", b"II*\x00", b"MM\x00*", b"GIF8")
_SPLIT_NAMES = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


@dataclass
class Files:
    """Image files that were found but not opened.

    Attributes:
        paths: where each file is.
        labels: the name of its class; None where it has none.
        stamps: int64 (n, 4): size in bytes, a number for the times of change, device and inode; the last two tell one file
            under two names from two files.
        problems: what was found that cannot be one of the images.
        root: the folder that the user gave, or that of the table; None for a list of files.
    """

    paths: list[str] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    stamps: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 4), np.int64))
    problems: list[Problem] = field(default_factory=list)
    root: str | None = None

    def sources(self) -> tuple[Source, ...]:
        """The absolute path of each file, and its path below the root."""
        if self.root is None:
            return tuple(Source(printable(_absolute(path)), printable(path)) for path in self.paths)
        root = os.path.abspath(self.root)
        return tuple(_source(path, root, os.path.join(root, "")) for path in self.paths)


def changed(status: os.stat_result) -> int:
    """A number that differs once the content has: a program may set the time of change back, but not that of the entry."""
    return (status.st_mtime_ns ^ (status.st_ctime_ns << 1) ^ (status.st_ino * 0x9E3779B97F4A7C15)) & (2**63 - 1)


def _absolute(path: str) -> str:
    """The absolute path; the very same object where it is absolute already, since there may be millions of them."""
    absolute = os.path.abspath(path)
    return path if absolute == path else absolute


def _source(path: str, root: str, inside: str) -> Source:
    """``inside`` is the root with a separator at its end: what paths below it begin with."""
    absolute = _absolute(path)
    if absolute.startswith(inside):
        relative = absolute[len(inside) :]
    else:
        try:
            relative = os.path.relpath(absolute, root)
        except ValueError:  # on another drive
            relative = absolute
    return Source(printable(absolute), printable(relative))


class _Collector:
    """Gathers files with their stamps; what cannot be a usable image file becomes a problem at once."""

    def __init__(self, root: str | None = None) -> None:
        self.files = Files(root=root)
        self._stamps = array("q")

    def add(self, path: str, label: str | None, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, pipe or socket"
            self.problem(path, f"not a file ({kind})")
        elif status.st_size == 0:
            self.problem(path, "empty file")
        else:
            self.files.paths.append(path)
            self.files.labels.append(label)
            # Inodes and devices use all 64 bits on some systems.
            inode, device = status.st_ino & (2**63 - 1), status.st_dev & (2**63 - 1)
            self._stamps.extend((status.st_size, changed(status), device, inode))

    def problem(self, path: str, reason: str, *, counts: bool = True) -> None:
        self.files.problems.append(Problem(printable(path), reason, counts=counts))

    def result(self) -> Files:
        self.files.stamps = np.array(self._stamps, dtype=np.int64).reshape(-1, 4)
        return self.files


def list_folder(root: Path) -> Files:
    """Every image file below a folder, at any depth, without labels."""
    collector = _Collector(str(root))
    _walk(str(root), None, collector, _Visited())
    return collector.result()


def list_class_folders(root: Path) -> Files:
    """Every image file below a folder with one sub-folder per class; deeper folders belong to their class."""
    collector, visited = _Collector(str(root)), _Visited()
    folders, files = _entries(str(root), collector)
    visited.first_time(str(root))
    if not folders:
        raise InputError(
            f"{printable(root)} has no sub-folders; put the images of each known class into a folder named after it, "
            "or give a CSV table with the columns path,label."
        )
    if all(folder.name.lower() in _SPLIT_NAMES for folder in folders):
        raise InputError(
            f"{printable(root)} holds {' and '.join(repr(folder.name) for folder in folders[:3])} instead of classes; "
            f"give {printable(folders[0].path)} for the labelled images."
        )
    for entry in files:
        if _promises_image(entry.name):
            collector.problem(entry.path, "not in the folder of a class")
    for folder in folders:
        before = len(collector.files.paths), len(collector.files.problems)
        _walk(folder.path, printable(folder.name), collector, visited)
        if before == (len(collector.files.paths), len(collector.files.problems)):
            collector.problem(folder.path, "no images for this class", counts=False)
    return collector.result()


def list_files(paths: Sequence[str], labels: Sequence[str | None], names: Sequence[str] | None = None) -> Files:
    """Files named one by one; ``names`` says what to call them in problems (a row of a table, for example)."""
    collector = _Collector()
    for position, (path, label) in enumerate(zip(paths, labels, strict=True)):
        called = names[position] if names is not None else path
        try:
            if not path:
                collector.problem(called, "no path")
            elif "://" in path:
                collector.problem(called, "a web address (download the image and give its path)")
            else:
                path = _existing(path)
                collector.add(path, label, os.stat(path))
        except FileNotFoundError:
            collector.problem(called, "no such file")
        except (OSError, ValueError) as error:
            collector.problem(called, f"cannot be read ({getattr(error, 'strerror', None) or error})")
    return collector.result()


def _existing(path: str) -> str:
    """The path, or the same with slashes for backslashes if only that exists (tables written on Windows)."""
    turned = path.replace("\\", "/")
    return turned if turned != path and not os.path.lexists(path) and os.path.lexists(turned) else path


class _Visited:
    """Folders already seen, so that circular links come to an end and no folder is read twice."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, int], str] = {}

    def first_time(self, folder: str) -> str | None:
        """None when the folder is new, otherwise where it was seen before."""
        status = os.stat(folder)
        key = status.st_dev, status.st_ino
        return None if self._first.setdefault(key, folder) is folder else self._first[key]


def _walk(root: str, label: str | None, collector: _Collector, visited: _Visited) -> None:
    stack = [root]
    while stack:
        folder = stack.pop()
        try:
            before = visited.first_time(folder)
        except OSError as error:
            collector.problem(folder, f"folder cannot be opened ({error.strerror})")
            continue
        if before is not None:
            collector.problem(folder, f"the same folder as {printable(before)}", counts=False)
            continue
        folders, files = _entries(folder, collector)
        if _holds_run(folders, files):
            collector.problem(folder, "the folder of a run", counts=False)
            continue
        for entry in files:
            try:
                if _promises_image(entry.name) or not entry.is_file() or starts_like_image(entry.path):
                    collector.add(entry.path, label, entry.stat())
                else:
                    collector.problem(entry.path, "not an image", counts=False)
            except FileNotFoundError:
                collector.problem(entry.path, "a link to nothing")
            except OSError as error:
                collector.problem(entry.path, f"cannot be read ({error.strerror})")
        stack.extend(entry.path for entry in reversed(folders))


def _entries(folder: str, collector: _Collector) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """Sub-folders and other entries in the order of their names, without hidden ones and system litter."""
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        collector.problem(folder, f"folder cannot be opened ({error.strerror})")
        return [], []
    folders: list[os.DirEntry[str]] = []
    files: list[os.DirEntry[str]] = []
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in _LITTER:
            continue
        (folders if _is_folder(entry) else files).append(entry)
    return folders, files


def _holds_run(folders: Iterable[os.DirEntry[str]], files: Iterable[os.DirEntry[str]]) -> bool:
    """Whether a folder with these entries is a run folder: the charts and sheets in it are not the user's images."""
    return any(entry.name == "config.json" for entry in files) and any(entry.name == "state" for entry in folders)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for example
        return False


def _promises_image(name: str) -> bool:
    return name[name.rfind(".") :].lower() in IMAGE_SUFFIXES


def starts_like_image(path: str) -> bool:
    """Whether a file without the name of an image is one all the same."""
    with open(path, "rb") as file:
        return file.read(8).startswith(_MAGIC)


def drop_unwanted(files: Files, without: Collection[str]) -> None:
    """Leave out the files with these absolute paths (as :class:`Source` has them)."""
    unwanted = set(without)
    wanted = [source.absolute not in unwanted for source in files.sources()]
    gone = [path for path, stays in zip(files.paths, wanted, strict=True) if not stays]
    files.problems += [Problem(printable(path), "left out by a person before", counts=False) for path in gone]
    files.paths = [path for path, stays in zip(files.paths, wanted, strict=True) if stays]
    files.labels = [label for label, stays in zip(files.labels, wanted, strict=True) if stays]
    files.stamps = files.stamps[np.array(wanted, dtype=bool)]


def drop_same_files(listings: Sequence[Files]) -> None:
    """Leave out every file that is listed before, under the same or another name; a labelled one comes first.

    A file with two different labels is left out altogether.
    """
    inodes = np.concatenate([files.stamps[:, 3] for files in listings]) if listings else np.empty(0)
    if len(np.unique(inodes)) == len(inodes):
        return
    first: dict[tuple[int, int], tuple[str, str | None]] = {}
    contradicted: dict[tuple[int, int], str] = {}
    keys = [[(device, inode) for device, inode in files.stamps[:, 2:].tolist()] for files in listings]
    everything = [
        (key, path, label)
        for files, own_keys in zip(listings, keys, strict=True)
        for key, path, label in zip(own_keys, files.paths, files.labels, strict=True)
    ]
    for key, path, label in sorted(everything, key=lambda item: item[2] is None):  # labelled first, otherwise in order
        _, known_label = first.setdefault(key, (path, label))
        if label is not None and label != known_label:
            contradicted[key] = f"labelled both {known_label!r} and {label!r}"
    used: set[tuple[int, int]] = set()
    for files, own_keys in zip(listings, keys, strict=True):
        keep = []
        for position, (key, path, label) in enumerate(zip(own_keys, files.paths, files.labels, strict=True)):
            if key in contradicted:
                files.problems.append(Problem(printable(path), contradicted[key]))
            elif key in used or label != first[key][1]:
                original, known = first[key]
                also = "listed twice" if original == path else f"the same file as {printable(original)}"
                copy = label is None and known is not None
                if copy:
                    also = f"also among the labelled images, as {printable(original)}"
                files.problems.append(Problem(printable(path), also, counts=False, copy=copy))
            else:
                used.add(key)
                keep.append(position)
        files.paths = [files.paths[i] for i in keep]
        files.labels = [files.labels[i] for i in keep]
        files.stamps = files.stamps[keep]
