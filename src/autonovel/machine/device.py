"""How the work is done on this machine: device, precision, and whether the training step is compiled and captured."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from autonovel.base.errors import InputError, listed, option
from autonovel.machine import cpu
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device_name import check_device_name
from autonovel.machine.processes import ALONE, World
from autonovel.machine.switches import default_environment

STEPS = ("", "eager", "captured", "compiled")
"""What AUTONOVEL_STEP may be."""

COMPILE_FROM = 60.0
"""Seconds. Compiling takes 7 seconds on an H200 where such a step was compiled before, 50 to 90 where not, and makes a step
about twice as fast. A stage of a minute gains 20 seconds or loses 20 to 60, once; a shorter one would mostly wait."""

_RECOMPILE_LIMIT = 64
"""Each stage and run is a program of its own; the compiler's default limit of 8 takes that for an accident."""

_compiling = threading.Lock()


@dataclass(frozen=True)
class Mode:
    """How the work is done on this machine.

    Attributes:
        device: where images, weights and everything else are.
        precision: of the matrix work; weights, losses and statistics are always float32.
        compiled: fuse the step's operations.
        compile_from: compile after the first epoch of a stage if the rest is expected to take at least this many seconds;
            0 compiles before the first step.
        compile_losses: compile the second half of the step too, which is another program for every number of classes.
        captured: record the step once and replay it (CUDA).
        world: the processes that share the work.
    """

    device: torch.device
    precision: torch.dtype = torch.float32
    compiled: bool = False
    compile_from: float = 0.0
    compile_losses: bool = True
    captured: bool = False
    world: World = ALONE

    @classmethod
    def of(cls, device: str = "auto", world: World = ALONE) -> Mode:
        """The fastest mode for 'cpu', 'cuda', 'cuda:N' or 'auto', for these processes (see :func:`processes.join`).

        Environment variables: AUTONOVEL_STEP=eager leaves the step on CUDA uncompiled and uncaptured, captured leaves it
        uncompiled, compiled has it compiled before every stage, however short; AUTONOVEL_PRECISION=float32 keeps matrix
        work in float32 also where bfloat16 is faster.
        """
        check_device_name(device)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        kind, _, number = device.partition(":")
        if kind == "cuda" and not torch.cuda.is_available():
            raise InputError(f"There is no CUDA device that torch can use here; choose {option('device', 'cpu')}.")
        if number and int(number) >= torch.cuda.device_count():
            there = listed(f"cuda:{i}" for i in range(torch.cuda.device_count()))
            raise InputError(f"There is no device '{device}': torch can use {there} here.")
        low = torch.float32 if os.environ.get("AUTONOVEL_PRECISION") == "float32" else torch.bfloat16
        if kind == "cuda":
            step = os.environ.get("AUTONOVEL_STEP", "")
            if step not in STEPS:
                raise InputError(f"AUTONOVEL_STEP is '{step}'; choose one of {', '.join(STEPS[1:])} or leave it out.")
            return cls(
                torch.device(device),
                low,
                compiled=step not in ("eager", "captured"),
                compile_from=0.0 if step == "compiled" else COMPILE_FROM,
                captured=step != "eager",
                world=world,
            )
        return cls(torch.device("cpu"), low if cpu.has_bfloat16() else torch.float32, world=world)

    def precision_for(self, side: int) -> torch.dtype:
        """The precision for images with this side."""
        return torch.float32 if self.device.type == "cpu" and side < cpu.LEAST_SIDE else self.precision


@contextmanager
def compiler_settings() -> Iterator[None]:
    """How torch's compiler is set while a step is compiled, one at a time; afterwards it is set as before.

    Use it around ``torch.compile`` and around the first call of the function that it returns, which is when torch compiles.
    Compiled code is kept in the user's cache folder (or where TORCHINDUCTOR_CACHE_DIR says) for later runs: torch's own place
    for it is emptied when the machine restarts.
    """
    with _compiling, default_environment("TORCHINDUCTOR_CACHE_DIR", str(user_cache() / "compiled")):
        # imported here because it takes one to four seconds, and because it reads the variable
        from torch._dynamo import config

        with config.patch(recompile_limit=max(_RECOMPILE_LIMIT, config.recompile_limit)):
            yield
