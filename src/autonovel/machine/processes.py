"""Several processes, started by torchrun, that train one model together.

:func:`join` gives a :class:`World`, which is handed to whatever works with the other processes (as ``Mode.world`` for most of
them); the default everywhere is :data:`ALONE`. Alone, there is no process group and nothing is ever sent.

Every process has the same images, weights and settings, and everything random is a function of a key, so the processes
exchange only what the network computes. Each takes its rows of every batch through the backbone; the features are gathered,
and each process then computes the heads and losses of the whole batch, as a single process would. So no loss knows that
there are several processes, and all of them arrive at the same loss L.

The mean of these equal losses is minimised: :meth:`Share.gather` returns to a process the sum of the gradients that all of
them found for its rows, and the gradients of the weights are averaged. Together that is the gradient of L, equal to the bit
in every process, so that weights never drift apart. A single operation does all of it: a sum over the processes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from autonovel.base.errors import InputError, TrainingError, option
from autonovel.machine.launch import Launch, launched

T = TypeVar("T")

PATIENCE = timedelta(hours=12)
"""How long a process waits for the others. One that ends is noticed at once; this allows for decoding images for hours."""

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class World(Launch):
    """The processes that train together, as one of them sees them, and what they do together.

    Methods that send something must be called by all processes, in the same order.
    """

    def rows(self, total: int) -> slice:
        """Which of ``total`` rows are this process's; the processes' shares differ by one row at most."""
        return slice(*_bounds(total, self.rank, self.size))

    def share_of(self, batch: int) -> Share | None:
        """This process's part of every batch of ``batch`` images; None where it is alone."""
        if not self.several:
            return None
        if batch < self.size:
            raise InputError(
                f"A batch of {batch} images is too small for {self.size} processes; start fewer or choose a larger batch."
            )
        return Share(self, batch)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes; they are sent as one message."""
        if not self.several or not tensors:
            return
        flat = _sum(torch.cat([t.detach().flatten() for t in tensors])).div_(self.size)
        for t, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.detach().copy_(mean.view(t.shape))

    def join_rows(self, part: Tensor, total: int) -> Tensor:
        """All rows (total, ...), put together from every process's ``part``, which holds the rows that :meth:`rows` gives it."""
        return _sum(_place(part, self.rows(total), total)) if self.several else part

    def from_first(self, function: Callable[[], T]) -> T:
        """Call the function in the first process only; every process gets its result, or its error."""
        if not self.several:
            return function()
        outcome: list[Any] = [None, None]
        if self.first:
            try:
                outcome = [function(), None]
            except (InputError, TrainingError) as error:
                outcome = [None, error]
        dist.broadcast_object_list(outcome, 0, device=_CPU)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result

    def share_out(self, jobs: Iterable[Callable[[], T]]) -> list[T]:
        """The results of all jobs, in order. Each job is done by one process, and its result (on the CPU) is sent to all."""
        mine: list[T] = []
        n = 0
        for job in jobs:
            if n % self.size == self.rank:
                mine.append(job())
            n += 1
        if not self.several:
            return mine
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, mine)
        return [gathered[i % self.size][i // self.size] for i in range(n)]

    @contextmanager
    def local_first(self) -> Iterator[None]:
        """Let the first process of each machine go first; the others then find on disk what it has decoded."""
        if self.several and self.local_rank:
            _sum(torch.zeros(1))  # nobody passes before everyone has arrived
        yield
        if self.several and not self.local_rank:
            _sum(torch.zeros(1))

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Ignore signals while state is saved: when one process fails, torchrun at once tells the others to end."""
        if not self.several or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {kind: signal.signal(kind, signal.SIG_IGN) for kind in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)


ALONE = World()


@dataclass(frozen=True)
class Share:
    """One process's part of every batch of a stage.

    Attributes:
        world: the processes.
        batch: images in the whole batch.
    """

    world: World
    batch: int

    @property
    def rows(self) -> slice:
        """Which rows of the batch are this process's."""
        return self.world.rows(self.batch)

    @property
    def n(self) -> int:
        """How many rows that is."""
        low, high = _bounds(self.batch, self.world.rank, self.world.size)
        return high - low

    def gather(self, x: Tensor) -> Tensor:
        """The rows of all processes in the order of the batch; gradients flow back to where the rows came from.

        Args:
            x: (views x n, ...), as many views of this process's rows as there are, one after the other.

        Returns:
            (views x batch, ...)
        """
        by_row = x.unflatten(0, (-1, self.n)).transpose(0, 1)
        whole: Tensor = _Gather.apply(by_row, self.rows.start, self.batch)  # type: ignore[no-untyped-call]
        return whole.transpose(0, 1).flatten(0, 1)

    def pool(self, mean: Tensor, var: Tensor, count: int) -> tuple[Tensor, Tensor, int]:
        """Mean, variance and number of the values of all processes, from those of each; gradients flow through all."""
        rank, size = self.world.rank, self.world.size
        parts: Tensor = _Gather.apply(torch.stack([mean, var])[None], rank, size)  # type: ignore[no-untyped-call]
        bounds = [_bounds(self.batch, r, size) for r in range(size)]
        weights = [(high - low) / self.batch for low, high in bounds]
        whole = torch.stack([w * part[0] for w, part in zip(weights, parts, strict=True)]).sum(0)
        spread = [w * (part[1] + (part[0] - whole).square()) for w, part in zip(weights, parts, strict=True)]
        return whole, torch.stack(spread).sum(0), count // self.n * self.batch


class _Gather(torch.autograd.Function):
    """Each process's rows (n, ...) put together to (total, ...); backward sums the gradients that all processes found."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, start: int, total: int) -> Tensor:
        ctx.rows = slice(start, start + len(part))
        whole: Tensor = _sum_apart(_place(part, ctx.rows, total))
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _sum_apart(grads[0])[ctx.rows], None, None


def _bounds(total: int, rank: int, size: int) -> tuple[int, int]:
    return total * rank // size, total * (rank + 1) // size


def _place(part: Tensor, rows: slice, total: int) -> Tensor:
    """(total, ...): the part in its rows, zeros elsewhere."""
    before, after = part.new_zeros(rows.start, *part.shape[1:]), part.new_zeros(total - rows.stop, *part.shape[1:])
    return torch.cat([before, part, after])


def _sum(x: Tensor) -> Tensor:
    """The sum over all processes, written into ``x``."""
    dist.all_reduce(x)
    return x


# A plain all_reduce, compiled and captured, gave other losses than the same step uncompiled; torch's compiler treats an
# operation of our own as a black box. Registered piece by piece, because torch.library.custom_op imports the whole compiler
# when the operation is first called, compiled or not.
_operations = torch.library.Library("autonovel", "FRAGMENT")
_operations.define("sum_over_processes(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def _sum_copy(x: Tensor) -> Tensor:
    """The sum over all processes, as a new tensor."""
    return _sum(x.clone(memory_format=torch.contiguous_format))


def _like_the_sum(x: Tensor) -> Tensor:
    """What the compiler has to know of it."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_operations.impl("sum_over_processes", _sum_copy, "CompositeExplicitAutograd")
torch.library.register_fake("autonovel::sum_over_processes", _like_the_sum, lib=_operations)
_sum_apart = torch.ops.autonovel.sum_over_processes.default


# ---------------------------------------------------------------------------------------------- beginning and end

# torch has one process group per process, so this too is kept once: where the processes meet, and whether they ever did.
_store: Any = None
_met = False


def join(device: str = "auto") -> World:
    """Meet the other processes that torchrun started; alone where it started none.

    Args:
        device: 'cpu', 'cuda' or 'auto', as for :meth:`autonovel.machine.device.Mode.of`. Tensors on CUDA travel by NCCL, all
            others by gloo. Process i of a machine works on its GPU i.
    """
    global _store, _met
    place = launched()
    if not place.several:
        return ALONE
    world = World(**asdict(place))
    if _store is not None:  # joined before
        return world
    met, _, _ = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
    # torchrun may start the processes again, and keeps its store
    _store = dist.PrefixStore(f"try {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", met)  # type: ignore[attr-defined]
    _met = True
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    _check_devices(place, device, torch.cuda.device_count() if cuda else -1)
    if cuda:
        torch.cuda.set_device(place.local_rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=dist.PrefixStore("group", _store),  # type: ignore[attr-defined]
        rank=place.rank,
        world_size=place.size,
        timeout=PATIENCE,
    )
    return world


def leave() -> None:
    """Part from the other processes, when all is done."""
    global _store
    if _store is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    _store = None


def end(status: int) -> None:
    """End this process at once if it ever met others, after flushing its output.

    The threads that gloo sends with may still hold a tensor; if they release it while the interpreter shuts down normally,
    the process aborts, and a finished run would count as failed.
    """
    if _met:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # nobody reads it any more
                stream.flush()
        os._exit(status)


def _check_devices(place: Launch, device: str, gpus: int) -> None:
    """Refuse, in every process, devices that do not go together. ``gpus`` is -1 where this process works on its CPU."""
    if ":" in device:
        raise InputError(
            f"{option('device')} {device} names one GPU, but there are {place.size} processes; use {option('device', 'cuda')}."
        )
    _store.set(f"gpus/{place.rank}", f"{gpus} {place.local_size}")
    reported = [tuple(map(int, _store.get(f"gpus/{rank}").split())) for rank in range(place.size)]
    for rank, (there, wanted) in enumerate(reported):
        if (there < 0) != (reported[0][0] < 0):
            raise InputError(
                f"Of processes 0 and {rank} only one has a GPU that torch can use; choose {option('device', 'cpu')}."
            )
        if 0 <= there < wanted:
            raise InputError(
                f"The machine of process {rank} has {there} GPUs for {wanted} processes; "
                f"use torchrun --nproc-per-node {max(1, there)}, or {option('device', 'cpu')}."
            )


def may_speak() -> bool:
    """Whether this process should say why it ends: true for the first one that asks, so that one sentence is printed."""
    if _store is None:
        return launched().first  # not yet met; whatever went wrong did so in all
    try:
        return bool(_store.add("ended", 1) == 1)
    except RuntimeError:  # the process that kept the store has ended, and said so
        return False


def lost_contact(error: BaseException) -> bool:
    """Whether an error only says that another process is gone."""
    return _store is not None and (isinstance(error, dist.DistError) or "gloo" in str(error))
