"""Many files decoded at once, in worker processes that write straight into one file of pixels.

The workers are plain Python programs that talk over pipes, not ``multiprocessing``: a script without a main guard,
a notebook and a process that already uses the GPU can all start them, and a decoder that crashes takes only its own
worker down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from autonovel.data.reading.decode import MOST_BYTES, Form, UnusableImageError, decode_square

Progress = Callable[[int, int], None]
"""Called with how many of how many images are done."""

FEW = 256
"""Up to this many files are decoded in this process, since starting workers would take longer."""

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""How a file is opened: without waiting for who writes into a pipe."""
_ENDS = 2**19
_WRITE_EVERY = 32 * 2**20


class Outcome(NamedTuple):
    """What came of one image: why it cannot be used (empty if it can), and a fingerprint to find copies by."""

    reason: str
    fingerprint: int


class Chunk(NamedTuple):
    """Some files for one worker, and the row of the pixel file for each."""

    rows: list[int]
    paths: list[str]


@dataclass(frozen=True)
class PixelFile:
    """A file with one row of pixels per image, all in one form; the first row begins at ``offset``."""

    path: Path
    form: Form
    offset: int = 0

    def write(self, file: BinaryIO, row: int, pixels: bytes) -> None:
        """Write one image into its row, through the opened file."""
        file.seek(self.offset + row * self.form.n_bytes)
        file.write(pixels)


def decode_files(
    paths: Sequence[str],
    rows: Sequence[int],
    target: PixelFile,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Decode each file into its row of the pixel file and say what came of it.

    The result does not depend on the number of workers. Rows of files that cannot be used are left untouched.
    """
    workers = workers or available_cores()
    size = max(1, min(64, len(paths) // (4 * workers)))
    starts = range(0, len(paths), size)
    chunks = [Chunk(list(rows[first : first + size]), list(paths[first : first + size])) for first in starts]
    alone = is_few(len(paths)) or workers == 1
    outcomes: dict[int, Outcome] = {}
    for chunk, answers in _decode_here(chunks, target) if alone else _decode_in_workers(chunks, target, workers):
        outcomes.update(zip(chunk.rows, answers, strict=True))
        if progress is not None:
            progress(len(outcomes), len(paths))
    return [outcomes[row] for row in rows]


def is_few(n_files: int) -> bool:
    """Whether this process decodes this many files faster than worker processes start."""
    return n_files <= FEW or not sys.executable


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decode_chunk(chunk: Chunk, file: BinaryIO, target: PixelFile) -> list[Outcome]:
    """Decode the files of a chunk one after the other into the opened pixel file."""
    outcomes = []
    for row, path in zip(*chunk, strict=True):
        mark = 0
        try:
            content = read_content(path)
            mark = fingerprint(content)
            square = decode_square(content, target.form)
            target.write(file, row, square.tobytes())
            outcomes.append(Outcome("", mark))
        except UnusableImageError as unusable:
            outcomes.append(Outcome(str(unusable), mark))
    return outcomes


def slice_of(path: str, offset: int, size: int) -> str:
    """What stands for some bytes of a file where the path of a file is asked for; no path can hold such a text."""
    return f"{path}\0{offset}\0{size}"


def read_content(path: str) -> bytes:
    """The bytes of a file, or of a part of it (:func:`slice_of`); raises UnusableImageError with the reason."""
    try:
        if "\0" in path:
            whole, offset, size = path.split("\0")
            with open(whole, "rb") as file:
                file.seek(int(offset))
                content = file.read(min(int(size), MOST_BYTES + 1))
        else:
            descriptor = os.open(path, _READ)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                os.close(descriptor)
                raise UnusableImageError("not a file")
            with open(descriptor, "rb") as file:
                # asks for no more than the file has, since read() reserves memory for all it is asked for
                content = file.read(min(status.st_size, MOST_BYTES) + 1)
    except OSError as error:
        raise UnusableImageError(f"cannot be read ({error.strerror or error})") from None
    if len(content) > MOST_BYTES:
        raise UnusableImageError(f"larger than {MOST_BYTES // 2**20} MiB")
    return content


def fingerprint(content: bytes) -> int:
    """The same number for equal contents; of large ones from length, beginning and end, so that it costs next to nothing."""
    if len(content) > 2 * _ENDS:
        content = content[:_ENDS] + content[-_ENDS:] + str(len(content)).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:7], "little")


def fingerprint_of_file(path: str) -> int | None:
    """The fingerprint of a file's content as it is now; None where it cannot be read as an image's would be."""
    try:
        return fingerprint(read_content(path))
    except UnusableImageError:
        return None


def _decode_here(chunks: Sequence[Chunk], target: PixelFile) -> Iterator[tuple[Chunk, list[Outcome]]]:
    """Each chunk with its outcomes, decoded in this process."""
    with target.path.open("r+b") as file:
        for chunk in chunks:
            yield chunk, decode_chunk(chunk, file, target)


def _decode_in_workers(
    chunks: Sequence[Chunk], target: PixelFile, workers: int
) -> Iterator[tuple[Chunk, list[Outcome]]]:
    """Each chunk with its outcomes, in the order in which the workers finish them."""
    unwritten = 0
    with Decoders(target, min(workers, len(chunks))) as decoders, target.path.open("r+b") as file:
        for chunk in chunks:
            decoders.give(chunk)
        for _ in chunks:
            chunk, outcomes = decoders.take()
            yield chunk, outcomes
            # This process is idle while the workers decode: it makes the system write their pixels to disk.
            unwritten += len(chunk.rows) * target.form.n_bytes
            if unwritten >= _WRITE_EVERY:
                os.fsync(file.fileno())
                unwritten = 0


class Decoders:
    """Some worker processes that decode into one pixel file; to be used as a context.

    Args:
        target: the pixel file.
        workers: how many processes.
    """

    def __init__(self, target: PixelFile, workers: int) -> None:
        self._waiting: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[tuple[Chunk, list[Outcome]] | BaseException] = queue.SimpleQueue()
        self._workers = [_Worker(target) for _ in range(workers)]

    def __enter__(self) -> Decoders:
        for worker in self._workers:
            threading.Thread(target=self._feed, args=(worker,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Empty):  # of those that nobody waits for any more
            while True:
                self._waiting.get_nowait()
        for worker in self._workers:
            self._waiting.put(None)
            worker.stop()

    def give(self, chunk: Chunk) -> None:
        """Hand over a chunk to whichever worker is free first."""
        self._waiting.put(chunk)

    def take(self) -> tuple[Chunk, list[Outcome]]:
        """Wait for the next chunk that is finished, and what came of its files."""
        answer = self._finished.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _feed(self, worker: _Worker) -> None:
        """Hand chunks to one worker until there are no more."""
        try:
            while (chunk := self._waiting.get()) is not None:
                self._finished.put((chunk, worker.decode(chunk)))
        except BaseException as error:
            self._finished.put(error)


class _Worker:
    """One decoding process, started again when a file makes it crash."""

    def __init__(self, target: PixelFile) -> None:
        self._arguments = [str(target.path), target.form.size, target.form.channels, target.offset]
        self._stopped = False
        self._process = self._start()

    def decode(self, chunk: Chunk) -> list[Outcome]:
        """Hand over a chunk and wait for the outcomes; after a crash, file by file to find the culprit."""
        answer = self._ask(chunk)
        if answer is not None:
            return answer
        if len(chunk.paths) == 1:
            return [Outcome("crashed the decoder", 0)]
        return [self.decode(Chunk([row], [path]))[0] for row, path in zip(*chunk, strict=True)]

    def stop(self) -> None:
        """End the process."""
        self._stopped = True
        self._process.kill()
        self._process.communicate()

    def _ask(self, chunk: Chunk) -> list[Outcome] | None:
        """The worker's outcomes; None where it crashed, and then it has been started again.

        Raises:
            OSError: the pixels cannot be written, for which no image is to blame.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(chunk).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (OSError, ValueError):
            line = b""
        if line.endswith(b"\n"):
            answer = json.loads(line)
            if isinstance(answer, dict):
                raise OSError(answer["errno"], answer["why"], self._arguments[0])
            return [Outcome(*outcome) for outcome in answer]
        if not self._stopped:
            self.stop()
            self._stopped = False
            self._process = self._start()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        package_folder = str(Path(__file__).resolve().parents[3])
        program = (
            f"import sys; sys.path.insert(0, {package_folder!r}); "
            "from autonovel.data.reading.workers import serve; serve()"
        )
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program, json.dumps(self._arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # image libraries print warnings there that nobody can use
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )


def serve() -> None:
    """What a worker process does: answer chunks, one line of JSON each, until its input ends."""
    path, size, channels, offset = json.loads(sys.argv[1])
    target = PixelFile(Path(path), Form(size, channels), offset)
    with target.path.open("r+b") as file:
        for line in sys.stdin.buffer:
            answer: object
            try:
                answer = decode_chunk(Chunk(*json.loads(line)), file, target)
                file.flush()
            except OSError as error:
                answer = {"errno": error.errno, "why": error.strerror}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
