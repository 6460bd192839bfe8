"""All randomness, and none of it has a state.

A random number is a hash of (key, image, slot): the key stands for the seed, stage, epoch and step, the slot for what the number
is used for. So the variation of an image in a step is the same on every device, in every batch layout and after every restart,
and a captured step needs no generator. Orders and first weights come from generators that such a key seeds.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def make_key(*parts: object) -> int:
    """A 31-bit number from anything printable: the key of a seed, stage and epoch."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


def _mix(x: Tensor) -> Tensor:
    """A bijective 32-bit hash on int64 tensors that hold values below 2^32 (two multiply-xorshift rounds)."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def _spread(x: Tensor, step: int, number: int) -> Tensor:
    """``number`` steps further, modulo 2^32.

    The number is Python's: one counted on the device is an int32 index to torch's compiler, too small for the product.
    """
    return (x + (step * number & _MASK)) & _MASK


class Chance:
    """Random numbers for a batch of images.

    Args:
        key: int64 scalar tensor, from :func:`make_key`.
        index: int64 (n,), which image of the data set each row is.
        view: tells the views of the same image apart; for a range of views there is a row for each image in each of them.
    """

    AT_ONCE = 8
    """Slots that are hashed together: one by one, that would be most of the operations of a small step."""

    def __init__(self, key: Tensor, index: Tensor, view: int | range = 0) -> None:
        views = range(view, view + 1) if isinstance(view, int) else view
        self._base = _mix(torch.cat([_spread(index, 0x9E3779B9, v + 1) for v in views])) ^ _mix(key & _MASK)
        self._slot = 0
        self._ready: list[Tensor] = []

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        """The next number for each image, float32 (n,) in [low, high)."""
        if not self._ready:
            slots = range(self._slot + 1, self._slot + self.AT_ONCE + 1)
            bits = _mix(_mix(torch.stack([_spread(self._base, 0x85EBCA6B, slot) for slot in slots])) ^ self._base)
            self._ready = list(((bits >> 8).float() / float(1 << 24)).unbind())
            self._slot += self.AT_ONCE
        return low + (high - low) * self._ready.pop(0)

    def integer(self, low: int, high: int) -> Tensor:
        """The next whole number for each image, int64 (n,) in [low, high]."""
        span = high - low + 1
        return low + (self.uniform() * span).long().clamp_(max=span - 1)

    def coin(self, p: float = 0.5) -> Tensor:
        """True with chance p, bool (n,)."""
        return self.uniform() < p


def host_generator(*key: object) -> torch.Generator:
    """A generator on the CPU that depends on nothing but the key."""
    return torch.Generator().manual_seed(make_key(*key))


_creating = threading.Lock()


@contextmanager
def seeded(*key: object) -> Iterator[None]:
    """Make the weights created inside depend on nothing but the key, and leave torch's own randomness as it was."""
    with _creating, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(make_key(*key))
        yield
