"""Kills, writes that fail, damaged files and requests by the thousand, counted by what came of them.

python lab/faults.py --kills 1000 --writes 1000 --files 2000 --requests 10000 --json lab/rows/faults.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from autonovel.report.guard import Guard
from autonovel.report.server import Site, make_app
from autonovel.report.session import Session
from autonovel.runs.folder import load
from tests.faults.fuzz import damaged
from tests.faults.harness import ERRORS, Harness
from tests.faults.world import CASES, draw
from tests.report.client import Client
from tests.report.test_requests import HOME, PATHS, PORT, ask, cookie_of


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    for what in (*PARTS, "seed"):
        asked.add_argument(f"--{what}", type=int, default=0)
    asked.add_argument("--json", type=Path)
    given = asked.parse_args()
    tally = Tally(given.json)
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder))
        for what, part in PARTS.items():
            if getattr(given, what.replace("-", "_")):
                part(harness, getattr(given, what.replace("-", "_")), given.seed, tally)
        harness.close()
    tally.save()
    for what, counts in tally.found.items():
        print(what, dict(counts))
    print(*tally.wrong, sep="\n")


@dataclass
class Tally:
    """What came of everything so far; written now and then, so that a run that is stopped says something too."""

    file: Path | None
    found: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    def add(self, what: str, came: str, wrong: str = "") -> None:
        self.found.setdefault(what, Counter())[came] += 1
        if wrong:
            self.wrong.append(wrong)
        if sum(map(Counter.total, self.found.values())) % 20 == 0:
            self.save()

    def save(self) -> None:
        if self.file is not None:
            content = {what: dict(counts) for what, counts in self.found.items()} | {"wrong": self.wrong}
            content["seconds"] = round(time.monotonic() - self._started)
            self.file.write_text(json.dumps(content, indent=1) + "\n")

    def attempt(self, what: str, attempt: Callable[[], str]) -> None:
        try:
            attempt()
        except (AssertionError, TimeoutError) as error:
            self.add(what, "lost or left something", str(error)[:500])
        else:
            self.add(what, "the same to the bit")


def _kills(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    chance, names = random.Random(seed), list(CASES)
    for number in range(count):
        name = names[number % len(names)]
        tally.attempt("kills", lambda name=name: harness.kill(name, chance))


def _writes(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    chance = random.Random(seed)
    every = [
        (name, at, *error) for name in CASES for at in range(1, harness.expected(name)[1].calls + 1) for error in ERRORS
    ]
    for name, at, kind, error in chance.sample(every, min(count, len(every))):
        tally.attempt("writes", lambda n=name, a=at, k=kind, e=error: harness.fail(n, a, k, e))


def _every_write(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    """Every write of a whole discovery, each failing in every way; ``count`` and ``seed`` say where to begin."""
    for at in range(count, harness.expected("discover")[1].calls + 1):
        for kind, error in ERRORS:
            tally.attempt("every write of discover", lambda a=at, k=kind, e=error: harness.fail("discover", a, k, e))


def _files(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        verdict = damaged(harness, chance, number)
        odd = verdict.what not in ("right", "sentence")
        tally.add(f"files {verdict.kind}", verdict.what, f"{verdict.what}: {verdict.detail}" if odd else "")


def _requests(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    """Requests of a page that stays open: who may not is refused, every tenth is a change, and the process does not grow."""
    run = load(harness.fresh() / "named")
    guard, chance = Guard(make_app(Session(run)), PORT), random.Random(seed)
    right = {"Host": HOME, "Origin": f"http://{HOME}", "Cookie": cookie_of(guard)}
    process, first = psutil.Process(), 0
    for number in range(count):
        headers = dict(right)
        odd = chance.choice(("Host", "Origin", "Cookie", "", "", ""))
        if odd:
            headers[odd] = "evil.example"
        method, path = chance.choice(("GET", "HEAD", "POST")), chance.choice(PATHS)
        body = b"{"
        if number % 10 == 0 and not odd:
            wish = {"do": "name", "cluster": 0, "name": f"name {number}", "after": len(run.edits)}
            method, path, body = "POST", "/api/edit", json.dumps(wish).encode()
        answer = ask(guard, method, path, headers, body)
        refused = answer.status == 403
        tally.add("requests", "refused" if refused else "answered" if answer.status < 500 else "failed")
        if refused != bool(odd) or answer.status >= 500:
            tally.wrong.append(f"{method} {path} {odd}: {answer}"[:300])
        if number == count // 10:
            first = process.memory_info().rss
    tally.found["requests"]["KiB grown after the first tenth"] = (process.memory_info().rss - first) // 1024
    tally.found["requests"]["edits kept"] = len(load(run.path).edits)


def _clients(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    """So many browsers at once for a minute, each of them looking and naming; what was confirmed is in the journal."""
    run = load(harness.fresh() / "named")
    before, confirmed, until = len(run.edits), Counter[str](), time.monotonic() + 60
    with Site(run) as site:
        first = Client(site.url)
        first.enter()

        def visit(number: int) -> None:
            client, chance = Client(site.url), random.Random(f"{seed} {number}")
            client.cookie = first.cookie
            while time.monotonic() < until:
                edits = client.get("/api/run").json["edits"]
                client.get(chance.choice(("/", "/api/cells", "/api/clusters/0", "/api/map", "/api/images/0")))
                status = client.edit(do="name", cluster=0, name=f"{number} {edits}", after=edits).status
                confirmed[{200: "confirmed", 409: "came second"}.get(status, f"status {status}")] += 1

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(visit, range(count)))
    tally.found["clients: changes"] = confirmed
    tally.found["clients: edits lost"] = Counter(lost=before + confirmed["confirmed"] - len(load(run.path).edits))


def _pictures(harness: Harness, count: int, seed: int, tally: Tally) -> None:
    """The peak memory of predict, all its processes together, for so many pictures of 64 pixels."""
    folder = harness.fresh()
    for name, kinds, each in (("labelled", (0, 1), 30), ("unlabelled", (2, 3), 30), ("further", (4,), count)):
        for kind in kinds:
            draw(folder / name / f"kind {kind}", kind, each, seed, side=64)
    words = ("discover", "labelled", "unlabelled", "--out", "found", "--n-new", "2", "--method", "features")
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "autonovel"]
    subprocess.run([*command, *words], cwd=folder, env=environment, check=True, capture_output=True)
    words = ("predict", "found", "further", "--to", "found.csv")
    process = subprocess.Popen([*command, *words], cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    peak, started = 0, time.monotonic()
    while process.poll() is None:
        peak = max(peak, _taken(psutil.Process(process.pid)))
        time.sleep(0.5)
    rows = (folder / "found.csv").read_bytes().count(b"\n") - 1
    tally.found[f"predict of {count} pictures"] = Counter(
        {"MiB at most": peak // 2**20, "rows": rows, "seconds": round(time.monotonic() - started)}
    )


def _taken(process: psutil.Process) -> int:
    """Bytes that a process holds, and those of the processes it has started that are theirs alone."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it may just have ended
            memory = one.memory_full_info()
            total += memory.rss if one == process else memory.uss
    return total


PARTS: dict[str, Callable[[Harness, int, int, Tally], None]] = {
    "kills": _kills,
    "writes": _writes,
    "every-write-from": _every_write,
    "files": _files,
    "requests": _requests,
    "clients": _clients,
    "pictures": _pictures,
}


if __name__ == "__main__":
    main()
