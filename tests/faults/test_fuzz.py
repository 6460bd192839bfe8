"""Damaged files of a run and of the caches: right or a sentence, never anything of Python's, never another answer."""

import os
import random

import pytest

from tests.faults.fuzz import Verdict, damaged
from tests.faults.harness import Harness

MANY = int(os.environ.get("AUTONOVEL_FUZZ", "250"))


def verdict(harness: Harness, seed: int) -> Verdict:
    return damaged(harness, random.Random(seed), seed)


def test_some_damaged_files(harness: Harness) -> None:
    found = [verdict(harness, seed) for seed in range(1, 13)]
    assert [v for v in found if v.what not in ("right", "sentence")] == []
    assert {v.what for v in found} == {"right", "sentence"}


@pytest.mark.long
def test_many_damaged_files(harness: Harness) -> None:
    found = [verdict(harness, seed) for seed in range(13, 13 + MANY)]
    assert [v for v in found if v.what not in ("right", "sentence")] == []
