"""The run folder: what is in it, and how it is read and written so that a crash leaves it whole.

::

    config.json         the whole recipe, the data, versions, seed: what makes this run this run
    metrics.jsonl       one line per epoch and stage
    STAGE.safetensors   the network after a finished stage; STAGE-2 is that of the second network, where there are several
    consensus.safetensors   which cluster of each head of several networks is which new class
    state/              what an unfinished stage needs to go on
    predictions.csv     one row per unlabelled image
    features.npy        the same rows: features, float16
    estimate.json       how many new classes there are, where that was estimated
    estimate.png        its curve
    summary.json        the result
    names.json          names that a person gave to clusters
    problems.csv        files that were left out, and why
"""

from __future__ import annotations

import csv
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from autonovel.engine import State
from autonovel.errors import InputError, TrainingError
from autonovel.machine.processes import World

_CUT_OFF = re.compile(r"\..+\.part|\.tmp\w{6}")
"""What a process that was killed while it wrote leaves behind: files under our own name for them, and under safetensors'."""


class Run:
    """A run folder.

    >>> run = load("runs/birds")                        # doctest: +SKIP
    >>> run.summary["n_new"], run.labels[:3]            # doctest: +SKIP
    (5, array([2, 2, 0]))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        state = "finished" if self.finished else "unfinished" if self.exists else "empty"
        return f"Run('{self.path}', {state})"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return os.path.exists(self.path / "config.json")  # False also for a path that no system takes

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return (self.path / "summary.json").exists()

    @property
    def config(self) -> dict[str, Any]:
        """What makes this run this run."""
        return self.read_json("config.json")

    @property
    def summary(self) -> dict[str, Any]:
        """The result."""
        if not self.finished:
            raise InputError(f"The run in {self.path} is not finished; run the same command again to go on.")
        return self.read_json("summary.json")

    @property
    def predictions(self) -> list[dict[str, str]]:
        """The rows of predictions.csv: image, cluster, name, probability, known."""
        with (self.path / "predictions.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The cluster of every unlabelled image, in the order of the input."""
        return np.array([int(row["cluster"]) for row in self.predictions], dtype=np.int64)

    @property
    def features(self) -> npt.NDArray[np.float16]:
        """The features of every unlabelled image, in the order of the input."""
        return np.asarray(np.load(self.path / "features.npy", mmap_mode="r"))

    @property
    def names(self) -> dict[int, str]:
        """Names that a person gave to clusters."""
        return (
            {int(k): v for k, v in self.read_json("names.json").items()} if (self.path / "names.json").exists() else {}
        )

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per epoch and stage."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        entries = (_entry(line) for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
        return [entry for entry in entries if entry is not None]

    def name(self, cluster: int, name: str) -> Run:
        """Give a cluster a name, in names.json and predictions.csv."""
        n_new = self.summary["n_new"]
        if not 0 <= cluster < n_new:
            raise InputError(f"There is no cluster {cluster}; this run has clusters 0 to {n_new - 1}.")
        names = {**self.names, cluster: name}
        rows = self.predictions
        for row in rows:
            if row["known"] == "0" and int(row["cluster"]) == cluster:
                row["name"] = name
        self.write_rows("predictions.csv", PREDICTION_FIELDS, [[row[f] for f in PREDICTION_FIELDS] for row in rows])
        self.write_json("names.json", {str(k): v for k, v in sorted(names.items())})
        return self

    # Writing: each file appears whole or not at all.

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        with self._whole(name) as path:
            path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def write_rows(self, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Write a CSV file."""
        with self._whole(name) as path, path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a .npy file."""
        with self._whole(name) as path, path.open("wb") as file:
            np.save(file, array)

    def write_tensors(self, name: str, tensors: State, metadata: dict[str, str] | None = None) -> None:
        """Write a .safetensors file."""
        ready = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        with self._whole(name) as path:
            path.touch()
            usual = path.stat().st_mode
            save_file(ready, path, metadata)
            path.chmod(stat.S_IMODE(usual))  # as safetensors leaves it, nobody but its owner may read it

    def read_tensors(self, name: str) -> tuple[State, dict[str, str]]:
        """Tensors and metadata of a .safetensors file."""
        try:
            with safe_open(self.path / name, "pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"The file {self.path / name} cannot be read ({error}); delete it to compute it again."
            ) from error

    def read_metadata(self, name: str) -> dict[str, str]:
        """The metadata of a .safetensors file, without its tensors."""
        try:
            with safe_open(self.path / name, "pt") as file:
                return dict(file.metadata() or {})
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"The file {self.path / name} cannot be read ({error}); delete it to compute it again."
            ) from error

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.path / name).exists()

    def remove(self, name: str) -> None:
        """Delete a file, if there is one of this name."""
        (self.path / name).unlink(missing_ok=True)

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with _written(self.path / "metrics.jsonl") as path, path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def forget_metrics(self, stage: str, since: int) -> None:
        """Drop the lines of epochs of a stage that will be done again (those after the kept state)."""
        kept = "".join(json.dumps(m) + "\n" for m in self.metrics if m["stage"] != stage or m["epoch"] < since)
        if self.has("metrics.jsonl") and (self.path / "metrics.jsonl").read_bytes() != kept.encode():
            with self._whole("metrics.jsonl") as path:
                path.write_text(kept, encoding="utf-8")

    @contextmanager
    def claim(self, config: dict[str, Any]) -> Iterator[None]:
        """Make the folder this run's own: refuse one that holds another run or that another process works in."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise InputError(f"{self.path} is a file; give a folder for the run.")
            if self.exists:
                self._refuse_other(config)
            # a run that ended before its first file was written leaves the folder of its lock
            elif self.path.exists() and any(
                entry.name != "state" and not _CUT_OFF.fullmatch(entry.name) for entry in self.path.iterdir()
            ):
                raise InputError(f"The folder {self.path} is not empty and holds no run; choose another --out.")
            (self.path / "state").mkdir(parents=True, exist_ok=True)
            lock = (self.path / "state" / "lock").open("w")
        except OSError as error:
            raise InputError(
                f"The folder {self.path} cannot be written ({error.strerror}); choose another --out."
            ) from error
        with lock:
            _lock(lock, self.path)
            for entry in (*self.path.iterdir(), *(self.path / "state").iterdir()):
                if _CUT_OFF.fullmatch(entry.name):
                    entry.unlink()
            if not self.exists:
                self.write_json("config.json", config)
            yield

    def _refuse_other(self, config: dict[str, Any]) -> None:
        mine, theirs = _flat(config["run"]), _flat(self.config.get("run", {}))
        differ = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
        if differ:
            shown = "; ".join(f"{key} is {theirs.get(key)!r} there, {mine.get(key)!r} now" for key in differ[:5])
            more = f" and {len(differ) - 5} more" if len(differ) > 5 else ""
            raise InputError(
                f"The folder {self.path} holds another run ({shown}{more}); choose another --out or the same settings."
            )

    def read_json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file."""
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(f"There is no run in {self.path} ({name} is missing).") from error
        except ValueError as error:
            raise InputError(f"The file {self.path / name} is damaged ({error}).") from error
        return content

    @contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        target = self.path / name
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        with _written(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                yield part
                os.replace(part, target)
            finally:
                part.unlink(missing_ok=True)


class SharedRun(Run):
    """The run folder of several processes: the first one reads and writes it, and tells the others what it read.

    So the folder need not be on a disk that all machines see.
    """

    def __init__(self, path: str | os.PathLike[str], world: World) -> None:
        super().__init__(path)
        self._world, self._own = world, Run(path)

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self._world.from_first(lambda: self._own.finished)

    @property
    def predictions(self) -> list[dict[str, str]]:
        """The rows of predictions.csv."""
        return self._world.from_first(lambda: self._own.predictions)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry per epoch and stage."""
        return self._world.from_first(lambda: self._own.metrics)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._world.from_first(lambda: self._own.has(name))

    def read_json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file."""
        return self._world.from_first(lambda: self._own.read_json(name))

    def read_metadata(self, name: str) -> dict[str, str]:
        """The metadata of a .safetensors file."""
        return self._world.from_first(lambda: self._own.read_metadata(name))

    def read_tensors(self, name: str) -> tuple[State, dict[str, str]]:
        """Tensors and metadata of a .safetensors file."""
        return self._world.from_first(lambda: self._own.read_tensors(name))

    @contextmanager
    def claim(self, config: dict[str, Any]) -> Iterator[None]:
        """Make the folder this run's own, and see that all processes mean the same run."""
        theirs, mine = _flat(self._world.from_first(lambda: config["run"])), _flat(config["run"])
        if differ := sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)):
            raise InputError(
                f"Process {self._world.rank} and the first one do not have the same {differ[0]}; "
                "give all of them the same images and options."
            )
        with ExitStack() as stack:
            self._world.from_first(lambda: stack.enter_context(self._own.claim(config)))
            yield

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file."""
        if self._world.first:
            self._own.write_json(name, content)

    def write_rows(self, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Write a CSV file."""
        if self._world.first:
            self._own.write_rows(name, header, rows)

    def write_array(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write a .npy file."""
        if self._world.first:
            self._own.write_array(name, array)

    def write_tensors(self, name: str, tensors: State, metadata: dict[str, str] | None = None) -> None:
        """Write a .safetensors file."""
        if self._world.first:
            self._own.write_tensors(name, tensors, metadata)

    def remove(self, name: str) -> None:
        """Delete a file."""
        if self._world.first:
            self._own.remove(name)

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        if self._world.first:
            self._own.append_metrics(entry)

    def forget_metrics(self, stage: str, since: int) -> None:
        """Drop the lines of epochs that will be done again."""
        if self._world.first:
            self._own.forget_metrics(stage, since)


def open_run(path: str | os.PathLike[str], world: World) -> Run:
    """The folder for a run of these processes."""
    return SharedRun(path, world) if world.several else Run(path)


PREDICTION_FIELDS = ("image", "cluster", "name", "probability", "known")


class StageCheckpoint:
    """The state of an unfinished stage, in state/STAGE.safetensors."""

    def __init__(self, run: Run, stage: str) -> None:
        self._run, self._name = run, f"state/{stage}.safetensors"

    @property
    def epochs_done(self) -> int:
        """How many epochs the kept state has behind it; 0 where there is none."""
        return int(self._run.read_metadata(self._name)["epochs_done"]) if self._run.has(self._name) else 0

    def load(self) -> tuple[State, int] | None:
        """State and number of epochs done, if any."""
        if not self._run.has(self._name):
            return None
        state, metadata = self._run.read_tensors(self._name)
        return state, int(metadata["epochs_done"])

    def save(self, state: State, epochs_done: int) -> None:
        """Keep this state instead of the one before."""
        self._run.write_tensors(self._name, state, {"epochs_done": str(epochs_done)})

    def clear(self) -> None:
        """Forget it: the stage is finished."""
        self._run.remove(self._name)


def load(path: str | os.PathLike[str]) -> Run:
    """The run in this folder."""
    run = Run(path)
    if not run.exists:
        raise InputError(f"There is no run in {run.path} (config.json is missing).")
    return run


def versions() -> dict[str, str]:
    """What the run was made with."""
    import platform

    import autonovel

    return {"autonovel": autonovel.__version__, "torch": torch.__version__, "python": platform.python_version()}


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """Say in a sentence why a file of the run could not be written: a full disk, most often."""
    try:
        yield path
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"{path} cannot be written ({reason}); make room for it, and the same command goes on from the last kept state."
        ) from error


def _entry(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None for one that a crash or a full disk left incomplete, whose epoch is done again."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v
            for name, part in value.items()
            for k, v in _flat(part, f"{prefix}.{name}" if prefix else str(name)).items()
        }
    return {prefix: list(value) if isinstance(value, tuple) else value}


def _lock(file: Any, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two processes in one folder are not noticed there
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InputError(f"Another process is working in {path}; wait for it or choose another --out.") from error
