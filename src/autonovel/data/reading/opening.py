"""Whatever a user gives as labelled or unlabelled images, listed as the parts of an input."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from autonovel.base.errors import InputError
from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.data.reading.folder import (
    IMAGE_SUFFIXES,
    Files,
    drop_same_files,
    drop_unwanted,
    list_class_folders,
    list_files,
    list_folder,
)
from autonovel.data.reading.layout import (
    check_class_folders,
    check_two_paths,
    deeper_classes,
    refuse_without_images,
    unused_folder_names,
)
from autonovel.data.reading.parts import FileReader, ItemReader, Part, SliceReader
from autonovel.data.reading.problems import printable
from autonovel.data.reading.shards import Spool, holds_shards, is_folder_of_shards, is_remote, list_shards
from autonovel.data.reading.tables import TABLE_SUFFIXES, list_table
from autonovel.data.reading.workers import read_content

_ARCHIVES = frozenset({".zip", ".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz"})


@dataclass
class _Listing:
    """A part made of files, until those that are listed twice have been dropped.

    Attributes:
        prefix: the beginning of the paths that depends on how the user wrote the folder or table.
        cache_key, origin, notes: as in :class:`Part`.
    """

    files: Files
    origin: str
    cache_key: str
    prefix: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def labels(self) -> list[str | None]:
        return self.files.labels

    def part(self) -> Part:
        return Part(
            [printable(path) for path in self.files.paths],
            self.files.labels,
            FileReader(self.files, self.prefix),
            self.origin,
            self.files.problems,
            self.notes,
            self.files.sources(),
            self.cache_key,
        )


def open_parts(labelled: Any, unlabelled: Any, without: Collection[str] = (), *, alone: bool = True) -> list[Part]:
    """The parts of an input, the labelled one first.

    Files that are listed twice are dropped, and so are any labels of the unlabelled images, and those of them that are not
    wanted (``without``: absolute paths). ``alone`` says that labelled images without unlabelled ones are all there are.
    """
    together = _is_path(labelled) and _is_path(unlabelled) and _exists(labelled) and _exists(unlabelled)
    notes = check_two_paths(Path(labelled), Path(unlabelled)) if together else []
    opened: list[Part | _Listing] = []
    if labelled is not None:
        opened.append(_open(labelled, "labelled"))
        if _is_folder(labelled):
            opened[0].notes += check_class_folders(Path(labelled), opened[0].labels, alone=alone and unlabelled is None)
    if unlabelled is not None:
        opened.append(_without_labels(_open(unlabelled, "unlabelled")))
        if without and isinstance(opened[-1], _Listing):
            drop_unwanted(opened[-1].files, without)
    if not opened:
        raise InputError("No images were given.")
    drop_same_files([one.files for one in opened if isinstance(one, _Listing)])
    parts = [one.part() if isinstance(one, _Listing) else one for one in opened]
    if labelled is not None and _is_folder(labelled):
        parts[0].notes += deeper_classes(parts[0].origin, parts[0].sources)
    if _is_folder(unlabelled):
        notes += unused_folder_names(parts[-1].origin, parts[-1].sources)
    parts[-1].notes += notes
    return parts


def _without_labels(opened: Part | _Listing) -> Part | _Listing:
    """The same without labels, and with a note where it has some."""
    if opened.labels.count(None) == len(opened.labels):
        return opened
    opened.notes.append(f"The labels in {opened.origin} are not used, since it was given for the unlabelled images.")
    nothing: list[str | None] = [None] * len(opened.labels)
    if isinstance(opened, _Listing):
        opened.files.labels = nothing
        return opened
    return replace(opened, labels=nothing, class_names=())


def _open(source: Any, role: str) -> Part | _Listing:
    """One part from a path, a list of files, (images, labels), arrays, an ImageSet or a dataset object."""
    if isinstance(source, str | os.PathLike):
        return _from_shards(source, role) if holds_shards(source) else _from_path(Path(source), role)
    if isinstance(source, ImageSet):
        names = source.class_names
        labels = [None if label == UNKNOWN else names[label] for label in source.labels.tolist()]
        part = _items(source.images, labels, role, "the image set", list(source.ids))
        return replace(part, class_names=names, sources=source.sources)
    if type(source).__module__.partition(".")[0] == "datasets":
        return _from_hugging_face(source, role)
    if isinstance(source, tuple) and len(source) == 2 and not _is_path(source[0]):
        images, labels = source
        return _from_values(images, None if labels is None else _label_names(labels), role)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.utils.data.Dataset):
        return _from_torch_dataset(source, role)
    if hasattr(source, "__array__") or isinstance(source, Sequence):
        return _from_values(source, None, role)
    raise InputError(
        f"The {role} images are given as {type(source).__name__}; give a folder, a table, a list of files, arrays, "
        "an ImageSet or a dataset."
    )


def _from_path(path: Path, role: str) -> Part | _Listing:
    called = printable(path)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{called!r} cannot be read ({reason}); give the folder or table of the {role} images."
        ) from None
    if is_folder:
        try:
            files = list_class_folders(path) if role == "labelled" else list_folder(path)
            if not files.paths:
                refuse_without_images(path, role, files.problems)
        except InputError:
            if is_folder_of_shards(path):
                return _from_shards(path, role)
            raise
    elif not is_file:
        raise InputError(f"There is no file or folder {called!r}; give the folder or table of the {role} images.")
    elif path.suffix.lower() in _ARCHIVES:
        raise InputError(f"{called} is an archive; unpack it and give the folder.")
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        if role == "labelled":
            raise InputError(
                f"{called} is a single image; give a folder with one sub-folder per known class, or a table."
            )
        files = list_files([str(path)], [None])
        files.root = os.path.dirname(path)
    elif path.suffix.lower() in TABLE_SUFFIXES:
        files = list_table(path)
    else:
        raise InputError(f"{called} is neither a folder nor a table (.csv, .tsv, .parquet).")
    return _Listing(files, called, os.path.realpath(path), str(path))


def _from_shards(given: str | os.PathLike[str], role: str) -> Part:
    spool = Spool(list_shards(given, labelled=role == "labelled"))
    ids = [entry.image for entry in spool.entries]
    files = Files(spool.slices, [entry.label for entry in spool.entries], np.zeros((len(ids), 4), np.int64))
    files.stamps[:, :2] = np.array(spool.stamps, np.int64).reshape(-1, 2)
    reader = SliceReader(files, ids)
    key = f"shards {given if is_remote(given) else os.path.realpath(given)}"
    return Part(ids, files.labels, reader, printable(given), spool.problems, cache_key=key)


def _exists(path: str | os.PathLike[str]) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # opening it will say what is wrong
        return False


def _is_folder(source: Any) -> bool:
    return _is_path(source) and Path(source).is_dir()


def _from_values(images: Any, labels: list[str | None] | None, role: str) -> Part | _Listing:
    """A sequence of paths, of images of any sizes, or one array of images."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(images, torch.Tensor):
        images = images.detach().cpu().numpy()
        if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] not in (1, 3):
            images = images.transpose(0, 2, 3, 1)
    elif not isinstance(images, np.ndarray) and hasattr(images, "__array__"):
        images = np.asarray(images)
    if not isinstance(images, Sequence) and len(np.shape(images)) == 0:
        raise InputError(f"The {role} images are a single value; give one image per entry.")
    n = len(images)
    if labels is not None and len(labels) != n:
        raise InputError(f"There are {n} {role} images but {len(labels)} labels; give one label per image.")
    labels = labels if labels is not None else [None] * n
    if n and all(_is_path(item) for item in images):
        paths = [os.fspath(item) for item in images]
        listed = hashlib.blake2b(
            "\0".join([os.getcwd(), *paths]).encode("utf-8", "replace"), digest_size=16
        ).hexdigest()
        return _Listing(list_files(paths, labels), f"the list of {role} files", f"list {listed}")
    if any(_is_path(item) for item in images[:1]):
        raise InputError(f"The list of {role} files holds something other than paths.")
    return _items(images, labels, role, f"the {role} array")


def name_of_item(role: str, position: int) -> str:
    """What an image without a name of its own is called."""
    return f"{role}/{position}"


def _items(images: Any, labels: list[str | None], role: str, origin: str, ids: list[str] | None = None) -> Part:
    names = ids if ids is not None else [name_of_item(role, position) for position in range(len(images))]
    return Part(names, labels, ItemReader(images.__getitem__, len(images)), origin, array=images)


def _from_hugging_face(source: Any, role: str) -> Part:
    if isinstance(source, dict):
        splits = ", ".join(repr(split) for split in source)
        raise InputError(f"The {role} dataset has the splits {splits}; give one of them.")
    if not hasattr(source, "features") or not hasattr(source, "__len__") or source.features is None:
        raise InputError(f"The {role} dataset is streamed; load it without streaming.")
    import datasets

    features = source.features
    image_column = next((name for name, kind in features.items() if isinstance(kind, datasets.Image)), None)
    if image_column is None:
        raise InputError(f"The {role} dataset has no column of images; it has {', '.join(features)}.")
    label_column = next((name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)), None)
    label_column = label_column or next(
        (name for name in ("label", "class", "category", "fine_label") if name in features), None
    )
    labels: list[str | None] = [None] * len(source)
    names: Sequence[str] = ()
    if label_column is not None:
        names = getattr(features[label_column], "names", ())
        values = source.with_format(None)[label_column]
        labels = _label_names([None if v is None else names[v] if names and v >= 0 else v for v in values])
    # Undecoded, each image comes as the content or path of a file and is read as safely as any other file.
    raw = (
        source.with_format(None).select_columns([image_column]).cast_column(image_column, datasets.Image(decode=False))
    )

    def read(position: int) -> bytes:
        cell = raw[position][image_column]
        if cell is None:
            raise ValueError("no image")
        return cell["bytes"] if cell.get("bytes") else read_content(cell["path"])

    ids = [f"{role}/{position}" for position in range(len(source))]
    fingerprint = getattr(source, "_fingerprint", None)
    key = None if fingerprint is None else f"dataset {fingerprint}"
    reader = ItemReader(read, len(source))
    return Part(ids, labels, reader, f"the {role} dataset", cache_key=key, class_names=_present(labels, names))


def _from_torch_dataset(source: Any, role: str) -> Part:
    if not hasattr(source, "__len__"):
        raise InputError(
            f"The {role} dataset has no length; give one whose items have numbers from 0 to its length less one."
        )
    n, names = len(source), getattr(source, "classes", None)

    def read(position: int) -> Any:
        item = source[position]
        return item[0] if isinstance(item, tuple | list) else item

    values: list[Any] = [None] * n
    if role == "labelled":
        for position in range(n):
            try:
                item = source[position]
            except Exception:  # reading the image will meet the same fault and report it
                continue
            values[position] = item[1] if isinstance(item, tuple | list) and len(item) > 1 else None
    labels = _label_names(values)
    if isinstance(names, Sequence) and all(label is None or label.isdecimal() for label in labels):
        named = [None if label is None else int(label) for label in labels]
        if all(number is None or number < len(names) for number in named):
            labels = [None if number is None else str(names[number]) for number in named]
    else:
        names = ()
    ids = [f"{role}/{position}" for position in range(n)]
    return Part(ids, labels, ItemReader(read, n), f"the {role} dataset", class_names=_present(labels, names))


def _present(labels: list[str | None], names: Sequence[Any]) -> tuple[str, ...]:
    """The names that occur among the labels, in the order given; nothing when some label is not among the names."""
    there = {label for label in labels if label is not None}
    ordered = tuple(dict.fromkeys(str(name) for name in names if str(name) in there))
    return ordered if len(ordered) == len(there) else ()


def _label_names(labels: Any) -> list[str | None]:
    """Labels of any usual kind as text; None, -1, an empty text and NaN mean unlabelled."""
    names: list[str | None] = []
    for label in labels.tolist() if hasattr(labels, "tolist") else labels:
        value = label.item() if hasattr(label, "item") else label
        if isinstance(value, float):
            if value == value and not value.is_integer():
                raise InputError(f"Labels must be whole numbers or names; {value} is neither.")
            value = int(value) if value == value else None
        if value is not None and not isinstance(value, int | str):
            raise InputError(f"Labels must be whole numbers or names; found {type(value).__name__}.")
        text = None if value is None else str(value).strip()
        names.append(None if text in (None, "", str(UNKNOWN)) else text)
    return names


def _is_path(item: Any) -> bool:
    return isinstance(item, str | os.PathLike)
