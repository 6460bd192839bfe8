"""What can be refused before an image is read: numbers, devices and output folders that cannot work. Imports no torch."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

from autonovel.errors import InputError, option
from autonovel.machine.launch import launched


def check_arguments(
    *,
    out: str | os.PathLike[str],
    device: str = "auto",
    n_new: Any = "auto",
    k: Any = "auto",
    inputs: Iterable[Any] = (),
) -> None:
    """Refuse what cannot work, each with one sentence.

    Args:
        out: the run folder.
        device: 'cpu', 'cuda', 'cuda:N' or 'auto'; whether there is such a device is not asked here.
        n_new: how many new classes there are; 'auto' estimates it.
        k: the same where nothing is labelled.
        inputs: what the images are read from; paths among them must not hold the run folder.
    """
    _check_number("n_new", n_new)
    _check_number("k", k)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(device)):
        raise InputError(f"There is no device '{device}'; choose cpu, cuda, cuda:N or auto.")
    if launched().first:  # which alone writes the folder
        check_out(Path(out), [Path(i) for i in inputs if isinstance(i, str | os.PathLike)])


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, str) and value == "auto":
        return
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{option(name)} is {value!r}; give a whole number or 'auto'.")
    if int(value) < 2:
        raise InputError(f"{option(name)} is {value}; there must be at least 2 classes to tell apart.")


_LEFT_OVER = re.compile(r"state|\..+\.part")
"""What a run that ended before its first file was written leaves in its folder."""


def check_out(out: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a run folder that cannot be made or written, holds something else, or lies among the images."""
    for source in inputs:
        if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
            raise InputError(
                f"The run folder {out} would lie among the images in {source}; give another folder as {option('out')}."
            )
    there = next((folder for folder in (out, *out.parents) if folder.exists()), Path("."))
    if not there.is_dir():
        raise InputError(f"{there} is a file; give another folder for the run as {option('out')}.")
    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=there):
            pass
    except OSError as error:
        raise InputError(
            f"The folder {there} cannot be written ({error.strerror}); give another folder for the run as {option('out')}."
        ) from None
    if there != out or (out / "config.json").exists():
        return
    if any(not _LEFT_OVER.fullmatch(entry.name) for entry in out.iterdir()):
        raise InputError(f"The folder {out} is not empty and holds no run; give another folder as {option('out')}.")
