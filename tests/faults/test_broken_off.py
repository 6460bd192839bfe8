"""Every command that writes, killed at random moments or failing at a write, and given again: the same result to the bit."""

import os
import random

import pytest

from tests.faults.harness import ERRORS, Harness
from tests.faults.world import CASES, missing_verbs

SEED = int(os.environ.get("AUTONOVEL_FAULTS", "0"))


def test_every_command_that_writes_is_broken_off_here() -> None:
    assert missing_verbs() == set()


def test_a_dozen_kills(harness: Harness) -> None:
    chance = random.Random(SEED)
    for name in ("discover", "discover", "cluster", "next round", "name", "regroup", "undo", "predict csv", "report"):
        harness.kill(name, chance)
    for name in chance.sample(sorted(name for name, case in CASES.items() if not case.slow), 3):
        harness.kill(name, chance)


@pytest.mark.parametrize("name", ["name", "predict csv", "export csv"])
def test_every_write_may_fail(harness: Harness, name: str) -> None:
    if not harness.counts:
        pytest.skip("needs a C compiler")
    for number, at in enumerate(range(1, harness.expected(name)[1].calls + 1)):
        harness.fail(name, at, *ERRORS[number % len(ERRORS)])


def test_some_writes_of_a_training_may_fail(harness: Harness) -> None:
    if not harness.counts:
        pytest.skip("needs a C compiler")
    chance = random.Random(SEED)
    for at in chance.sample(range(1, harness.expected("discover")[1].calls + 1), 2):
        harness.fail("discover", at, *chance.choice(ERRORS))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_kills(harness: Harness, name: str) -> None:
    chance = random.Random(f"{SEED} {name}")
    for _ in range(CASES[name].kills):
        harness.kill(name, chance)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_writes_that_fail(harness: Harness, name: str) -> None:
    if not harness.counts:
        pytest.skip("needs a C compiler")
    chance = random.Random(f"{SEED} {name}")
    calls, case = range(1, harness.expected(name)[1].calls + 1), CASES[name]
    for at in chance.sample(calls, case.some_writes) if case.some_writes else calls:
        for kind, error in [ERRORS[at % len(ERRORS)]] if case.slow else ERRORS:
            harness.fail(name, at, kind, error)
