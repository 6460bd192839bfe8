"""A command is broken off or fails at some moment, and is given again: what is there then?"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.world import (
    CASES,
    FAIL,
    KILL,
    SHORT,
    TEAR,
    Case,
    Outcome,
    Zygote,
    compiled,
    is_a_sentence,
    leftovers,
    make_world,
    results,
    whole_world,
)

ERRORS = ((FAIL, errno.ENOSPC), (FAIL, errno.EIO), (SHORT, errno.ENOSPC))
"""How a write fails: no room, a broken disk, room for half of it."""


@dataclass
class Harness:
    """The world, and what each command makes of it when nothing happens."""

    scratch: Path
    zygote: Zygote = field(init=False)
    world: Path = field(init=False)
    counts: bool = field(init=False)
    _expected: dict[str, tuple[dict[str, Any], Outcome]] = field(default_factory=dict)
    _remembered: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        library = compiled(self.scratch)
        self.counts = library is not None
        self.zygote = Zygote(self.scratch, library, self.scratch / "cache")
        # always at one place, for which the runs in it have the paths of their images
        self.world = make_world(self.scratch / "world", self.zygote.run).rename(self.scratch / "master")

    def close(self) -> None:
        """End the zygote and remove the world."""
        self.zygote.stop()
        for folder in ("world", "master"):
            shutil.rmtree(self.scratch / folder, ignore_errors=True)

    def expected(self, name: str) -> tuple[dict[str, Any], Outcome]:
        """What the command makes, and how it ends."""
        if name not in self._expected:
            folder = self.fresh()
            done = self.zygote.run(list(CASES[name].words), folder)
            assert done.status == 0, done
            assert leftovers(folder) == []
            self._expected[name] = comparable(name, results(folder, CASES[name])), done
        return self._expected[name]

    def kill(self, name: str, chance: random.Random) -> str:
        """Kill the command at a random moment and give it again; says at which."""
        wanted, usual = self.expected(name)
        case, folder = CASES[name], self.fresh()
        before = comparable(name, results(folder, case))
        if self.counts and chance.random() < 0.7:
            at, kind = chance.randint(1, max(1, usual.calls)), chance.choice((KILL, TEAR))
            moment = f"{name}: killed at call {at} of {usual.calls}{' in the middle of it' if kind == TEAR else ''}"
            done = self.zygote.run(list(case.words), folder, kind=kind, at=at)
        else:
            after = chance.uniform(0, usual.seconds)
            moment = f"{name}: killed after {after:.3f} of {usual.seconds:.3f} s"
            done = self.zygote.run(list(case.words), folder, kill_after=after)
        self._check(name, case, folder, before, wanted, done, moment)
        return moment

    def fail(self, name: str, at: int, kind: int, error: int) -> str:
        """Let a call fail and give the command again; says which."""
        wanted, usual = self.expected(name)
        case, folder = CASES[name], self.fresh()
        before = comparable(name, results(folder, case))
        moment = (
            f"{name}: {'half a write and ' * (kind == SHORT)}{errno.errorcode[error]} at call {at} of {usual.calls}"
        )
        done = self.zygote.run(list(case.words), folder, kind=kind, at=at, error=error)
        assert done.status in (0, 1, 2), (moment, done)
        assert "Traceback" not in done.said, (moment, done.said)
        assert done.status == 0 or is_a_sentence(done), (moment, done)
        self._check(name, case, folder, before, wanted, done, moment)
        return moment

    def _check(
        self,
        name: str,
        case: Case,
        folder: Path,
        before: dict[str, Any],
        wanted: dict[str, Any],
        done: Outcome,
        moment: str,
    ) -> None:
        if case.once:
            there = comparable(name, results(folder, case))
            journal = f"{case.results[0]}/edits.jsonl"
            kept = there.get(journal, []) != before.get(journal, [])
            assert kept or done.status != 0, (moment, "was confirmed and is lost", done)
            _assert_same(there, wanted if kept else before, moment)
            if kept:
                return
        again = self.zygote.run(list(case.again or case.words), folder)
        all_moved = name == "export move" and "an earlier export left it in" in again.said
        assert again.status == 0 or all_moved, (moment, done, again)
        _assert_same(comparable(name, results(folder, case)), wanted, moment)
        assert leftovers(folder) == [], (moment, leftovers(folder))

    def remembered(self, what: str, make: Callable[[], Any]) -> Any:
        """What was made the first time."""
        if what not in self._remembered:
            self._remembered[what] = make()
        return self._remembered[what]

    def fresh(self) -> Path:
        """The world as it was, with an empty cache."""
        shutil.rmtree(self.scratch / "cache", ignore_errors=True)
        return whole_world(self.world, self.scratch / "world")


def comparable(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Without what may be one edit behind until the next, and without the order in which files were moved."""
    if name == "reproduce":  # a run that failed has a line that says so, and another one, later, once it is made
        found = {
            file: sorted((r for r in rows if "failed" not in r), key=str) if file.endswith("paper.jsonl") else rows
            for file, rows in found.items()
        }
    left_out = ("names.json", "map.npy") + (("files.csv", "problems.csv") if name == "export move" else ())
    return {file: content for file, content in found.items() if not file.endswith(left_out)}


def _assert_same(found: dict[str, Any], wanted: dict[str, Any], moment: str) -> None:
    differ = sorted(file for file in found.keys() | wanted.keys() if found.get(file) != wanted.get(file))
    shown = [
        (file, _short(wanted.get(file), found.get(file)), _short(found.get(file), wanted.get(file)))
        for file in differ[:3]
    ]
    assert not differ, f"{moment}: {len(differ)} files differ: {shown}"


def _short(content: Any, other: Any) -> str:
    if isinstance(content, list) and isinstance(other, list) and len(content) == len(other) == 1:
        content = {key: value for key, value in content[0].items() if other[0].get(key) != value}
    text = repr(content)
    return text if len(text) < 300 else f"{text[:300]} ... ({len(text)})"
