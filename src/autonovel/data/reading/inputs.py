"""Anyone's images, in any form: opened and listed once, looked at, and loaded as an ImageSet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from autonovel.data.images import ImageSet
from autonovel.data.reading.fill import Request
from autonovel.data.reading.load import Loaded, load_parts
from autonovel.data.reading.opening import open_parts
from autonovel.data.reading.parts import FileReader, Part
from autonovel.data.reading.survey import Survey, look_at
from autonovel.data.reading.workers import Progress


class Input:
    """What the user gave, opened and listed; :func:`open_input` makes one.

    Attributes:
        parts: the labelled and the unlabelled images, as far as given.
        supervised: whether there are labelled images.
    """

    def __init__(self, parts: Sequence[Part], *, supervised: bool) -> None:
        self.parts, self.supervised = tuple(parts), supervised

    @cached_property
    def fingerprint(self) -> str:
        """A text that changes when a file is added, removed, renamed or changed, or its label is; nothing is decoded for it.

        Empty where not everything comes from files, whose size and time of change tell.
        """
        digest = hashlib.sha256()
        for part in self.parts:
            if not isinstance(part.reader, FileReader):
                return ""
            digest.update(json.dumps([part.cache_names, part.ids, part.labels, part.class_names]).encode())
            digest.update(part.reader.stamps.tobytes())
        return digest.hexdigest()

    @cached_property
    def survey(self) -> Survey:
        """A look at the images: how many, which classes, what size. Reads the headers of a sample, once."""
        return look_at(self.parts)

    def load(
        self,
        *,
        size: int | None = None,
        channels: int | None = None,
        cache: Path | None = None,
        workers: int | None = None,
        progress: Progress | None = None,
        least: int = 2,
    ) -> Loaded:
        """The images, checked and decoded.

        Args:
            size: side of the square that images are brought to; as suits them when left out.
            channels: 1 for grey, 3 for colour; when left out, grey only if every image is grey.
            cache: folder for the decoded images, which serve again while the source files stay the same. Without it
                they lie in a temporary file that disappears with the process.
            workers: decoding processes; one per core when left out.
            progress: called with (done, total) while decoding.
            least: how many unlabelled images there must be: two where classes are to be discovered among them, one
                where a finished run is to name them.

        Raises:
            InputError: nothing usable is left, too much is unusable, or the classes make no sense.
        """
        request = Request(size, channels, cache, workers, progress)
        return load_parts(self.parts, request, lambda: self.survey, supervised=self.supervised, least=least)


def open_input(labelled: Any, unlabelled: Any = None, *, without: Collection[str] = (), to_sort: bool = True) -> Input:
    """List the images that were given, without decoding any.

    Either may be a folder (labelled: one sub-folder per class), a CSV or Parquet table (columns path and label), a
    list of files, an array of images or (images, labels), an ImageSet, a Hugging Face dataset or a torch Dataset of
    (image, label). One set in which some images have labels is given as ``labelled`` alone; images without any labels
    as ``open_input(None, images)``.

    Args:
        labelled: images of the known classes.
        unlabelled: images whose classes are to be discovered.
        without: absolute paths of files that are not wanted among the unlabelled images.
        to_sort: whether there is something to be sorted; a folder of classes alone is refused then.

    Raises:
        InputError: something given cannot be read as images, or is probably not what was meant.
    """
    unsupervised = labelled is None or (isinstance(labelled, ImageSet) and not labelled.n_known)
    return Input(open_parts(labelled, unlabelled, without, alone=to_sort), supervised=not unsupervised)


def load_images(labelled: Any, unlabelled: Any = None, **options: Any) -> Loaded:
    """Open the input and load it at once: :func:`open_input`, then :meth:`Input.load` with the options."""
    return open_input(labelled, unlabelled).load(**options)
