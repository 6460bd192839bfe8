"""Kills, writes that fail and damaged files by the thousand, counted by what came of them.

python lab/faults.py --kills 1000 --writes 1000 --files 2000 --json lab/rows/faults.json
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.fuzz import once, once_in_cache
from tests.faults.harness import ERRORS, Harness
from tests.faults.world import CASES


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    for what in ("kills", "writes", "files", "seed"):
        asked.add_argument(f"--{what}", type=int, default=0)
    asked.add_argument("--json", type=Path)
    given = asked.parse_args()
    started, found, wrong = time.monotonic(), dict[str, Counter[str]](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder))
        found["kills"] = _kills(harness, given.kills, given.seed, wrong)
        found["writes"] = _writes(harness, given.writes, given.seed, wrong)
        found |= _files(harness, given.files, given.seed, wrong)
        harness.close()
    for what, counts in found.items():
        print(what, dict(counts))
    print(*wrong, sep="\n")
    if given.json is not None:
        content = {what: dict(counts) for what, counts in found.items()} | {"wrong": wrong}
        given.json.write_text(json.dumps(content | {"seconds": round(time.monotonic() - started)}, indent=1) + "\n")


def _kills(harness: Harness, count: int, seed: int, wrong: list[str]) -> Counter[str]:
    chance, found, names = random.Random(seed), Counter[str](), list(CASES)
    for number in range(count):
        name = names[number % len(names)]
        found[_tried(lambda name=name: harness.kill(name, chance), wrong)] += 1
    return found


def _writes(harness: Harness, count: int, seed: int, wrong: list[str]) -> Counter[str]:
    chance, found = random.Random(seed), Counter[str]()
    every = [
        (name, at, *error)
        for name in CASES if count
        for at in range(1, harness.expected(name)[1].calls + 1)
        for error in ERRORS
    ]  # fmt: skip
    for name, at, kind, error in chance.sample(every, min(count, len(every))):
        found[_tried(lambda n=name, a=at, k=kind, e=error: harness.fail(n, a, k, e), wrong)] += 1
    return found


def _files(harness: Harness, count: int, seed: int, wrong: list[str]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        verdict = once_in_cache(harness, chance) if number % 8 == 0 else once(harness, chance, forged=number % 2 == 1)
        found.setdefault(f"files {verdict.kind}", Counter())[verdict.what] += 1
        if verdict.what not in ("right", "sentence"):
            wrong.append(f"{verdict.what}: {verdict.detail}")
    return found


def _tried(attempt: Callable[[], str], wrong: list[str]) -> str:
    try:
        attempt()
    except (AssertionError, TimeoutError) as error:
        wrong.append(str(error)[:500])
        return "lost or left something"
    return "the same to the bit"


if __name__ == "__main__":
    main()
