"""Whatever a user gives as labelled or unlabelled images, as a Side."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.data.reading.folder import (
    IMAGE_SUFFIXES,
    Files,
    drop_same_files,
    list_class_folders,
    list_files,
    list_folder,
)
from autonovel.data.reading.pictures import FilePictures, ItemPictures, Side
from autonovel.data.reading.problems import printable
from autonovel.data.reading.tables import TABLE_SUFFIXES, list_table
from autonovel.errors import InputError

_ARCHIVES = frozenset({".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz"})


def open_sides(labelled: Any, unlabelled: Any) -> list[Side]:
    """Both sides listed, without files that are there twice, and without any labels on the unlabelled side."""
    sides = [_open_side(labelled, "labelled")] if labelled is not None else []
    if unlabelled is not None:
        side = _open_side(unlabelled, "unlabelled")
        if any(label is not None for label in side.labels):
            side.notes.append(f"The labels in {side.origin} are not used: it was given as the unlabelled side.")
            _forget_labels(side)
        sides.append(side)
    if not sides:
        raise InputError("No images were given.")
    drop_same_files([side.pictures.files for side in sides if isinstance(side.pictures, FilePictures)])
    for side in sides:
        if isinstance(side.pictures, FilePictures):
            _sync(side, side.pictures.files)
    return sides


def _open_side(source: Any, role: str) -> Side:
    """One side from a path, a list of files, (images, labels), arrays, an ImageSet or a dataset object."""
    if isinstance(source, str | os.PathLike):
        return _from_path(Path(source), role)
    if isinstance(source, ImageSet):
        names = source.class_names
        labels = [None if label == UNKNOWN else names[label] for label in source.labels.tolist()]
        side = _items(source.images, labels, role, "the image set", list(source.ids))
        return replace(side, class_names=names)
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


def _from_path(path: Path, role: str) -> Side:
    called = printable(path)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:
        raise InputError(f"{called!r} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if is_folder:
        files = list_class_folders(path) if role == "labelled" else list_folder(path)
    elif not is_file:
        raise InputError(f"There is no file or folder {called!r}; it was given for the {role} images.")
    elif path.suffix.lower() in _ARCHIVES:
        raise InputError(f"{called} is an archive; unpack it and give the folder.")
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        if role == "labelled":
            raise InputError(
                f"{called} is a single image; give a folder with one sub-folder per known class, or a table."
            )
        files = list_files([str(path)], [None])
    elif path.suffix.lower() in TABLE_SUFFIXES:
        files = list_table(path)
    else:
        raise InputError(f"{called} is neither a folder nor a table (.csv, .tsv, .parquet).")
    return _from_files(files, called, place=os.path.realpath(path), prefix=str(path))


def _from_files(files: Files, origin: str, place: str, prefix: str = "") -> Side:
    """The ids follow when files that are there twice are out."""
    return Side([], files.labels, FilePictures(files), origin, place=place, prefix=prefix)


def _forget_labels(side: Side) -> None:
    side.labels, side.class_names = [None] * len(side.labels), ()
    if isinstance(side.pictures, FilePictures):
        side.pictures.files.labels = side.labels


def _sync(side: Side, files: Files) -> None:
    side.ids = [printable(path) for path in files.paths]
    side.labels = files.labels
    side.problems = files.problems


def _from_values(images: Any, labels: list[str | None] | None, role: str) -> Side:
    """A sequence of paths, of pictures of any sizes, or one array of images."""
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
        return _from_files(list_files(paths, labels), f"the list of {role} files", place=f"list {listed}")
    if any(_is_path(item) for item in images[:1]):
        raise InputError(f"The list of {role} files holds something else than paths.")
    return _items(images, labels, role, f"the {role} array")


def _items(images: Any, labels: list[str | None], role: str, origin: str, ids: list[str] | None = None) -> Side:
    names = ids if ids is not None else [f"{role}/{position}" for position in range(len(images))]
    return Side(names, labels, ItemPictures(images.__getitem__, len(images)), origin, array=images)


def _from_hugging_face(source: Any, role: str) -> Side:
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
    # Undecoded, each picture comes as the content or path of a file and takes the same safe way as any other file.
    raw = (
        source.with_format(None).select_columns([image_column]).cast_column(image_column, datasets.Image(decode=False))
    )

    def read(position: int) -> bytes:
        from autonovel.data.reading.workers import read_content

        cell = raw[position][image_column]
        if cell is None:
            raise ValueError("no image")
        return cell["bytes"] if cell.get("bytes") else read_content(cell["path"])

    ids = [f"{role}/{position}" for position in range(len(source))]
    fingerprint = getattr(source, "_fingerprint", None)
    place = None if fingerprint is None else f"dataset {fingerprint}"
    pictures = ItemPictures(read, len(source))
    return Side(ids, labels, pictures, f"the {role} dataset", place=place, class_names=_present(labels, names))


def _from_torch_dataset(source: Any, role: str) -> Side:
    if not hasattr(source, "__len__"):
        raise InputError(f"The {role} dataset has no length; give one whose items can be asked for by number.")
    n, names = len(source), getattr(source, "classes", None)

    def read(position: int) -> Any:
        item = source[position]
        return item[0] if isinstance(item, tuple | list) else item

    values: list[Any] = [None] * n
    if role == "labelled":
        for position in range(n):
            try:
                item = source[position]
            except Exception:  # reading the picture will find the same fault again and report it
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
    return Side(ids, labels, ItemPictures(read, n), f"the {role} dataset", class_names=_present(labels, names))


def _present(labels: list[str | None], names: Sequence[Any]) -> tuple[str, ...]:
    """The names that occur, in the order given; nothing when the labels are not among the names."""
    there = {label for label in labels if label is not None}
    ordered = tuple(dict.fromkeys(str(name) for name in names if str(name) in there))
    return ordered if len(ordered) == len(there) else ()


def _label_names(labels: Any) -> list[str | None]:
    """Labels of any usual kind as text; None, -1, an empty text and NaN mean unknown."""
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
