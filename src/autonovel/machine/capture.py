"""CUDA work that must not meet: one thread captures its step, another does something for the first time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# While a thread captures its step, no other may do CUDA work for the first time: loading its code would break the capture.
# Replaying captured steps is safe at any time.
_one_at_a_time = threading.RLock()


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture what is done inside."""
    with _one_at_a_time, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        yield


@contextmanager
def not_captured(device: torch.device) -> Iterator[None]:
    """For CUDA work outside of a captured step: makes threads that capture one wait, and waits for them."""
    if device.type != "cuda":
        yield
        return
    with _one_at_a_time:
        yield
