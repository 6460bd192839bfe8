"""Many files decoded at once, in worker processes that write straight into one file of pixels.

The workers are plain Python programs that talk over pipes, not ``multiprocessing``: a script without a main guard,
a notebook and a process that already uses the GPU can all start them, and a decoder that crashes takes only its
worker with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from autonovel.data.reading.decode import MOST_BYTES, Form, UnusableImageError, decode_square

Progress = Callable[[int, int], None]
"""Called with how many of how many images are done."""

FEW = 256
"""Up to this many files are decoded in this process: starting workers would take longer."""

_ENDS = 4096
_WRITE_EVERY = 32 * 2**20


class Verdict(NamedTuple):
    """What came of one file: why it cannot be used (empty if it can) and a print of its content to find copies by."""

    reason: str
    print: int


class Job(NamedTuple):
    """Files to decode, and the row of the pixel file for each."""

    rows: list[int]
    paths: list[str]


def decode_files(
    paths: Sequence[str],
    rows: Sequence[int],
    pixel_file: Path,
    form: Form,
    *,
    offset: int,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Verdict]:
    """Decode each file into its row of the pixel file (row r at ``offset`` + r images) and say what came of it.

    The result does not depend on the number of workers. Rows of files that cannot be used are left untouched.
    """
    workers = workers or available_cores()
    verdicts: dict[int, Verdict] = {}
    for job, answers in _answers(paths, rows, pixel_file, form, offset, workers):
        verdicts.update(zip(job.rows, answers, strict=True))
        if progress is not None:
            progress(len(verdicts), len(paths))
    return [verdicts[row] for row in rows]


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decode_job(job: Job, pixels: BinaryIO, form: Form, offset: int) -> list[Verdict]:
    """Decode the files of a job one after the other."""
    row_bytes = form.size * form.size * form.channels
    verdicts = []
    for row, path in zip(*job, strict=True):
        mark = 0
        try:
            content = read_content(path)
            mark = content_print(content)
            square = decode_square(content, form)
            pixels.seek(offset + row * row_bytes)
            pixels.write(square.tobytes())
            verdicts.append(Verdict("", mark))
        except UnusableImageError as unusable:
            verdicts.append(Verdict(str(unusable), mark))
    return verdicts


def read_content(path: str) -> bytes:
    """The bytes of a file; raises UnusableImageError with the reason."""
    try:
        with open(path, "rb") as file:
            # no more than the file has: reading makes room for all that it is asked for
            content = file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES) + 1)
    except OSError as error:
        raise UnusableImageError(f"cannot be read ({error.strerror or error})") from None
    if len(content) > MOST_BYTES:
        raise UnusableImageError(f"larger than {MOST_BYTES // 2**20} MiB")
    return content


def content_print(content: bytes) -> int:
    """A number that is the same for equal files; from length, beginning and end, so that it costs next to nothing."""
    digest = hashlib.blake2b(content[:_ENDS] + content[-_ENDS:] + str(len(content)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")


def _answers(
    paths: Sequence[str], rows: Sequence[int], pixel_file: Path, form: Form, offset: int, workers: int
) -> Iterator[tuple[Job, list[Verdict]]]:
    """Each job with its verdicts, as they come in."""
    size = max(1, min(64, len(paths) // (4 * workers)))
    starts = range(0, len(paths), size)
    jobs = [Job(list(rows[first : first + size]), list(paths[first : first + size])) for first in starts]
    if len(paths) <= FEW or workers == 1 or not sys.executable:
        with pixel_file.open("r+b") as pixels:
            for job in jobs:
                yield job, decode_job(job, pixels, form, offset)
        return
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[Job, list[Verdict]] | BaseException] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    clients = [_Worker(pixel_file, form, offset) for _ in range(min(workers, len(jobs)))]
    threads = [threading.Thread(target=_feed, args=(client, waiting, finished), daemon=True) for client in clients]
    row_bytes, unwritten = form.size * form.size * form.channels, 0
    try:
        for thread in threads:
            thread.start()
        with pixel_file.open("r+b") as pixels:
            for _ in jobs:
                answer = finished.get()
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
                # this process has nothing else to do: it sees to it that the pixels reach the disk while others come
                unwritten += len(answer[0].rows) * row_bytes
                if unwritten >= _WRITE_EVERY:
                    os.fsync(pixels.fileno())
                    unwritten = 0
    finally:
        for client in clients:
            client.stop()


def _feed(
    worker: _Worker,
    waiting: queue.SimpleQueue[Job],
    finished: queue.SimpleQueue[tuple[Job, list[Verdict]] | BaseException],
) -> None:
    try:
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            finished.put((job, worker.decode(job)))
    except BaseException as error:
        finished.put(error)


class _Worker:
    """One decoding process, started again when a file makes it crash."""

    def __init__(self, pixel_file: Path, form: Form, offset: int) -> None:
        self._arguments = [str(pixel_file), form.size, form.channels, offset]
        self._stopped = False
        self._process = self._start()

    def decode(self, job: Job) -> list[Verdict]:
        """Hand over a job and wait for the verdicts; after a crash, file by file to find the culprit."""
        answer = self._ask(job)
        if answer is not None:
            return answer
        if len(job.paths) == 1:
            return [Verdict("crashed the decoder", 0)]
        return [self.decode(Job([row], [path]))[0] for row, path in zip(*job, strict=True)]

    def stop(self) -> None:
        """End the process."""
        self._stopped = True
        self._process.kill()
        self._process.communicate()

    def _ask(self, job: Job) -> list[Verdict] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (OSError, ValueError):
            line = b""
        if line.endswith(b"\n"):
            return [Verdict(*verdict) for verdict in json.loads(line)]
        if not self._stopped:
            self.stop()
            self._stopped = False
            self._process = self._start()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        package_folder = str(Path(__file__).resolve().parents[3])
        program = f"import sys; sys.path.insert(0, {package_folder!r}); from autonovel.data.reading.workers import serve; serve()"
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program, json.dumps(self._arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # image libraries print warnings there that nobody can use
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )


def serve() -> None:
    """What a worker process does: answer jobs, one line of JSON each, until its input ends."""
    pixel_file, size, channels, offset = json.loads(sys.argv[1])
    form = Form(size, channels)
    with open(pixel_file, "r+b") as pixels:
        for line in sys.stdin.buffer:
            verdicts = decode_job(Job(*json.loads(line)), pixels, form, offset)
            pixels.flush()
            sys.stdout.buffer.write(json.dumps(verdicts).encode() + b"\n")
            sys.stdout.buffer.flush()
