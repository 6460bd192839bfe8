"""The files of a run folder: read as they are, written so that each appears whole or not at all."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, TrainingError, option
from autonovel.machine.disk import CUT_OFF, refuse_other_folder, whole
from autonovel.runs import checksums

FORMAT = 3
"""The format of the folders that this version writes, and the only one that it reads."""

CHECKSUMS = {
    "data.fingerprint": "images or their labels differ",
    "data.pixels": "images differ",
    "data.labelled": "labelled images differ",
}
"""What to say where these entries of config.json differ, whose values tell a person nothing."""


class RunFiles:
    """A folder and the files in it, whatever they mean."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._verified: dict[str, tuple[int, ...]] = {}
        self._sums: tuple[tuple[int, ...], dict[str, frozenset[str]]] = ((), {})

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return os.path.exists(self.path / "config.json")  # False also for a path that no system takes

    def has(self, name: str) -> bool:
        """Whether there is a file of this name; refused where a finished run had one and it has gone."""
        if os.path.lexists(self.path / name):
            return True
        if name != "summary.json" and name in self.checksums:
            raise damaged(self, name, "it is missing")
        return False

    def file(self, name: str) -> Path:
        """The path of a file of the run, which may not be there yet.

        A folder may be a stranger's, or have rotted: refused are a link, which could lead anywhere, what is no file (a pipe
        would never end), and a file that is not as the run wrote it.
        """
        path = self._no_link(name)
        try:
            status = path.stat()
        except OSError:  # whoever opens it says why
            return path
        if not stat.S_ISREG(status.st_mode):
            raise damaged(self, name, "it is no file")
        self._verify(name, path, (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))
        return path

    def _no_link(self, name: str) -> Path:
        path = self.path
        for part in Path(name).parts:
            path = path / part
            if path.is_symlink():
                raise InputError(
                    f"{path} is a link, which may lead out of the folder; put what it leads to in its place."
                )
        return path

    def _verify(self, name: str, path: Path, version: tuple[int, ...]) -> None:
        if name == checksums.FILE or self._verified.get(name) == version:
            return
        wanted = self.checksums.get(name)
        if wanted is not None:
            if checksums.digest_of(path) not in wanted:
                raise damaged(self, name, "it is not as the run wrote it")
            self._verified[name] = version

    @property
    def checksums(self) -> dict[str, frozenset[str]]:
        """The digest of every file as the run wrote it; empty where the run is not finished, or none were kept."""
        if not self.has("summary.json"):  # what is there may be of a run that was finished once and goes on
            return {}
        path = self._no_link(checksums.FILE)
        try:
            status = path.stat()
        except OSError:
            return {}
        version = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        if self._sums[0] != version:
            try:
                self._sums = version, checksums.parse(self.file(checksums.FILE).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise self._error(checksums.FILE, error) from error
        return self._sums[1]

    def _error(self, name: str, error: Exception) -> Exception:
        """What to raise of a file that cannot be read."""
        return (
            error if isinstance(error, InputError) else damaged(self, name, getattr(error, "strerror", None) or error)
        )

    def read_json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file."""
        try:
            content: dict[str, Any] = json.loads(self.file(name).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise no_run(self, name) from error
        except (OSError, ValueError, RecursionError) as error:
            raise self._error(name, error) from error
        if not isinstance(content, dict):
            raise InputError(f"The file {self.path / name} is not of a run; give the folder of one.")
        return content

    def read_columns(self, name: str, header: Sequence[str]) -> list[list[str]]:
        """The columns of a CSV file; the file must have this header."""
        try:
            with self.file(name).open(newline="", encoding="utf-8") as file:
                rows = csv.reader(file)
                if (first := next(rows, [])) != list(header):
                    raise damaged(self, name, f"its header is {','.join(first)!r}, not {','.join(header)!r}")
                columns: list[list[str]] = [[] for _ in header]
                # in parts: a million short lists at once would cost more to look after than to read
                while part := list(islice(rows, 10_000)):
                    for column, (_, *values) in zip(columns, zip(header, *part, strict=True), strict=True):
                        column += values
        except FileNotFoundError as error:
            raise missing(self, name) from error
        except (OSError, ValueError, csv.Error) as error:
            raise self._error(name, error) from error
        return columns

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per epoch and stage."""
        if not self.has("metrics.jsonl"):
            return []
        text = self.file("metrics.jsonl").read_text(encoding="utf-8", errors="replace")
        entries = (_entry(line) for line in text.splitlines())
        return [entry for entry in entries if entry is not None]

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        with self.whole(name) as path:
            path.write_text(_as_text(content), encoding="utf-8")

    def write_last(self, name: str, content: Any) -> None:
        """Write the last file of a run, a JSON file; before it, what all files were, this one too."""
        with written(self.path / checksums.FILE):
            digests = {other: {checksums.digest_of(self.path / other)} for other in checksums.files_of(self.path)}
        digests[name] = {hashlib.sha256(_as_text(content).encode()).hexdigest()}
        self._write_checksums(digests)
        self.write_json(name, content)

    def _write_checksums(self, digests: Mapping[str, Collection[str]]) -> None:
        with self.whole(checksums.FILE) as path:
            path.write_text(checksums.as_text(digests), encoding="utf-8")

    def write_rows(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file."""
        with self.whole(name) as path, path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)

    def read_array(self, name: str, kinds: str, ndim: int) -> npt.NDArray[Any]:
        """The content of a .npy file: an array of one of these kinds of numbers with so many dimensions, mapped."""
        try:
            array: npt.NDArray[Any] = np.asarray(np.load(self.file(name), mmap_mode="r"))
        except FileNotFoundError as error:
            raise missing(self, name) from error
        except InputError:
            raise
        except Exception as error:  # numpy reads the head of a file as Python, in which anything can be wrong
            raise damaged(self, name, error) from error
        if array.ndim != ndim or array.dtype.kind not in kinds:
            raise damaged(self, name, f"it holds {array.dtype} {array.shape}, which no run writes")
        return array

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a .npy file."""
        with self.whole(name) as path, path.open("wb") as file:
            np.save(file, array)

    def write_arrays(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write a .npz file."""
        with self.whole(name) as path, path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def remove(self, name: str) -> None:
        """Delete a file, if there is one of this name."""
        self._no_link(name).unlink(missing_ok=True)

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with written(self._no_link("metrics.jsonl")) as path, path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def forget_metrics(self, stage: str, since: int) -> None:
        """Drop the lines of epochs of a stage that will be done again (those after the kept state)."""
        kept = "".join(json.dumps(m) + "\n" for m in self.metrics if m["stage"] != stage or m["epoch"] < since)
        if self.has("metrics.jsonl") and self.file("metrics.jsonl").read_bytes() != kept.encode():
            with self.whole("metrics.jsonl") as path:
                path.write_text(kept, encoding="utf-8")

    @contextmanager
    def claim(self, config: dict[str, Any], keep: Sequence[str] = ()) -> Iterator[None]:
        """Make the folder this run's own: refuse one that holds another run or that another process works in.

        A new folder is removed where the input turns out to be unusable.

        Args:
            config: what config.json says of this run; its part ``run`` must be the folder's.
            keep: files that are worth more than a tidy end: with one of them, the folder stays.
        """
        try:
            if self.path.exists() and not self.path.is_dir():
                raise InputError(f"{self.path} is a file; give a folder for the run.")
            if self.exists:
                check_format(self)
                self._refuse_other(config)
            elif self.path.exists():
                refuse_other_folder(self.path)
            state = self._no_link("state/lock").parent
            is_new = not self.exists and not state.exists()  # in a folder of that name may be anything
            state.mkdir(parents=True, exist_ok=True)
            file = self.file("state/lock").open("w")
        except OSError as error:
            raise InputError(
                f"The folder {self.path} cannot be written ({error.strerror}); choose another {option('out')}."
            ) from error
        with file:
            if not lock(file, wait=False):
                raise InputError(
                    f"Another process is working in {self.path}; wait for it or choose another {option('out')}."
                )
            for entry in (*self.path.iterdir(), *state.iterdir()):
                if CUT_OFF.fullmatch(entry.name) and (entry.is_symlink() or entry.is_file()):
                    entry.unlink()
            if not self.exists:
                self.write_json("config.json", {"format": FORMAT, **config})
            try:
                yield
            except InputError:
                if is_new and not any(map(self.has, keep)):
                    shutil.rmtree(self.path, ignore_errors=True)
                raise

    def _refuse_other(self, config: dict[str, Any]) -> None:
        mine, theirs = flat(config["run"]), flat(self.read_json("config.json").get("run", {}))
        if differ := different(mine, theirs):
            shown = "; ".join(
                CHECKSUMS.get(key) or f"{key} is {theirs.get(key)!r} there, {mine.get(key)!r} now" for key in differ[:5]
            )
            more = f" and {len(differ) - 5} more" if len(differ) > 5 else ""
            raise InputError(
                f"The folder {self.path} holds another run ({shown}{more}); choose another {option('out')} or the same settings."
            )

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        """A path to write to; the file moves to its place when it is complete."""
        target = self._no_link(name)
        with written(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            known, digest = self.checksums, ""
            with whole(target) as part:
                yield part
                if name in known and (digest := checksums.digest_of(part)) not in known[name]:
                    # both count until the new file is in its place, so that a kill in between spoils nothing
                    self._write_checksums({**known, name: known[name] | {digest}})
            if digest and known[name] != {digest}:
                self._write_checksums({**known, name: {digest}})


def check_format(run: RunFiles) -> None:
    """Refuse a folder that another version wrote."""
    config = run.read_json("config.json")
    if not isinstance(config.get("run"), dict):
        raise InputError(f"The file {run.path / 'config.json'} is not of a run; give the folder of one.")
    number = config.get("format", 1)
    if number != FORMAT:
        older = isinstance(number, int) and number < FORMAT
        way_out = "run it again, or install the version that wrote it" if older else "install a newer one"
        raise InputError(
            f"The run in {run.path} has format {number!r}, and this version of autonovel reads format {FORMAT}; {way_out}."
        )


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, with names like ``recipe.joint.epochs``; as JSON would give them back."""
    if isinstance(value, Mapping):
        return {
            k: v
            for name, part in value.items()
            for k, v in flat(part, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: list(value) if isinstance(value, tuple) else value}


def different(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The names of what differs."""
    return sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Say in a sentence why a file of the run could not be written: a full disk, most often."""
    try:
        yield path
    except OSError as error:
        raise TrainingError(cannot_be_written(path, error)) from error


def cannot_be_written(path: object, error: OSError) -> str:
    """What to say of a file that was to be written."""
    why = error.strerror or " ".join(str(error).split())[:200]
    return f"{path} cannot be written ({why}); make room for it or allow writing, and give the same command again."


def lock(file: IO[Any], *, wait: bool) -> bool:
    """Take the lock of an open file until it is closed; False where another process has it and waiting is not wanted.

    Windows and some network disks have no such locks; two processes in one folder are not noticed there.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
            raise
    return True


def _entry(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None for one that a crash or a full disk left incomplete, whose epoch is done again."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _as_text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def no_run(run: RunFiles, lacking: str) -> InputError:
    """The error for a folder that lacks a file which every run has."""
    given = f"give the folder that discover or cluster wrote ({option('out')})"
    return InputError(f"There is no run in {run.path} ({lacking} is missing); {given}.")


def unfinished(run: RunFiles) -> InputError:
    """The error for a run that is not finished."""
    return InputError(f"The run in {run.path} is not finished; run the same command again to continue.")


def damaged(run: RunFiles, name: str, why: object) -> InputError:
    """The error for a file that is not as it was written."""
    return InputError(f"The file {run.path / name} is damaged ({why}); put back a copy of it, or run again.")


def missing(run: RunFiles, name: str) -> InputError:
    """The error for a missing file that every finished run has."""
    return damaged(run, name, "it is missing") if run.has("summary.json") else unfinished(run)
