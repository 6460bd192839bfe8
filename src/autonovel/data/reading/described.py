"""A folder of features: one Parquet file for each shard of a pile, each whole or absent, and an index that is written last."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows, printable
from autonovel.machine.disk import whole

FORMAT = 1
INDEX = "features.json"
PROBLEMS = "problems.csv"
AT_ONCE = 8192
"""Rows of a group in a file, and at most of a batch that is read."""

_OURS = b"autonovel"
_FILE = re.compile(r"part-[0-9]{5,9}\.parquet")
_TEXTS = ("image", "source", "place", "label")
_AGAIN = "run describe again, which makes what is missing"


@dataclass(frozen=True)
class Made:
    """What the features of a folder were made by; those of two folders can be compared only where this is the same.

    Attributes:
        network: digest of the weights.
        backbone: the name of the network.
        size: side of the images that the network saw, in pixels.
        decoded: side that they were decoded to before.
        channels: 1 for grey, 3 for colour.
        width: values of a row.
    """

    network: str
    backbone: str
    size: int
    decoded: int
    channels: int
    width: int


class Shard(NamedTuple):
    """One file of a folder of features.

    Attributes:
        file: its name in the folder.
        source: what the images came from.
        rows: how many there are.
        digest: of the file's content.
    """

    file: str
    source: str
    rows: int
    digest: str


@dataclass(frozen=True)
class Rows:
    """Images of a shard, one for each row.

    Attributes:
        images: text (m,), unique over all shards.
        sources: text (m,), the address of the shard or file that holds the image.
        places: text (m,), what finds it again in there: the name of a member, or the number of a row.
        labels: text (m,), or None where there is none.
        digests: bytes (m,), by which its pixels are known.
        features: float16 (m, d).
    """

    images: npt.NDArray[Any]
    sources: npt.NDArray[Any]
    places: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    digests: npt.NDArray[Any]
    features: npt.NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.images)


class WrittenShard(NamedTuple):
    """What a file says of itself: the stamp of the shard that it was made from, and what could not be used of it."""

    shard: Shard
    stamp: str
    problems: list[Problem]


class Described:
    """A finished folder of features.

    Attributes:
        folder: where it is.
        made: what the features were made by.
        shards: its files, in the order of the pile.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            index = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{printable(self.folder)} holds no finished features ({INDEX} is missing); give a folder that describe "
                "has finished."
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(INDEX, error) from None
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise InputError(
                f"The features in {printable(self.folder)} are of another format than this version reads ({FORMAT}); "
                "describe the images again into another folder."
            )
        try:
            self.made = Made(**index["made"])
            self.shards = [Shard(*(entry[name] for name in Shard._fields)) for entry in index["shards"]]
            if not _as_written(self.made, self.shards):
                raise TypeError("describe writes no such values")
        except (KeyError, TypeError) as error:
            raise self._damaged(INDEX, error) from None

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.made.width

    @property
    def n_rows(self) -> int:
        """Images of all shards."""
        return sum(shard.rows for shard in self.shards)

    def parts(self, shards: Sequence[Shard] | None = None) -> Iterator[Rows]:
        """The rows of these shards (of all when left out) in their order, a few thousand at a time.

        Every file is compared with its digest before a row of it is given.
        """
        from pyarrow import ArrowException

        parquet = parquet_of()
        for shard in self.shards if shards is None else shards:
            path, n = self.folder / shard.file, 0
            try:
                if path.exists() and not path.is_file():  # a pipe would never end
                    raise self._damaged(shard.file, "it is no file")
                if _digest(path) != shard.digest:
                    raise self._damaged(shard.file, "it is not as it was written")
                with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                    for batch in file.iter_batches(AT_ONCE):
                        rows = _rows(batch, self.width)
                        n += len(rows)
                        yield rows
            except InputError:
                raise
            except (ArrowException, OSError, KeyError, TypeError, ValueError) as error:
                raise self._damaged(shard.file, error) from None
            if n != shard.rows:
                raise self._damaged(shard.file, f"it has {n:,} rows in place of {shard.rows:,}")

    def _damaged(self, name: str, why: object) -> InputError:
        said = " ".join((getattr(why, "strerror", None) or str(why)).split())[:120]
        return InputError(f"The file {printable(self.folder / name)} is damaged ({said}); remove it and {_AGAIN}.")


def is_described(path: Any) -> bool:
    """Whether this is a folder that describe has finished."""
    try:
        return isinstance(path, str | os.PathLike) and (Path(path) / INDEX).is_file()
    except (OSError, ValueError):
        return False


def refuse_other_network(first: Described, second: Described) -> None:
    """Refuse two folders whose features cannot be compared."""
    if first.made != second.made:
        one, other = (f"{d.made.backbone} at {d.made.size} pixels ({d.made.network[:8]})" for d in (first, second))
        raise InputError(
            f"The features in {printable(first.folder)} are of {one}, those in {printable(second.folder)} of {other}; "
            "describe both with the same network and size."
        )


def file_of(number: int) -> str:
    """The name of the file for the shard with this number."""
    return f"part-{number:05d}.parquet"


def as_file(made: Made, source: str, stamp: str, rows: Rows, problems: Sequence[Problem] = ()) -> bytes:
    """The content of the file for one shard; ``stamp`` changes when the shard does."""
    import pyarrow as pa

    parquet = parquet_of()
    about = {
        "format": FORMAT,
        "made": asdict(made),
        "source": source,
        "stamp": stamp,
        "problems": [asdict(problem) for problem in problems],
    }
    values = pa.array(np.ascontiguousarray(rows.features, np.float16).reshape(-1))
    columns = [pa.array(column, pa.string()) for column in (rows.images, rows.sources, rows.places, rows.labels)]
    columns += [pa.array(rows.digests, pa.binary()), pa.FixedSizeListArray.from_arrays(values, made.width)]
    table = pa.table(columns, names=[*_TEXTS, "digest", "features"])
    content = io.BytesIO()
    parquet.write_table(
        table.replace_schema_metadata({_OURS: json.dumps(about)}),
        content,
        row_group_size=AT_ONCE,
        use_dictionary=["source", "label"],
        compression=dict.fromkeys(_TEXTS, "zstd"),
        write_page_checksum=True,  # whoever writes the index again does not read the rows
    )
    return content.getvalue()


def write_file(folder: Path, number: int, content: bytes) -> None:
    """Put the file of a shard into its place, whole or not at all."""
    with whole(folder / file_of(number)) as path:
        path.write_bytes(content)


def read_part(folder: Path, number: int, made: Made) -> WrittenShard | None:
    """What the file of a shard says of itself; None where there is none, it is damaged, or something else made it."""
    from pyarrow import ArrowException

    path = folder / file_of(number)
    try:
        with parquet_of().ParquetFile(path) as file:
            about = json.loads(file.schema_arrow.metadata[_OURS])
            n_rows = file.metadata.num_rows
        if about["format"] != FORMAT or about["made"] != asdict(made):
            return None
        problems = [Problem(**problem) for problem in about["problems"]]
        return WrittenShard(Shard(path.name, about["source"], n_rows, _digest(path)), about["stamp"], problems)
    except (ArrowException, OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def finish(folder: Path, made: Made, parts: Sequence[WrittenShard], problems: Sequence[Problem] = ()) -> Described:
    """Write what could not be used before shards were read and in them, then the index, with which the folder is finished."""
    with whole(folder / PROBLEMS) as path, path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(PROBLEM_FIELDS)
        table.writerows(as_rows(problems))
        for part in parts:
            table.writerows(as_rows(part.problems))
    index = {"format": FORMAT, "made": asdict(made), "shards": [part.shard._asdict() for part in parts]}
    with whole(folder / INDEX) as path:
        path.write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return Described(folder)


def parquet_of() -> Any:
    """pyarrow's Parquet, or the sentence that says how to get it."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("Reading Parquet needs pyarrow: pip install 'autonovel[tables]'.") from None
    return parquet


def _rows(batch: Any, width: int) -> Rows:
    def column(name: str) -> npt.NDArray[Any]:
        return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=object)

    features = batch.column("features").flatten().to_numpy().reshape(-1, width)
    images, sources, places, labels, digests = map(column, (*_TEXTS, "digest"))
    return Rows(images, sources, places, labels, digests, features)


def _as_written(made: Made, shards: Sequence[Shard]) -> bool:
    """Whether an index holds what describe writes: texts, files in the folder, numbers that can be."""
    texts = (made.network, made.backbone, *(text for shard in shards for text in (shard.source, shard.digest)))
    counts = (made.size, made.decoded, made.channels, made.width, *(shard.rows for shard in shards))
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(count) is int and 0 <= count < 2**40 for count in counts)
        and all(isinstance(shard.file, str) and _FILE.fullmatch(shard.file) for shard in shards)
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
