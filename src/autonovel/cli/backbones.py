"""``autonovel backbones``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

from autonovel.base.screen import say
from autonovel.cli.common import Verb

ACCURACY = {
    "efficientnet-lite0": 75.6,
    "efficientnet-lite1": 79.1,
    "efficientnet-lite2": 77.7,
    "efficientnet-lite1+efficientnet-lite2": 81.3,
}
"""Of the groups, in per cent, on the problem that the command states; python lab/photos.py measures it."""
ELSEWHERE = """Others come from their own libraries, which download the weights when they are named:
  pip install transformers    then --model.backbone hf:facebook/dinov2-small (88 MB) or another hf:NAME
  pip install timm            then --model.backbone timm:convnext_tiny (114 MB) or another timm:NAME"""
IMAGES = 32
"""In each of the batches by which the speed is measured; the fastest counts."""


@dataclass(frozen=True)
class Backbones(Verb):
    """List the pre-trained networks: which are installed, how fast they are here, and how to get others."""

    size: int = 128
    """Pixels of the square images that the speed is measured with."""

    def do(self) -> None:
        """Measure those that are installed, and list all."""
        from autonovel.models.backbones import parts_of
        from autonovel.models.efficientnet import LITE, weights_file

        files = {name: weights_file(lite) for name, lite in LITE.items()}
        say(f"{'--model.backbone':<39}{'MB':>3}{'images a second here':>23}{'accuracy':>11}")
        for name, accuracy in ACCURACY.items():
            there = [file for part in parts_of(name) if (file := files[part]) is not None]
            whole = len(there) == len(parts_of(name))
            megabytes = f"{sum(file.stat().st_size for file in there) / 1e6:.0f}" if whole else ""
            speed = f"{_images_a_second(name, self.size):,.0f}" if whole else "not installed"
            say(f"{name:<39}{megabytes:>3}{speed:>23}{accuracy:>9.1f} %")
        if None in files.values():
            say("pip install 'autonovel[photos]' installs what is missing.")
        say(
            f"Speed: images of {self.size} pixels. Accuracy: twenty new species of birds beside twenty known ones, up to 45 "
            "photographs of each at 224 pixels, their number given (mean of 20 draws)."
        )
        say(ELSEWHERE)
        say("A+B lets several networks see every image; autonovel tune compares them on your own known classes.")


def _images_a_second(name: str, size: int) -> float:
    import numpy as np

    from autonovel.machine.device import Mode
    from autonovel.models.backbones import build_backbone
    from autonovel.models.feature_store import stream_features
    from autonovel.settings.recipe import Model

    mode = Mode.of("auto")
    backbone = build_backbone(Model(backbone=name), channels=3, size=size)
    images = np.random.default_rng(0).integers(0, 256, (5, IMAGES, size, size, 3), np.uint8)
    streamed = stream_features(backbone, iter(images), device=mode.device, precision=mode.precision)
    ends = [time.perf_counter() for _ in streamed]
    return IMAGES / min(after - before for before, after in pairwise(ends))
