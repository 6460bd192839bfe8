"""Is this machine fit for the work?"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace


def examine() -> Iterator[str]:
    """Findings, one line each; the last says whether a real training step works."""
    import numpy as np
    import torch

    import autonovel
    from autonovel.data.images import ImageSet
    from autonovel.data.loader import free_memory
    from autonovel.machine.cache_folder import user_cache
    from autonovel.pipeline import Pipeline
    from autonovel.recipes import get_recipe
    from autonovel.runs.folder import Run

    yield f"autonovel {autonovel.__version__}, Python {platform.python_version()}, torch {torch.__version__}"
    memory = free_memory(torch.device("cpu")) / 2**30
    yield f"CPU: {os.cpu_count()} cores, {torch.get_num_threads()} threads used by torch; {memory:.1f} GiB of memory free"
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        yield f"CUDA: {torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    else:
        yield "CUDA: none that torch can use; everything runs on the CPU"
    kept = sum(file.stat().st_size for file in user_cache().rglob("*") if file.is_file())
    yield f"cache: {kept / 2**30:.1f} GiB in {user_cache()} (decoded images, compiled code); may be deleted at any time"
    for package, use in (
        ("scipy", "scoring"),
        ("sklearn", "scoring, the demo"),
        ("matplotlib", "pictures"),
        ("rich", "tables"),
    ):
        try:
            __import__(package)
        except ImportError:
            yield f"missing: {package} ({use}); pip install {'scikit-learn' if package == 'sklearn' else package}"
    rng = np.random.default_rng(0)
    data = ImageSet.from_arrays(rng.integers(0, 255, (64, 16, 16), dtype=np.uint8), np.repeat([0, 1, -1, -1], 16))
    recipe = get_recipe("digits", "fast")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        job = Pipeline(data, replace(recipe, model=replace(recipe.model, networks=1)), n_new=2)
        job.run(Run(folder))
    yield f"training works on {job.mode.device}: a tiny run took {time.perf_counter() - started:.1f} s"
