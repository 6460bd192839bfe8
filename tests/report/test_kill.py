"""The server killed at any moment: what the page confirmed is there afterwards."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time

from autonovel.api.run import Run, load
from tests.report.client import PATIENCE, Client

KILLS = int(os.environ.get("AUTONOVEL_KILLS", "10"))

SERVE = """
import sys
from autonovel.report.server import serve
from autonovel.api.run import load
serve(load(sys.argv[1]), open_page=False)
"""


def started(run: Run) -> tuple[subprocess.Popen[str], Client]:
    """A server in a process of its own, and a client that has entered."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(run.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    client = Client(next(word for word in server.stdout.readline().split() if word.startswith("http")))
    client.enter()
    return server, client


def test_ctrl_c_ends_it_without_a_word(run: Run) -> None:
    server, client = started(run)
    assert client.edit(do="name", cluster=0, name="heron", after=0).status == 200
    server.send_signal(signal.SIGINT)
    assert server.communicate(timeout=PATIENCE) == ("", "")
    assert server.returncode == 0
    assert load(run.path).names == {0: "heron"}


def test_every_confirmed_name_survives_kill_9(run: Run) -> None:
    chance = random.Random(0)
    confirmed: dict[int, str] = {}
    asked: dict[int, str] = {}
    total = 0
    for attempt in itertools.count():
        if attempt >= KILLS and total > KILLS:  # some were confirmed in between, on a busy machine after more kills
            break
        assert attempt < 20 * KILLS, "hardly a name is ever confirmed"
        server, client = started(run)
        edits = client.get("/api/run").json["edits"]
        killer = threading.Timer(chance.uniform(0.0, 0.25), server.kill)
        killer.start()
        deadline = time.monotonic() + PATIENCE
        try:
            for number in range(10**6):
                assert time.monotonic() < deadline, "the server was not killed"
                cluster, name = number % 5, f"name {attempt} {number}"
                asked[cluster] = name
                answer = client.edit(do="name", cluster=cluster, name=name, after=edits)
                assert answer.status == 200, answer
                edits = answer.json["edits"]
                confirmed[cluster] = name
                total += 1
        except (OSError, http.client.HTTPException):
            pass  # killed: the name asked for last was not confirmed, and may be there or not
        killer.join()
        server.communicate(timeout=PATIENCE)
        assert server.returncode == -signal.SIGKILL
        found = load(run.path).names
        for cluster, name in confirmed.items():
            assert found[cluster] in (name, asked[cluster])
        confirmed = dict(found)
    assert len(load(run.path).edits) >= total
