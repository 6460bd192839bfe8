"""One part of the input, labelled or unlabelled, whatever it was given as: names, labels, and a reader of its images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autonovel.data.images import Source
from autonovel.data.reading.decode import Form, Header, UnusableImageError, as_image, peek, to_pixels
from autonovel.data.reading.folder import Files
from autonovel.data.reading.problems import Problem
from autonovel.data.reading.stream import Decoded, stream_files
from autonovel.data.reading.workers import Outcome, PixelFile, Progress, decode_files, fingerprint, read_content


@dataclass(frozen=True)
class DecodeJob:
    """Images of a part that are to be decoded into a pixel file.

    Attributes:
        positions: of the images in their part.
        first_row: the row for the part's first image; that at position p has the row ``first_row + p``.
        target: the pixel file.
        workers: decoding processes; one per core when None.
        progress: called with (done, total) for the images of this job.
    """

    positions: Sequence[int]
    first_row: int
    target: PixelFile
    workers: int | None = None
    progress: Progress | None = None

    @property
    def rows(self) -> list[int]:
        """The row for each position."""
        return [self.first_row + position for position in self.positions]


class Reader(Protocol):
    """Looks at the images of a part and decodes them, each by its position."""

    @property
    def names(self) -> list[str] | None:
        """A name for each image that stays the same from run to run; None where its id does."""

    @property
    def stamps(self) -> npt.NDArray[np.int64]:
        """Int64 (n, 2): numbers that change when an image changes."""

    def header(self, position: int) -> Header:
        """Size and colour of one image; raises UnusableImageError with the reason."""

    def decode(self, job: DecodeJob) -> list[Outcome]:
        """Write the images of the job into their rows; says what came of each."""


@dataclass
class Part:
    """The labelled or the unlabelled input, listed but not decoded.

    Attributes:
        ids: a name for each image.
        labels: the name of its class; None where it has none.
        reader: gives the images themselves.
        origin: what to call this part in a message.
        problems: what is known to be wrong so far.
        notes: sentences the user should see.
        sources: the file of each image; empty where none comes from a file.
        cache_key: tells what this part was read from, to find its cache again; None when nothing identifies it.
        array: all images as one array, where they were given so.
        class_names: the known classes in the order of their labels, where what was given fixes it.
    """

    ids: list[str]
    labels: list[str | None]
    reader: Reader
    origin: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sources: tuple[Source, ...] = ()
    cache_key: str | None = None
    array: Any = None
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def cache_names(self) -> list[str]:
        """What to call each image in the cache."""
        return self.ids if self.reader.names is None else self.reader.names


class FileReader:
    """Reads image files on disk.

    Args:
        files: which ones.
        prefix: the beginning of their paths that depends on how the user wrote the folder or table.
    """

    def __init__(self, files: Files, prefix: str) -> None:
        self.files, self._paths, self._stamps, self._prefix = files, files.paths, files.stamps, prefix

    @property
    def names(self) -> list[str]:
        """The paths without the prefix, exactly as the system has them."""
        return [path.removeprefix(self._prefix) for path in self._paths]

    @property
    def stamps(self) -> npt.NDArray[np.int64]:
        """Size and time of change."""
        return np.ascontiguousarray(self._stamps[:, :2])

    def header(self, position: int) -> Header:
        """Reads the beginning of the file."""
        try:
            with open(self._paths[position], "rb") as file:
                return peek(file)
        except OSError as error:
            raise UnusableImageError(f"cannot be read ({error.strerror or error})") from None

    def decode(self, job: DecodeJob) -> list[Outcome]:
        """Decodes in several processes."""
        paths = [self._paths[position] for position in job.positions]
        return decode_files(paths, job.rows, job.target, workers=job.workers, progress=job.progress)

    def stream(self, positions: Sequence[int], form: Form) -> Iterator[Decoded]:
        """Decodes in several processes, part by part and in the order of the positions."""
        return stream_files([self._paths[position] for position in positions], form)


class SliceReader(FileReader):
    """Reads images that lie one after the other in larger files.

    Args:
        files: their paths are slices of files (:func:`autonovel.data.reading.workers.slice_of`).
        names: what each is called from run to run.
    """

    def __init__(self, files: Files, names: list[str]) -> None:
        super().__init__(files, "")
        self._names = names

    @property
    def names(self) -> list[str]:
        """What each is called."""
        return self._names

    def header(self, position: int) -> Header:
        """Reads the whole image."""
        return peek(BytesIO(read_content(self._paths[position])))


class ItemReader:
    """Reads images handed over as objects: arrays, PIL images, tensors, or the content of image files as bytes."""

    def __init__(self, read: Callable[[int], Any], n: int) -> None:
        self._read, self._n = read, n

    @property
    def names(self) -> None:
        """None: objects go by their ids."""
        return

    @property
    def stamps(self) -> npt.NDArray[np.int64]:
        """Zeros: objects carry no sign of change, so the part's cache key must tell."""
        return np.zeros((self._n, 2), np.int64)

    def header(self, position: int) -> Header:
        """Looks at the object."""
        item = self._item(position)
        if isinstance(item, bytes):
            return peek(BytesIO(item))
        image = as_image(item)
        return Header(image.width, image.height, image.mode in ("L", "1", "LA", "I", "F"))

    def decode(self, job: DecodeJob) -> list[Outcome]:
        """Decodes one after the other: a user's objects may not survive use from several processes."""
        outcomes, total = [], len(job.positions)
        with job.target.path.open("r+b") as file:
            for done, (position, row) in enumerate(zip(job.positions, job.rows, strict=True), 1):
                try:
                    pixels = to_pixels(self._item(position), job.target.form).tobytes()
                    job.target.write(file, row, pixels)
                    outcomes.append(Outcome("", fingerprint(pixels)))
                except UnusableImageError as unusable:
                    outcomes.append(Outcome(str(unusable), 0))
                if job.progress is not None and (done % 64 == 0 or done == total):
                    job.progress(done, total)
        return outcomes

    def _item(self, position: int) -> Any:
        """The object; whatever the user's code raises becomes the reason why it cannot be used."""
        try:
            return self._read(position)
        except Exception as error:
            raise UnusableImageError(f"cannot be read ({type(error).__name__}: {str(error)[:80]})") from None
