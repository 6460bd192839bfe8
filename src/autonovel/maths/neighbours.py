"""The loss of clustering by nearest neighbours, which agree.

Logarithms of probabilities have the shape (..., n, clusters), where the dots stand for heads side by side. Rows that do not
count are masked, as in :mod:`autonovel.maths.losses`; where none counts, a loss is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor


def neighbour_loss(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """How far images and their neighbours are from certain answers that agree (SCAN; Van Gansbeke et al., 2020).

    Args:
        first, second: log-probabilities (..., n, clusters) of images and, row by row, of one neighbour of each.
        mask: bool (n,), the rows that count.

    Returns:
        (...), the mean of -log of the chance that both answers name the same cluster.
    """
    apart = -torch.logsumexp(first + second, -1)
    weight = mask.to(apart.dtype) / mask.sum().clamp(min=1)
    return (apart * weight).sum(-1)
