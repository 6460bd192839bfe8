"""Points of planted classes, with a known number of them, for the tests of the estimators."""

import math

import torch
from torch import Tensor

from autonovel.maths.count.probes import Effort

QUICK = Effort(splits=2, restarts=3, draws=20)


def classes(n: int, per_class: int = 25, dim: int = 24, distance: float = 6.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian classes with unit noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n).repeat_interleave(per_class)
    centres = distance / math.sqrt(2) * torch.randn(n, dim, generator=generator) / math.sqrt(dim) * math.sqrt(8)
    return centres[labels] + torch.randn(len(labels), dim, generator=generator), labels


def planted(n_probe: int = 10, n_new: int = 7, **kwargs: float) -> tuple[Tensor, Tensor, Tensor]:
    points, labels = classes(n_probe + n_new, **kwargs)  # type: ignore[arg-type]
    known = labels < n_probe
    return points[known], labels[known], points[~known]
