"""The one training loop, for every stage, objective and device.

There is no random state: orders, variations and initial weights are functions of a key, so the state of training is the
weights, the optimiser's memory and the number of epochs done.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from autonovel.base.chance import make_key
from autonovel.base.errors import AutonovelWarning, TrainingError, option
from autonovel.data.loader import Images
from autonovel.machine.capture import not_captured
from autonovel.machine.device import Mode
from autonovel.machine.processes import World
from autonovel.machine.streams import own_lane, room
from autonovel.methods.base import Look, Method
from autonovel.models.net import Net
from autonovel.training.optimiser import make_optimiser
from autonovel.training.step import State, Step, copy_of, live_state, put


class Checkpoint(Protocol):
    """Where the state of an unfinished stage is kept."""

    def load(self) -> tuple[State, int] | None:
        """State and number of epochs done, if any."""

    def save(self, state: State, epochs_done: int) -> None:
        """Keep this state instead of the one before."""


@dataclass(frozen=True)
class Epoch:
    """What is known of an epoch after it. A loss that is a vector has one value per head."""

    number: int
    losses: dict[str, float | list[float]]
    lr: float
    seconds: float


def train(
    net: Net,
    method: Method,
    data: Images,
    mode: Mode,
    *,
    key: tuple[object, ...],
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    look: Look | None = None,
    checkpoint_seconds: float = 10.0,
) -> None:
    """Train the network in place, from the last checkpoint if there is one.

    Args:
        net: on the mode's device, with the method's heads.
        method: what to learn.
        data: on the same device.
        mode: how to run.
        key: what the randomness depends on: the seed, and last the stage by the name of its settings ('joint', or
            'supervised-probe' for another training with the settings of 'supervised').
        checkpoint: keeps the state at most every ``checkpoint_seconds``, and when the work is interrupted or fails.
        on_epoch: is called after each epoch.
        on_message: is called with a sentence before something that takes long between two epochs.
        on_step: is called after each step with how many steps of the epoch are done, and how many there are; on a CPU only,
            because a GPU would have to wait for it.
        look: what the method's hook at the start of an epoch may ask; only methods without such a hook can do without.
    """
    settings = method.settings
    labels = data.labels.cpu()
    net.freeze(settings.train_from)
    net.train()
    method.to(mode.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    net.precision = mode.precision_for(data.side)
    optimiser = make_optimiser([p for p in net.parameters() if p.requires_grad], settings)
    done = 0
    if checkpoint is not None and (kept := checkpoint.load()) is not None:
        state, done = kept
        put(state, live_state(net, optimiser, method))
    if done >= settings.epochs:
        return
    first = done
    shape = method.order(labels, *key, 0).shape
    frozen = settings.train_from != "all"
    with own_lane(mode.device, mode.world, frozen=frozen) as ahead, _divided(net, mode.world, shape[1]):

        def make_step(mode: Mode) -> Step:
            return Step(net, method, data, optimiser, mode, shape, ahead)

        at_once = mode.compiled and not mode.compile_from
        good, saved = copy_of(live_state(net, optimiser, method)), time.monotonic()
        step: Step | None = room.wait_for(lambda: _compiled_if_possible(make_step, replace(mode, compiled=at_once)))
        try:
            for number in range(done, settings.epochs):
                started = time.perf_counter()
                if look is not None:
                    with not_captured(mode.device):  # it may do anything, also for the first time
                        method.start_epoch(net, look, number)
                    net.train()
                assert step is not None
                order = method.order(labels, *key, number)
                losses = step.run_epoch(order, number, make_key(*key, number), on_step)
                if not all(np.isfinite(v).all() for v in losses.values()):
                    names = ", ".join(f"{name} = {value}" for name, value in losses.items())
                    stage = str(key[-1])
                    raise TrainingError(
                        f"The loss is not finite in epoch {number + 1} of stage {stage} ({names}); "
                        f"the state after epoch {done} is kept. A lower {option(stage.partition('-')[0] + '.lr')} usually helps."
                    )
                before = good, done
                good, done = copy_of(live_state(net, optimiser, method)), number + 1
                # reported before it is kept: a run that is killed in between does the epoch again, and no record is lost
                try:
                    if on_epoch is not None:
                        on_epoch(Epoch(number, losses, settings.lr_at(number), time.perf_counter() - started))
                except TrainingError:  # the record could not be written
                    good, done = before
                    raise
                del before  # its memory
                if checkpoint is not None and time.monotonic() - saved > checkpoint_seconds:
                    checkpoint.save(good, done)
                    saved = time.monotonic()
                rest = (settings.epochs - done) * (time.perf_counter() - started)
                if mode.compiled and not at_once and number == first and _compiling_pays(mode, rest):
                    if on_message is not None:
                        on_message("compiling the training step (a minute or so the first time, seconds later on)")
                    step = None
                    gc.collect()  # the memory of what it captured
                    step = _compiled_if_possible(make_step, mode)
        except BaseException:
            if checkpoint is not None and done:
                with mode.world.undisturbed():
                    checkpoint.save(good, done)
            raise
        finally:
            if isinstance(ahead, torch.cuda.Stream):  # its memory must be free before another training may use it
                torch.cuda.current_stream().synchronize()
                ahead.synchronize()
                step = None
                gc.collect()
            room.give_back()


def _compiling_pays(mode: Mode, seconds: float) -> bool:
    """Whether to compile for a stage that has this many seconds left; all processes do the same."""
    return mode.world.from_first(lambda: seconds >= mode.compile_from)


def _compiled_if_possible(make_step: Callable[[Mode], Step], mode: Mode) -> Step:
    """The step; where compiling it fails, for example for want of a C compiler, one that is not compiled."""
    try:
        return make_step(mode)
    except Exception as error:
        if not mode.compiled or mode.world.several:  # the other processes would not know
            raise
        reason = str(error).strip().partition("\n")[0]
        text = f"The training step could not be compiled ({reason}); training continues without it, more slowly."
        warnings.warn(text, AutonovelWarning, stacklevel=3)
    gc.collect()  # the memory of what failed
    return make_step(replace(mode, compiled=False))


@contextmanager
def _divided(net: Net, world: World, batch: int) -> Iterator[None]:
    """Let the processes share the batches while the network is trained."""
    net.divide(world.share_of(batch))
    try:
        yield
    finally:
        net.divide(None)
