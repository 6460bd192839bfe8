"""Contrastive losses, and what they keep from step to step: a queue of past rows and a slowly moving copy of weights.

Vectors may have any length; they are compared by their directions, in float32. What is kept has a fixed shape and is updated
by the same operations in every step, so that all of it can be part of a captured step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.errors import InputError


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """SimCLR's loss (Chen et al., 2020): each view finds its partner among all other views of the batch.

    Args:
        first, second: (n, d), the same images in the same order.
        temperature: divides the cosines.

    Returns:
        The mean cross-entropy over all 2 n views.
    """
    n = len(first)
    unit = F.normalize(torch.cat([first, second]).float(), dim=1)
    itself = torch.eye(2 * n, dtype=torch.bool, device=unit.device)
    scores = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    partner = torch.arange(2 * n, device=unit.device).roll(n)
    return F.cross_entropy(scores, partner)


def labelled_nt_xent(first: Tensor, second: Tensor, labels: Tensor, temperature: float, known_share: float) -> Tensor:
    """SimCLR's loss in which a labelled view looks for its class too (Khosla et al., 2020; Vaze et al., 2022).

    Args:
        first, second: (n, d), the same images in the same order.
        labels: int64 (n,), -1 where unlabelled.
        temperature: divides the cosines.
        known_share: how much of a labelled view's loss is the mean over all other views of its class; the rest is its partner.

    Returns:
        The mean cross-entropy over all 2 n views.
    """
    n = len(first)
    unit = F.normalize(torch.cat([first, second]).float(), dim=1)
    itself = torch.eye(2 * n, dtype=torch.bool, device=unit.device)
    log_likely = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf).log_softmax(1)
    partner = torch.arange(2 * n, device=unit.device).roll(n)
    alone = -log_likely.gather(1, partner[:, None])[:, 0]
    both = labels.repeat(2)
    alike = (both[:, None] == both) & (both >= 0) & ~itself
    # a labelled view has its partner beside it, so there is always someone to find
    of_class = -torch.where(alike, log_likely, 0.0).sum(1) / alike.sum(1).clamp(min=1)
    return torch.where(both >= 0, known_share * of_class + (1 - known_share) * alone, alone).mean()


def info_nce(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """MoCo's loss (He et al., 2020): each query finds the key of its own image among the keys of a queue.

    Args:
        queries, keys: (n, d), two views of the same images; no gradient flows into the keys.
        queue: (q, d), keys of other images.
        temperature: divides the cosines.

    Returns:
        The mean cross-entropy over the queries.
    """
    query, key, others = (F.normalize(x.float(), dim=1) for x in (queries, keys.detach(), queue))
    scores = torch.cat([(query * key).sum(1, keepdim=True), query @ others.T], 1) / temperature
    return F.cross_entropy(scores, torch.zeros(len(query), dtype=torch.int64, device=scores.device))


def push(queue: Tensor, written: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A queue with these rows in the place of its oldest ones.

    Args:
        queue: (q, ...).
        written: int64 scalar, how many rows were ever written; the first goes to place 0, and after the last place comes 0.
        rows: (n, ...), n no larger than q.

    Returns:
        The queue and ``written`` afterwards; the arguments stay as they are.
    """
    size, n = len(queue), len(rows)
    if n > size:
        raise InputError(f"A queue of {size} cannot take {n} rows at once; make it at least as long as a batch.")
    # each place asks which new row it gets, if any
    number = (torch.arange(size, device=queue.device) - written) % size
    new = rows.index_select(0, number.clamp(max=n - 1)).to(queue.dtype)
    is_new = (number < n).view(-1, *[1] * (queue.dim() - 1))
    return torch.where(is_new, new, queue), written + n


@torch.no_grad()
def follow(slow: Sequence[Tensor], fast: Sequence[Tensor], momentum: float) -> None:
    """Move weights a little towards others, in place: slow = momentum x slow + (1 - momentum) x fast."""
    torch._foreach_lerp_(list(slow), list(fast), 1 - momentum)
