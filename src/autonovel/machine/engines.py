"""One task for each of many items, in processes of this machine or on a Ray cluster; a worker that dies costs only time."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from autonovel.base.errors import InputError, TrainingError

DEATHS = 3
"""So many workers may die of an item before it is given up."""
NO_WORKER = 600.0
"""Seconds that a cluster may be without any worker."""


class WorkerTask(NamedTuple):
    """What is done with every item.

    Attributes:
        maker: 'module:function', which makes the function of an item in each worker, once.
        given: what the maker is given; like the items it travels to the workers, so both are plain values of JSON.
        gpus: as many as it has use for; 0 where it works on a CPU.
        most: workers on this machine at most; 0 where that is left open.
    """

    maker: str
    given: Any
    gpus: int = 0
    most: int = 0

    def made(self) -> Callable[[Any], bytes]:
        """The function, in a worker."""
        module, _, name = self.maker.partition(":")
        made: Callable[[Any], bytes] = getattr(importlib.import_module(module), name)(self.given)
        return made


Finished = tuple[int, bytes | None]
"""The number of an item and what its task gave; None where every worker died of it."""
Engine = Callable[[WorkerTask, Sequence[Any]], Iterator[Finished]]


def engine_named(name: str, address: str | None = None) -> Engine:
    """'local', or 'ray' with the address of a cluster; without one, Ray starts on this machine."""
    if name == "ray":
        return lambda task, items: _on_ray(task, items, address)
    if address is not None:
        raise InputError("An address is that of a Ray cluster; choose the engine ray with it.")
    return on_this_machine


# ------------------------------------------------------------------------------------------------ this machine


def on_this_machine(task: WorkerTask, items: Sequence[Any]) -> Iterator[Finished]:
    """What becomes of the items, as they are finished: a worker for each GPU or core, and none where one would do."""
    n = min(len(items), task.gpus or cores(), task.most or len(items))
    if n == 1:
        yield from enumerate(map(task.made(), items))
        return
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[int, bytes | None] | BaseException] = queue.SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)
    workers = [_Process(task, gpu if task.gpus else None) for gpu in range(n)]

    def feed(worker: _Process) -> None:
        try:
            while (number := waiting.get()) is not None:
                finished.put((number, worker.ask(items[number])))
        except BaseException as error:
            finished.put(error)

    try:
        for worker in workers:
            threading.Thread(target=feed, args=(worker,), daemon=True).start()
        for _ in items:
            answer = finished.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        for worker in workers:
            waiting.put(None)
            worker.stop()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Process:
    """A process that answers one item after the other, started again when it dies."""

    task: WorkerTask
    gpu: int | None

    def __post_init__(self) -> None:
        self._stopped, self._process = False, self._start()

    def ask(self, item: Any) -> bytes | None:
        """What the task gives for an item; None where the process died of it again and again."""
        for _ in range(DEATHS):
            try:
                assert self._process.stdin is not None
                assert self._process.stdout is not None
                _send(self._process.stdin, json.dumps(item).encode())
                fault, answer = json.loads(_receive(self._process.stdout)), _receive(self._process.stdout)
            except (OSError, EOFError, ValueError):
                self._process.kill()
                self._process.communicate()
                if self._stopped:
                    break
                self._process = self._start()
                continue
            if fault is not None:
                _raise(fault)
            return answer
        return None

    def stop(self) -> None:
        """End the process."""
        self._stopped = True
        self._process.kill()
        with contextlib.suppress(ValueError):  # the thread that asks reads at the same time
            self._process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        package = str(Path(__file__).resolve().parents[2])
        program = f"import sys; sys.path.insert(0, {package!r}); from autonovel.machine.engines import serve; serve()"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if self.gpu is not None:
            shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            environment["CUDA_VISIBLE_DEVICES"] = shown[self.gpu] if shown != [""] else str(self.gpu)
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-P", "-c", program], env=environment, **pipes)
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it died at once, which the first question shows
            _send(process.stdin, json.dumps(self.task).encode())
        return process


def serve() -> None:
    """What a worker does: answer items until its input ends, as it does when the process that asks is killed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    questions = sys.stdin.buffer
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        task = WorkerTask(*json.loads(_receive(questions)))
        work: Callable[[Any], bytes] | None = None
        while True:
            item = json.loads(_receive(questions))
            try:
                work = work or task.made()
                answer, fault = work(item), None
            except Exception as error:
                answer, fault = b"", _told(error)
            _send(answers, json.dumps(fault).encode())
            _send(answers, answer)


def _told(error: Exception) -> tuple[str, list[Any]]:
    """An error as plain values; the process that asked raises it again."""
    if isinstance(error, OSError):
        return "OSError", [error.errno, error.strerror or str(error), error.filename and str(error.filename)]
    if isinstance(error, InputError | TrainingError):
        return type(error).__name__, [str(error)]
    return "TrainingError", [f"A worker failed ({type(error).__name__}: {' '.join(str(error).split())[:300]})."]


def _raise(fault: tuple[str, list[Any]]) -> None:
    kinds: dict[str, type[Exception]] = {"InputError": InputError, "TrainingError": TrainingError, "OSError": OSError}
    raise kinds[fault[0]](*fault[1])


def _send(file: BinaryIO | Any, content: bytes) -> None:
    file.write(struct.pack("<Q", len(content)))
    file.write(content)
    file.flush()


def _receive(file: BinaryIO | Any) -> bytes:
    head = file.read(8)
    content = file.read(struct.unpack("<Q", head)[0]) if len(head) == 8 else b""
    if len(head) < 8 or len(content) < struct.unpack("<Q", head)[0]:
        raise EOFError
    return bytes(content)


# ------------------------------------------------------------------------------------------------ Ray


def _on_ray(task: WorkerTask, items: Sequence[Any], address: str | None) -> Iterator[Finished]:
    """The same by actors of Ray, one for each GPU or CPU of the cluster. An actor reads what it works on, so that no reader has
    to be given a CPU beside it; one that dies with its node is replaced wherever there is room."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # workers would step back for all else
    try:
        import ray
    except ImportError:
        raise InputError("The engine ray needs Ray: pip install 'autonovel[ray]'.") from None
    here = not ray.is_initialized()
    if here:
        _connect(ray, address)
    try:
        yield from _Pool(ray, task, items).answers()
    finally:
        if here:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            ray.init(
                "local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=_STORE,
            )
        else:
            ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:160]
        where = "on this machine" if address is None else f"at {address}"
        raise InputError(f"Ray cannot be used {where} ({why}); check the address and that the cluster runs.") from None


_STORE = 512 * 2**20
"""Bytes of Ray's own memory on this machine; two answers for each worker lie in it at most."""


class _Actor:
    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self._work: Callable[[Any], bytes] | None = None

    def ready(self) -> bool:
        """Answers as soon as the actor runs."""
        return True

    def do(self, item: Any) -> tuple[bytes, tuple[str, list[Any]] | None]:
        """What the task gives, or why not."""
        try:
            self._work = self._work or self._task.made()
            return self._work(item), None
        except Exception as error:
            return b"", _told(error)


class _Pool:
    """Actors and what each of them is at work on."""

    def __init__(self, ray: Any, task: WorkerTask, items: Sequence[Any]) -> None:
        self._ray, self._items = ray, items
        there = ray.cluster_resources()
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
        on_gpus = bool(gpus) and task.gpus > 0
        need = {"num_gpus": 1, "num_cpus": 1} if on_gpus else {"num_cpus": 1}
        self._task = ray.put(task)
        self._kind = ray.remote(_Actor).options(max_restarts=0, **need)
        self._wanted = max(1, min(len(items), gpus if on_gpus else cpus))
        self._waiting = deque(range(len(items)))
        self._under_way: dict[
            Any, tuple[Any, int | None]
        ] = {}  # the answer to come, its actor, and which item it is of
        self._deaths = [0] * len(items)

    def answers(self) -> Iterator[Finished]:
        """Hand out items until each has its answer."""
        for _ in range(self._wanted):
            self._start()
        left, alone_since = len(self._items), time.monotonic()
        while left:
            done, _ = self._ray.wait(list(self._under_way), timeout=5.0)
            if not done and any(number is not None for _, number in self._under_way.values()):
                alone_since = time.monotonic()
            if time.monotonic() - alone_since > NO_WORKER:
                raise TrainingError(
                    "The cluster has given no worker for ten minutes; see that a node is free, and run again."
                )
            for reference in done:
                alone_since = time.monotonic()
                actor, number = self._under_way.pop(reference)
                answer: bytes | None
                try:
                    answered = self._ray.get(reference)
                except self._ray.exceptions.RayActorError:  # killed, or its node was
                    self._start()
                    if number is None:
                        continue
                    self._deaths[number] += 1
                    if self._deaths[number] < DEATHS:
                        self._waiting.appendleft(number)
                        continue
                    answer = None
                except self._ray.exceptions.RayError as error:  # the answer was lost with its node
                    if number is None or self._deaths[number] >= DEATHS:
                        raise TrainingError(f"Ray could not do it ({' '.join(str(error).split())[:200]}).") from None
                    self._deaths[number] += 1
                    self._waiting.appendleft(number)
                    self._hand(actor)
                    continue
                else:
                    if number is None:
                        self._hand(actor)
                        continue
                    answer, fault = answered
                    if fault is not None:
                        _raise(fault)
                    self._hand(actor)
                left -= 1
                yield number, answer

    def _start(self) -> None:
        actor = self._kind.remote(self._task)
        self._under_way[actor.ready.remote()] = (actor, None)

    def _hand(self, actor: Any) -> None:
        """The next item for an actor that has nothing to do; without one, it ends when nobody holds it any more."""
        if self._waiting:
            number = self._waiting.popleft()
            self._under_way[actor.do.remote(self._items[number])] = (actor, number)
