"""One side of the input, whatever it was given as: names, labels, and a way to get at each picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autonovel.data.reading.decode import Form, Header, UnusableImageError, as_picture, peek, to_pixels
from autonovel.data.reading.folder import Files
from autonovel.data.reading.problems import Problem
from autonovel.data.reading.workers import Progress, Verdict, content_print, decode_files


class Pictures(Protocol):
    """Pictures that can be looked at and decoded, in one order."""

    def __len__(self) -> int:
        """How many there are."""

    @property
    def stamps(self) -> npt.NDArray[np.int64]:
        """Int64 (n, 2): numbers that change when a picture changes."""

    def header(self, position: int) -> Header:
        """Size and colour of one picture; raises UnusableImageError with the reason."""

    def decode(
        self,
        positions: Sequence[int],
        rows: Sequence[int],
        pixel_file: Path,
        form: Form,
        offset: int,
        workers: int | None,
        progress: Progress | None,
    ) -> list[Verdict]:
        """Write the pictures at these positions into these rows of a pixel file."""


@dataclass
class Side:
    """The labelled or the unlabelled input, listed but not decoded.

    Attributes:
        ids: a name for each picture.
        labels: the name of its class; None where it has none.
        pictures: the pictures themselves.
        problems: what is known to be wrong so far.
        notes: sentences the user should see.
        origin: how to call this side in a message.
        place: what this side was read from, to find its cache again; None when that cannot be told.
        prefix: beginning of the paths that depends on how the user spelt the place.
        array: all pictures as one array, where they were given so.
        class_names: the known classes in the order of their labels, where the source fixes it.
    """

    ids: list[str]
    labels: list[str | None]
    pictures: Pictures
    origin: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    place: str | None = None
    prefix: str = ""
    array: Any = None
    class_names: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """What to know each picture by in the cache: its path below the place, exactly as the system has it."""
        if isinstance(self.pictures, FilePictures):
            return [path.removeprefix(self.prefix) for path in self.pictures.files.paths]
        return self.ids


class FilePictures:
    """Image files on disk."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files.paths)

    @property
    def stamps(self) -> npt.NDArray[np.int64]:
        """Size and time of change."""
        return np.ascontiguousarray(self.files.stamps[:, :2])

    def header(self, position: int) -> Header:
        """Reads the beginning of the file."""
        try:
            with open(self.files.paths[position], "rb") as file:
                return peek(file)
        except OSError as error:
            raise UnusableImageError(f"cannot be read ({error.strerror or error})") from None

    def decode(
        self,
        positions: Sequence[int],
        rows: Sequence[int],
        pixel_file: Path,
        form: Form,
        offset: int,
        workers: int | None,
        progress: Progress | None,
    ) -> list[Verdict]:
        """Decodes in several processes."""
        paths = [self.files.paths[position] for position in positions]
        return decode_files(paths, rows, pixel_file, form, offset=offset, workers=workers, progress=progress)


class ItemPictures:
    """Pictures handed over as objects: arrays, PIL images, tensors, or the content of image files as bytes."""

    def __init__(self, read: Callable[[int], Any], n: int) -> None:
        self._read, self._n = read, n

    def __len__(self) -> int:
        return self._n

    @property
    def stamps(self) -> npt.NDArray[np.int64]:
        """Nothing to go by: the place of the side must tell whether it changed."""
        return np.zeros((self._n, 2), np.int64)

    def header(self, position: int) -> Header:
        """Looks at the object."""
        picture = self.read(position)
        if isinstance(picture, bytes):
            from io import BytesIO

            return peek(BytesIO(picture))
        image = as_picture(picture)
        return Header(image.width, image.height, image.mode in ("L", "1", "LA", "I", "F"))

    def read(self, position: int) -> Any:
        """The object; whatever the user's code raises becomes the reason why it cannot be used."""
        try:
            return self._read(position)
        except Exception as error:
            raise UnusableImageError(f"cannot be read ({type(error).__name__}: {str(error)[:80]})") from None

    def decode(
        self,
        positions: Sequence[int],
        rows: Sequence[int],
        pixel_file: Path,
        form: Form,
        offset: int,
        workers: int | None,
        progress: Progress | None,
    ) -> list[Verdict]:
        """Decodes one after the other: users' objects need not stand being used from several processes."""
        verdicts = []
        row_bytes = form.size * form.size * form.channels
        with pixel_file.open("r+b") as file:
            for done, (position, row) in enumerate(zip(positions, rows, strict=True), 1):
                try:
                    pixels = to_pixels(self.read(position), form).tobytes()
                    file.seek(offset + row * row_bytes)
                    file.write(pixels)
                    verdicts.append(Verdict("", content_print(pixels)))
                except UnusableImageError as unusable:
                    verdicts.append(Verdict(str(unusable), 0))
                if progress is not None and (done % 64 == 0 or done == len(rows)):
                    progress(done, len(rows))
        return verdicts
