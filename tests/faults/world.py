"""A small world in which every command has something to do: pictures, a finished run, and copies of both to be broken."""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from autonovel.cli.main import VERBS

PATIENCE = 120.0
"""Seconds until a command counts as hanging: far more than any of these takes on a busy machine."""

COUNT, KILL, TEAR, FAIL, SHORT = range(5)
"""What faults.c can do at a call: nothing but count, end the process, end it in the middle of a write, fail, write half."""

TINY = (
    *("--recipe", "digits", "--preset", "fast", "--method", "autonovel", "--device", "cpu", "--pile", "new"),
    *(
        "--model.backbone",
        "small",
        "--model.width",
        "4",
        "--model.networks",
        "1",
        "--model.size",
        "16",
        "--model.head",
        "linear",
    ),
    *("--pretrain.method", "none", "--supervised.epochs", "2", "--supervised.batch", "8"),
    *("--joint.objective", "pairs", "--joint.epochs", "3", "--joint.batch", "8"),
)


REPRODUCE = (
    *("reproduce", "ablation", "incremental", "--rows", "full", "dtc-ss", "--scale", "small", "--seeds", "1"),
    *("--device", "cpu", "--try", "model.width=2", "joint.epochs=2", "dtc.epochs=2", "dtc.fit-epochs=1"),
    *("pretrain.epochs=1", "supervised.epochs=1"),
)

NETWORK = ("--backbone", "run/joint.safetensors", "--device", "cpu")


def draw(folder: Path, kind: int, count: int, seed: int, side: int = 16) -> None:
    """Pictures of one kind: a bright bar at a place of its own."""
    folder.mkdir(parents=True)
    chance, wide = np.random.default_rng(seed), side // 8
    for number in range(count):
        pixels = chance.integers(0, 60, (side, side, 3), dtype=np.uint8)
        pixels[wide * kind : wide * kind + 3, :, kind % 3] += 180
        Image.fromarray(pixels).save(folder / f"{kind}-{number}.png")


class Outcome(NamedTuple):
    """How a command ended: its status (negative for a signal), what it said, how long it took, what it wrote."""

    status: int
    said: str
    seconds: float
    calls: int


class Zygote:
    """Starts commands in a process that has everything imported (see zygote.py)."""

    def __init__(self, scratch: Path, library: Path | None, cache: Path) -> None:
        self._scratch, self._library = scratch, library
        command = [sys.executable, "-m", "tests.faults.zygote", *([str(library)] if library else [])]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=Path(__file__).parents[2],
            bufsize=0,  # a line that waits in a buffer is one that select does not see
        )  # fmt: skip
        assert self._read(PATIENCE) == {"ready": True}

    def run(
        self,
        words: list[str],
        folder: Path,
        *,
        kind: int = COUNT,
        at: int = -1,
        error: int = 0,
        kill_after: float = -1.0,
    ) -> Outcome:
        """Run a command in a folder, perhaps with a fault at a call, or a kill after some seconds."""
        said, count = self._scratch / "said", self._scratch / "count"
        count.unlink(missing_ok=True)
        order = {"words": words, "folder": str(folder), "said": str(said), "count": str(count), "under": str(folder)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order | {"kind": kind, "at": at, "error": error}).encode() + b"\n")
        self._process.stdin.flush()
        process = self._read(PATIENCE)["process"]
        done = self._read(kill_after) if kill_after >= 0 else None
        if done is None:
            if kill_after >= 0:
                with suppress(ProcessLookupError):  # it may have ended in this moment
                    os.kill(process, signal.SIGKILL)
            done = self._read(PATIENCE)
        if done is None:
            os.kill(process, signal.SIGKILL)
            raise TimeoutError(f"{' '.join(words)} hangs: {said.read_text(errors='replace')}")
        calls = int(count.read_text() or 0) if count.exists() else 0  # empty where it was killed as it wrote this
        return Outcome(done["status"], said.read_text(errors="replace"), done["seconds"], calls)

    def _read(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


def compiled(folder: Path) -> Path | None:
    """The library that lets calls fail; None where there is no C compiler or no such loader."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library, source = folder / "faults.so", Path(__file__).with_name("faults.c")
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=False)
    return library if done.returncode == 0 else None


@dataclass(frozen=True)
class Case:
    """A command in the world.

    Attributes:
        words: what is typed, in the folder of the world.
        results: the files and folders that it makes or changes.
        again: what is typed after a fault; the same where it is empty.
        once: whether a second time does it a second time, as an edit does: then it is not repeated when it was kept.
        kills: how often the long tests kill it.
        some_writes: how many of its writes fail there; each of them where it is 0.
        slow: each of these fails in one way, in turns; in every way where it is not slow.
    """

    words: tuple[str, ...]
    results: tuple[str, ...]
    again: tuple[str, ...] = ()
    once: bool = False
    kills: int = 6
    some_writes: int = 0
    slow: bool = False


def _training(*words: str, results: tuple[str, ...] = ("new",), kills: int = 6, some_writes: int = 12) -> Case:
    return Case(words, results, kills=kills, some_writes=some_writes, slow=True)


def _edit(*words: str) -> Case:
    return Case((words[0], "run", *words[1:]), ("run",), once=True)


def _export(to: str, *more: str) -> Case:
    words = ("export", "run", "--to", to, *more)
    return Case(words, (to.split("/")[0],), (*words, "--overwrite"))


CASES: Mapping[str, Case] = {
    "discover": _training("discover", "known", "pile", "--out", "new", "--n-new", "2", *TINY, some_writes=0),
    "estimate": _training("estimate", "known", "pile", "--out", "new", *TINY, "--estimate.max-new", "5"),
    "cluster": _training("cluster", "pile", "--out", "new", "--k", "2", *TINY),
    "next round": _training("discover", "--from", "named", "more", "--out", "new", "--n-new", "2", *TINY),
    "tune": _training(
        *(
            "tune",
            "known four",
            "pile",
            "--out",
            "new",
            "--search",
            "joint.lr=0.1,0.05",
            "--splits",
            "1",
            "--hide",
            "2",
        ),
        *TINY,
    ),
    "reproduce": _training(*REPRODUCE, "--out", "new", "--results", "new/rows", kills=10),
    "demo": _training(
        *("demo", "--out", "new", "--device", "cpu", "--model.width", "2", "--model.networks", "1"),
        *("--pretrain.method", "none", "--supervised.epochs", "1", "--joint.epochs", "1"),
        kills=2,
        some_writes=2,
    ),
    "describe": Case(("describe", "pile", "--out", "new", *NETWORK), ("new",)),
    "describe in workers": _training("describe", "shards", "--out", "new", *NETWORK, kills=3, some_writes=3),
    "name": _edit("name", "0", "heron"),
    "merge": _edit("merge", "0", "1"),
    "split": _edit("split", "0", "2"),
    "move": _edit("move", "1", "pile/2-0.png"),
    "mark": _edit("mark", "0", "not a class"),
    "dissolve": _edit("dissolve", "0"),
    "undo": Case(("undo", "named"), ("named",), once=True),
    "redo": Case(("redo", "undone"), ("undone",), once=True),
    "regroup": _edit("regroup", "--n-new", "3"),
    "report": Case(("report", "run"), ("run",)),
    "predict csv": Case(("predict", "run", "more", "--to", "found.csv"), ("found.csv",)),
    "predict jsonl": Case(("predict", "run", "more", "--to", "found.jsonl"), ("found.jsonl",)),
    "predict parquet": Case(("predict", "run", "more", "--to", "found.parquet"), ("found.parquet",)),
    "export folders": _export("sorted"),
    "export links": _export("sorted", "--how", "link"),
    "export move": Case(
        ("export", "run", "--to", "sorted", "--how", "move", "--yes"),
        ("sorted", "pile"),
        ("export", "run", "--to", "sorted", "--how", "move", "--yes", "--overwrite"),
    ),
    "export csv": _export("out/labels.csv", "--format", "csv"),
    "export coco": _export("out", "--format", "coco"),
    "export parquet": _export("out", "--format", "parquet"),
    "export cvat": _export("out", "--format", "cvat"),
    "export label-studio": _export("out", "--format", "label-studio"),
    "export safetensors": _export("out", "--format", "safetensors"),
}
"""Every command that writes, by a name that begins with the verb."""

WRITES_NOTHING = frozenset({"show", "browse", "verify", "recipes", "backbones", "data", "doctor", "check"})
"""Commands that leave no file of the user's behind (browse: tests/report/test_kill.py; data: its own tests)."""


def missing_verbs() -> set[str]:
    """Commands that no case covers: a new one must join."""
    covered = {case.words[0] for case in CASES.values()}
    return set(VERBS) - covered - WRITES_NOTHING


def make_world(folder: Path, zygote: Callable[..., Outcome]) -> Path:
    """The world whole: copy it before you break it."""
    folder.mkdir(parents=True)
    for kind in (0, 1):
        draw(folder / "known" / f"kind {kind}", kind, 8, seed=kind)
        draw(folder / "drawn", kind + 2, 8, seed=kind + 2)
        for file in sorted((folder / "drawn").iterdir()):
            (folder / "pile").mkdir(exist_ok=True)
            file.rename(folder / "pile" / file.name)
        (folder / "drawn").rmdir()
    for kind in range(4):
        draw(folder / "known four" / f"kind {kind}", kind, 6, seed=20 + kind)
    draw(folder / "more", 2, 5, seed=9)
    (folder / "shards").mkdir()
    for name in "abc":
        with tarfile.open(folder / "shards" / f"{name}.tar", "w") as tar:
            for file in sorted((folder / "more").iterdir()):
                tar.add(file, f"{name}-{file.name}")

    def call(*words: str) -> None:
        done = zygote(list(words), folder)
        assert done.status == 0, done

    call("discover", "known", "pile", "--out", "run", "--n-new", "2", *TINY)
    call("describe", "pile", "--out", "described", *NETWORK)
    call("describe", "known", "--labelled", "--out", "described known", *NETWORK)
    shutil.copytree(folder / "run", folder / "named")
    call("name", "named", "0", "heron")
    call("name", "named", "1", "stork")
    shutil.copytree(folder / "named", folder / "undone")
    call("undo", "undone")
    return folder


# ------------------------------------------------------------------------------------------------ what came out


def results(folder: Path, case: Case) -> dict[str, Any]:
    """What a command has made, without what differs from time to time: seconds, dates, digests of these."""
    found: dict[str, Any] = {}
    for name in case.results:
        path = folder / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() or file.is_symlink():
                found[file.relative_to(folder).as_posix()] = _content(file)
    return {name: content for name, content in found.items() if content is not None}


_LEFT_OUT = frozenset({"checksums.sha256", "edits.json", "lock", "report.html", "clusters.png", "README.md"})


def _content(file: Path) -> Any:
    if file.is_symlink():
        return os.readlink(file)
    if file.name in _LEFT_OUT or file.suffix == ".lock" or file.name.startswith("."):
        return None
    content = file.read_bytes()
    if file.suffix in (".json", ".jsonl"):
        lines = content.splitlines(keepends=True) if file.suffix == ".jsonl" else [content]
        # what a kill cut off does not count
        try:
            return [
                _timeless(json.loads(line)) for line in lines if line.endswith(b"\n") and line.strip(b"\0\n")
            ] or None
        except (ValueError, RecursionError):
            return content
    if file.suffix == ".npz":
        with np.load(io.BytesIO(content)) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
    if file.suffix == ".safetensors":
        from safetensors.numpy import load

        return {name: (value.dtype.str, value.tobytes()) for name, value in load(content).items()}
    if file.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(io.BytesIO(content)).to_pylist()
    return content


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        timed = ("seconds", "at", "check", "digest", "question")  # the last knows inodes
        return {key: _timeless(part) for key, part in value.items() if key not in timed}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def leftovers(folder: Path) -> list[str]:
    """Unfinished files, anywhere in the world."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*")]


def is_a_sentence(outcome: Outcome) -> bool:
    """Whether a command that failed said so in its last line, and nothing of Python's."""
    last = outcome.said.strip().splitlines()[-1:] or [""]
    return "Traceback" not in outcome.said and last[0].startswith("autonovel: ") and last[0].rstrip().endswith(".")


def whole_world(world: Path, to: Path) -> Path:
    """A copy to be broken."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(world, to, symlinks=True)
    return to


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
