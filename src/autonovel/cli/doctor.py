"""``autonovel doctor``: is this machine fit for the work?"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autonovel.base.screen import say
from autonovel.cli.common import Verb

PACKAGES = {
    "scipy": ("scipy", "scoring"),
    "sklearn": ("scikit-learn", "scoring and the demo"),
    "matplotlib": ("matplotlib", "pictures"),
    "rich": ("rich", "tables and progress bars"),
}
"""What is imported where it is used: name -> (package, what for)."""


@dataclass(frozen=True)
class Doctor(Verb):
    """Check this machine: versions, devices, memory, and that a small training works."""

    empty_cache: bool = False
    """Remove what is kept to be quicker the next time: decoded images, features, compiled code."""

    def do(self) -> None:
        """Say what was found, line by line."""
        if self.empty_cache:
            say(empty_cache())
            return
        for finding in examine():
            say(finding)


def empty_cache() -> str:
    """Remove the user's cache; says how much that was."""
    from autonovel.machine.cache_folder import user_cache

    kept = _bytes_in(user_cache())
    shutil.rmtree(user_cache(), ignore_errors=True)
    left = _bytes_in(user_cache())
    return f"{(kept - left) / 2**20:,.0f} MiB removed from {user_cache()}" + (
        f", {left:,} bytes are in use" if left else ""
    )


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def examine() -> Iterator[str]:
    """Findings, one line each; the last says whether training works."""
    import platform

    import torch

    import autonovel
    from autonovel.machine.cache_folder import user_cache
    from autonovel.machine.memory import free_memory

    yield f"autonovel {autonovel.__version__}, Python {platform.python_version()}, torch {torch.__version__}"
    memory = free_memory(torch.device("cpu")) / 2**30
    yield f"CPU: {os.cpu_count()} cores, {torch.get_num_threads()} threads used by torch; {memory:.1f} GiB of memory free"
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        yield f"CUDA: {torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    else:
        yield "CUDA: none that torch can use; everything runs on the CPU"
    kept = _bytes_in(user_cache())
    yield f"cache: {kept / 2**30:.1f} GiB in {user_cache()} (decoded images, compiled code); may be deleted at any time"
    for module, (package, use) in PACKAGES.items():
        try:
            __import__(module)
        except ImportError:
            yield f"missing: {package} ({use}); pip install {package}"
    yield _small_training()


def _small_training() -> str:
    """Discovery in noise, from the first stage to the last."""
    import tempfile

    import numpy as np

    from autonovel.api.discover import discover
    from autonovel.data.images import ImageSet
    from autonovel.settings.recipes import get_recipe

    pixels = np.random.default_rng(0).integers(0, 255, (64, 16, 16), dtype=np.uint8)
    recipe = get_recipe("digits", "fast")
    recipe = replace(recipe, model=replace(recipe.model, networks=1), joint=replace(recipe.joint, epochs=2))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        images = ImageSet.from_arrays(pixels, np.repeat([0, 1, -1, -1], 16))
        device = discover(images, out=Path(folder) / "run", recipe=recipe, n_new=2).summary["device"]
    return f"training works on {device}: a small discovery in {time.perf_counter() - started:.1f} s"
