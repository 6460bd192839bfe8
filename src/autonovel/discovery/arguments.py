"""Refuses numbers, devices and output folders that cannot work, before an image is read. Imports no torch."""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError, option
from autonovel.machine.device_name import check_device_name
from autonovel.machine.disk import nearest_there_is, refuse_other_folder, why_not_writable
from autonovel.machine.launch import launched

LARGEST_SEED = 10**18
"""Seeds must be smaller: torch's generators take 64 bits, and numbers are added to some seeds."""


def check_arguments(
    *,
    out: str | os.PathLike[str],
    device: str = "auto",
    n_new: Any = "auto",
    k: Any = "auto",
    seed: Any = 0,
) -> None:
    """Refuse what cannot work, each with one sentence.

    Args:
        out: the run folder.
        device: 'cpu', 'cuda', 'cuda:N' or 'auto'; whether there is such a device is not asked here.
        n_new: how many new classes there are; 'auto' estimates it.
        k: the same where nothing is labelled.
        seed: everything random depends on it.
    """
    _check_number("n_new", n_new)
    _check_number("k", k)
    _check_seed(seed)
    check_device_name(device)
    if launched().first:  # which alone writes the folder
        check_out(Path(out))


def check_search(
    *,
    out: str | os.PathLike[str],
    device: str,
    splits: int,
    seeds: int,
    together: int | None,
    n_new: int | None,
    with_pile: bool,
    seed: Any = 0,
) -> None:
    """Refuse a search of settings that cannot work, each with one sentence; see :func:`autonovel.api.tune`."""
    if launched().several:
        raise InputError("Settings are compared in one process; start this command without torchrun.")
    for name, value in (("splits", splits), ("seeds", seeds), ("together", together)):
        if value is not None and value < 1:
            raise InputError(f"{option(name)} is {value}; it must be at least 1.")
    if with_pile and n_new is None:
        raise InputError(f"{option('with_pile')} needs to know how many new classes there are; give {option('n_new')}.")
    _check_number("n_new", "auto" if n_new is None else n_new)
    _check_seed(seed)
    check_device_name(device)
    if (Path(out) / "trials.jsonl").exists():  # a search that is to be continued
        _check_writable(Path(out))
    elif (Path(out) / "config.json").exists():
        raise InputError(f"{out} is the folder of a run; give another folder for the search as {option('out')}.")
    else:
        check_out(Path(out))


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, str) and value == "auto":
        return
    if not _is_whole(value):
        raise InputError(f"{option(name)} is {value!r}; give a whole number or 'auto'.")
    if int(value) < 2:
        raise InputError(f"{option(name)} is {value}; there must be at least 2 classes to tell apart.")


def _check_seed(seed: Any) -> None:
    if not _is_whole(seed) or abs(int(seed)) >= LARGEST_SEED:
        raise InputError(f"{option('seed')} is {seed!r}; give a whole number of at most 18 digits.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_out(out: Path) -> None:
    """Refuse a run folder that cannot be made or written, or holds something else."""
    there = _check_writable(out)
    if there != out or (out / "config.json").exists():
        return
    refuse_other_folder(out)


def _check_writable(out: Path) -> Path:
    """The folder, or the nearest one above it that there is, in which something can be written."""
    there = nearest_there_is(out)
    if not there.is_dir():
        raise InputError(f"{there} is a file; give another folder for the run as {option('out')}.")
    if why := why_not_writable(out):
        raise InputError(
            f"The folder {out} cannot be written ({why}); give another folder for the run as {option('out')}."
        )
    return there
