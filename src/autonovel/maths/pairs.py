"""Rules that say which two unlabelled images belong together. Pure functions on features.

A rule maps features (n, d) to a matrix (n, n) of values in [0, 1]: 1 where the two images are taken for the same class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autonovel.errors import InputError


def top_k_sets(features: Tensor, k: int) -> Tensor:
    """The places of the k largest values of each row as a multi-hot matrix (n, d); of equal values the first counts."""
    if not 1 <= k <= features.shape[1]:
        raise InputError(
            f"top_k is {k}, but features have {features.shape[1]} components; choose between 1 and that number."
        )
    # a stable sort, because topk leaves open which of several equal values it takes
    top = torch.sort(features, dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros_like(features).scatter_(1, top, 1.0)


def rank_statistics(features: Tensor, k: int = 5) -> Tensor:
    """1 where two rows have the same set of k largest components (eq. 2 of the paper), else 0.

    >>> z = torch.tensor([[5.0, 4.0, 0.0], [4.0, 9.0, 1.0], [0.0, 3.0, 4.0]])
    >>> rank_statistics(z, k=2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    sets = top_k_sets(features.float(), k)
    return (sets @ sets.T > k - 0.5).float()


PAIR_RULES: dict[str, Callable[[Tensor, int], Tensor]] = {"rank": rank_statistics}
