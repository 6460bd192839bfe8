"""Is this machine fit for the work?"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator


def examine() -> Iterator[str]:
    """Findings, one line each; the last says whether a real training step works."""
    import numpy as np
    import torch

    import autonovel
    from autonovel.data.images import ImageSet
    from autonovel.data.loader import DeviceImages, free_memory
    from autonovel.engine import train
    from autonovel.machine.cache_folder import user_cache
    from autonovel.machine.device import Mode
    from autonovel.methods.joint import joint_method
    from autonovel.methods.supervised import KnownClasses
    from autonovel.models.net import build
    from autonovel.recipes import get_recipe

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
    mode = Mode.of()
    rng = np.random.default_rng(0)
    data = ImageSet.from_arrays(rng.integers(0, 255, (64, 16, 16), dtype=np.uint8), np.repeat([0, 1, -1, -1], 16))
    recipe = get_recipe("digits", "fast")
    images = DeviceImages(data, mode.device)
    net = build(recipe.model, channels=1, size=16)
    KnownClasses(recipe, 2).prepare(net)
    method = joint_method(recipe, 2, 2)
    method.prepare(net)
    net.to(mode.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    started = time.perf_counter()
    train(net, method, images, mode, key=(0, "joint"))
    yield f"training works on {mode.device}: {recipe.joint.epochs} short epochs in {time.perf_counter() - started:.1f} s"
