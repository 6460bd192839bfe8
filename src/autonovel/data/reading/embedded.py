"""Features that somebody has computed already, in place of images: arrays, .npy files and Parquet tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.data.reading.described import Described, Made, is_described, refuse_other_network
from autonovel.data.reading.tables import refuse_too_large

_COLUMNS = ("features", "label", "image")
MOST = 1e15
"""A feature at most: sums of the squares of larger ones are not finite."""


@dataclass(frozen=True)
class Embedded:
    """Features with a name for each row, and labels where they are known.

    Attributes:
        features: float32 (n, d).
        names: what stands for images: ids, labels and names of classes. Its pixels mean nothing.
        made: what describe made them by, where it did.
    """

    features: npt.NDArray[np.float32]
    names: ImageSet
    made: Made | None = None


def read_embedded(labelled: Any, unlabelled: Any = None) -> Embedded:
    """The features of known classes and of the pile, or of one pile in which some have labels.

    Either may be an array (n, d), a pair of arrays (features, labels), a .npy file, a Parquet table with a column
    ``features`` and, if there are any, ``image`` and ``label``, or a folder that describe has finished.
    """
    if is_described(labelled) and is_described(unlabelled):
        refuse_other_network(Described(labelled), Described(unlabelled))
    parts = [
        _read(given, role) for given, role in ((labelled, "labelled"), (unlabelled, "unlabelled")) if given is not None
    ]
    if not parts:
        raise InputError("No features were given.")
    if labelled is not None and unlabelled is not None:
        features, _, ids = parts[1]
        parts[1] = features, [None] * len(features), ids
    if len({part[0].shape[1] for part in parts}) > 1:
        raise InputError(
            f"Labelled rows have {parts[0][0].shape[1]} features and unlabelled ones {parts[1][0].shape[1]}; give the same."
        )
    features = np.concatenate([part[0] for part in parts])
    _refuse_all_alike(features, [label for part in parts for label in part[1]])
    labels = np.array([label for part in parts for label in part[1]], dtype=object)
    ids = [name for part in parts for name in part[2]]
    if len(set(ids)) < len(ids):
        ids = [f"{number}/{name}" for number, name in enumerate(ids)]
    nothing = np.zeros((len(features), 1, 1), dtype=np.uint8)
    made = Described(unlabelled).made if is_described(unlabelled) else None
    return Embedded(features, ImageSet.from_arrays(nothing, alike(labels), ids=ids), made)


def _read(given: Any, role: str) -> tuple[npt.NDArray[np.float32], list[Any], list[str]]:
    labels = names = None
    if isinstance(given, str | os.PathLike):
        given, labels, names = _from_file(Path(given))
    elif isinstance(given, tuple) and len(given) == 2:
        given, labels = given
    try:
        features = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"The {role} features cannot be used ({error}); give an array of numbers (n, d).") from error
    if features.ndim != 2 or not features.size:
        raise InputError(f"The {role} features have shape {features.shape}; give (n, d), a row for each image.")
    fit = (np.abs(features) < MOST).all(1)  # NaN is not
    if not fit.all():
        first = int(np.argmin(fit))
        raise InputError(
            f"The {role} features hold NaN, infinity or a number above {MOST:.0e} (first in row {first}); leave those rows out."
        )
    known = [None] * len(features) if labels is None else list(labels)
    if len(known) != len(features):
        raise InputError(
            f"There are {len(features)} rows of features and {len(known)} labels; give one label for each."
        )
    return features, known, list(map(str, range(len(features)))) if names is None else list(map(str, names))


def _refuse_all_alike(features: npt.NDArray[np.float32], labels: list[Any]) -> None:
    """Refuse rows that tell nothing apart."""
    known = alike(np.array(labels, dtype=object))
    is_known = known >= 0 if known.dtype.kind == "i" else known != ""
    for role, rows, wanted in (
        ("unlabelled", features[~is_known], 1),
        ("labelled", features[is_known], len(np.unique(known[is_known]))),
    ):
        if len(rows) > 1 and wanted > (role == "labelled") and (rows == rows[0]).all():
            raise InputError(f"All {len(rows)} {role} rows of features are the same; give features that differ.")


def _from_file(path: Path) -> tuple[Any, Any, Any]:
    """Features, labels and names of a file, or of a folder that describe has finished."""
    if path.is_dir():
        described = Described(path)
        parts = [(rows.features, rows.labels, rows.images) for rows in described.parts()]
        if not described.n_rows:
            raise InputError(f"There are no images in {path}; its problems.csv says why.")
        features, labels, names = map(np.concatenate, zip(*parts, strict=True))
        return features, labels, names
    if not path.is_file():
        raise InputError(
            f"There is no file {str(path)!r}; give a .npy file, a Parquet table of features, or a folder of describe."
        )
    if path.suffix.lower() == ".npy":
        return load_array(path), None, None
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise InputError(f"{path} is no table of features; give a .npy file or a Parquet table.")
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InputError('Parquet needs pyarrow: pip install "autonovel[tables]".') from error
    try:
        with parquet.ParquetFile(path) as file:
            names, metadata = file.schema_arrow.names, file.metadata
        wanted = [name for name in _COLUMNS if name in names]
        refuse_too_large(path, metadata, wanted)
        table = parquet.read_table(path, columns=wanted)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({str(error).splitlines()[0]}).") from error
    if "features" not in table.column_names:
        raise InputError(f"{path} has no column features; its columns are {', '.join(names)}.")
    label, image = (table[name].to_pylist() if name in wanted else None for name in ("label", "image"))
    return _numbers(table["features"]), label, image


def _numbers(column: Any) -> Any:
    """A column of lists as an array (n, d), without an object for each number; as lists where they are not equally long."""
    import pyarrow as pa

    parts = []
    for chunk in column.chunks:
        kind = chunk.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not is_list or not len(chunk) or chunk.null_count or pa.types.is_nested(kind.value_type):
            return column.to_pylist()
        values = chunk.flatten()
        lengths = chunk.value_lengths().unique() if not pa.types.is_fixed_size_list(kind) else [kind.list_size]
        if len(lengths) != 1 or values.null_count:
            return column.to_pylist()
        parts.append(values.to_numpy(zero_copy_only=False).reshape(len(chunk), -1))
    return np.concatenate(parts) if len({part.shape[1] for part in parts}) == 1 else column.to_pylist()


def load_array(path: Any) -> npt.NDArray[Any]:
    """The array in a .npy file."""
    try:
        return np.asarray(np.load(path))
    except (ValueError, OSError, EOFError, TypeError) as error:
        raise InputError(f"{path} cannot be read as an array ({error}); give a .npy file of features.") from error


def alike(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers where all labels are, texts otherwise; -1 or an empty text stands for none."""
    given = [None if label is None or label != label else label for label in labels.tolist()]
    if all(label is None or isinstance(label, int) for label in given):
        return np.array([-1 if label is None else label for label in given], dtype=np.int64)
    return np.array(["" if label in (None, -1, "-1") else str(label) for label in given])
