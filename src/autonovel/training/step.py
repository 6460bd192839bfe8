"""One training step, for every stage, objective and device, and the state that it changes.

A step is always the same work on tensors that stay where they are: gather a batch, vary it, forward, backward, update. What
changes from step to step (which images, learning rate, ramp, randomness) lies in small tensors that are filled once an epoch.
So on CUDA the whole step is captured, for long stages compiled before, and an epoch is that many replays; on the CPU the same
functions simply run. Losses are summed on the device and read once an epoch.

A step has two halves, and only the second learns: views of the batch are made and taken through the frozen blocks, then the
rest of the network, losses and update. So the first half of a step can run beside the second half of the step before: on a
second stream where the step is captured, in a second thread on a CPU, where blocks are frozen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from autonovel.base.chance import make_key
from autonovel.base.errors import TrainingError
from autonovel.data.loader import Batch, Images
from autonovel.machine.capture import recording
from autonovel.machine.device import Mode, compiler_settings
from autonovel.machine.streams import Ahead
from autonovel.methods.base import Method, Seen
from autonovel.models.net import Net
from autonovel.training.optimiser import Optimiser

State = dict[str, Tensor]
"""Tensors by name."""

# torch's compiler and graph capture are not made for several threads at once
_setting_up = threading.Lock()


def live_state(net: Net, optimiser: Optimiser, method: Method) -> State:
    """Every tensor that training changes, by name; the tensors themselves, not copies."""
    names: dict[Tensor, str] = {p: name for name, p in net.named_parameters()}
    state = {f"net.{name}": value for name, value in net.state_dict().items()}
    state |= {f"method.{name}": value for name, value in method.state_dict().items()}
    for key, kept in optimiser.memory.items():
        state |= {f"optimiser.{names[w]}.{key}": value for w, value in zip(optimiser.weights, kept, strict=True)}
    return state


def copy_of(state: State) -> State:
    """The same tensors, as they are now."""
    return {name: value.clone() for name, value in state.items()}


def put(source: State, target: State) -> None:
    """Copy a state that was kept into the tensors that training changes."""
    if source.keys() != target.keys():
        raise TrainingError(
            "The kept state belongs to another network; delete the folder 'state' of the run to start afresh."
        )
    with torch.no_grad():
        for name, value in target.items():
            value.copy_(source[name])


class Step:
    """One training step as work on tensors that keep their place, and an epoch as a loop over it.

    ``ahead`` is where the next batch is prepared while the current one is learned from, if anywhere.
    """

    def __init__(
        self,
        net: Net,
        method: Method,
        data: Images,
        optimiser: Optimiser,
        mode: Mode,
        shape: torch.Size,
        ahead: Ahead,
    ) -> None:
        self._net, self._method, self._data, self._optimiser, self._mode = net, method, data, optimiser, mode
        device, settings = mode.device, method.settings
        self._order = torch.zeros(shape, dtype=torch.int64, device=device)
        self._lrs = torch.zeros(shape[0], device=device)
        self._number = torch.zeros(1, dtype=torch.int64, device=device)
        self._keys = torch.zeros(shape[0], dtype=torch.int64, device=device)
        self._ramp = torch.zeros((), device=device)
        self._sums: dict[str, Tensor] = {}
        self._see, self._losses = self._make_seen, self._compute_losses
        if mode.compiled:
            # A step whose first blocks are frozen is many small operations, which are launched in groups; for large ones
            # grouping costs more than it saves (joint training 9 % faster, rotation 5 % slower on an H200).
            options: dict[str, Any] = {"combo_kernels": settings.train_from != "all"}
            # the batch is gathered outside: what is compiled does not depend on the number of images, and is kept for others
            with compiler_settings():
                self._see = torch.compile(self._make_seen, dynamic=False, fullgraph=True, options=options)
                if mode.compile_losses:
                    self._losses = torch.compile(self._compute_losses, dynamic=False, fullgraph=True, options=options)
        self._go: Callable[[], None] = self._advance
        self._ahead = ahead
        self._share = mode.world.share_of(shape[1])
        data.reserve(shape[1] if self._share is None else self._share.n)
        # the step is compiled when it is first called
        compiling = compiler_settings() if mode.compiled else nullcontext()
        if mode.device.type == "cpu":
            with compiling:
                self._warm_up()
            return
        # shapes never change, so it pays to let cuDNN try its algorithms; the choice is frozen into the captured step
        with _setting_up, _set(torch.backends.cudnn, "benchmark", True), compiling:
            self._warm_up()

    def run_epoch(
        self, order: Tensor, number: int, key: int, on_step: Callable[[int, int], None] | None = None
    ) -> dict[str, float | list[float]]:
        """All steps of an epoch; returns the mean of each loss."""
        tell = on_step if on_step is not None and self._mode.device.type == "cpu" else lambda done, steps: None
        settings, steps = self._method.settings, len(order)
        self._order.copy_(order, non_blocking=True)
        self._lrs.copy_(torch.tensor([settings.lr_at(number + i / steps) for i in range(steps)]))
        self._number.zero_()
        # a key for every step: an image that an epoch shows several times is varied anew each time
        self._keys.copy_(torch.tensor([make_key(key, i) for i in range(steps)]))
        self._ramp.fill_(self._method.ramp(number))
        for total in self._sums.values():
            total.zero_()
        try:
            self._data.begin(order if self._share is None else order[:, self._share.rows])
            self._run_steps(steps, tell)
        finally:
            self._data.end()
        return {name: (total / steps).tolist() for name, total in self._sums.items()}

    def _run_steps(self, steps: int, tell: Callable[[int, int], None]) -> None:
        if isinstance(self._ahead, Executor):
            self._run_beside(steps, self._ahead, tell)
            return
        if self._ahead is not None:
            self._ahead.wait_stream(torch.cuda.current_stream())
        for done in range(1, steps + 1):
            self._go()
            tell(done, steps)

    def _make_seen(self, batch: Batch, key: Tensor) -> list[Tensor]:
        return self._net.through_frozen(self._method.views(batch, key))

    def _compute_losses(self, seen: Seen) -> tuple[Tensor, dict[str, Tensor]]:
        losses = self._method.losses(self._net, seen, self._ramp)
        total = torch.stack([loss.sum() for loss in losses.values()]).sum()
        return total, {name: loss.detach().float() for name, loss in losses.items()}

    def _run_beside(self, steps: int, thread: Executor, tell: Callable[[int, int], None]) -> None:
        """The steps of an epoch, each made ready by the thread while the one before is learned from."""
        shown = thread.submit(self._fetch_next)
        for number in range(steps):
            now = shown.result()
            if number + 1 < steps:
                shown = thread.submit(self._fetch_next)
            self._learn(now)
            tell(number + 1, steps)

    def _advance(self) -> None:
        self._learn(self._fetch_next())

    def _fetch_next(self) -> list[Tensor]:
        self._data.fetch()
        return self._next()

    def _next(self) -> list[Tensor]:
        """Views, labels, index and learning rate for the next step. None of them depends on what is learned."""
        index = self._order.index_select(0, self._number)[0]
        lr, key = (table.index_select(0, self._number)[0] for table in (self._lrs, self._keys))
        self._number += 1
        if self._share is None:
            batch = self._data.batch(index)
        else:
            batch = self._data.batch(index[self._share.rows])._replace(
                labels=self._data.labels[index], whole_index=index
            )
        return [*self._see(batch, key), batch.labels, batch.whole_index, lr]

    def _learn(self, shown: list[Tensor]) -> None:
        *views, labels, index, lr = shown
        self._optimiser.lr.copy_(lr)
        total, losses = self._losses(Seen(views, labels, index))
        self._forget_gradients()
        total.backward()
        if self._share is not None:
            self._mode.world.average([w.grad for w in self._optimiser.weights if w.grad is not None])
        self._optimiser.step()
        self._method.after_step(self._net)
        for name, loss in losses.items():
            if name not in self._sums:  # on the first call, which is a warm-up
                self._sums[name] = torch.zeros_like(loss)
            self._sums[name] += loss

    def _forget_gradients(self) -> None:
        for w in self._optimiser.weights:
            w.grad = None

    def _warm_up(self) -> None:
        """Take a step to compile and allocate, record one if wanted, and put everything back as it was."""
        live = live_state(self._net, self._optimiser, self._method)
        before = copy_of(live)
        try:
            for _ in range(3 if self._mode.captured else 1):
                self._number.zero_()
                self._learn(self._next())
            if self._mode.captured:
                self._capture()
        except BaseException:
            self._forget_gradients()
            raise
        finally:
            put(before, live)

    def _capture(self) -> None:
        """Record preparing and learning apart, so that a step prepares the next batch while it learns from this one.

        Much of learning is small work that leaves most of a GPU idle; the frozen blocks and variations fill it.
        """
        main, ahead = torch.cuda.current_stream(), self._ahead
        assert isinstance(ahead, torch.cuda.Stream)
        main.synchronize()
        show, learn = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self._number.zero_()
        with recording(show, ahead):
            shown = self._next()
        taken = [torch.empty_like(part) for part in shown]
        self._forget_gradients()
        with recording(learn, main):
            self._learn(taken)

        def go() -> None:
            with torch.cuda.stream(ahead):
                self._data.fetch()
                show.replay()
            main.wait_stream(ahead)
            for to, source in zip(taken, shown, strict=True):
                to.copy_(source)
            ahead.wait_stream(main)  # from here the next batch may be shown
            learn.replay()

        self._go = go


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
