"""The journal: what was confirmed is there, whatever happens."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autonovel.api.run import load
from autonovel.base.errors import InputError
from autonovel.runs.journal import open_journal, read_entries
from tests.runs.made import make_run

LINE = '{"do":"name","cluster":0,"name":"heron"}\n'


@pytest.mark.parametrize(
    "rest", ['{"do":"na', '{"do":"name","cluster":0,"name":"x"}', "\x00\x00\x00", "nonsense\n", "[1]\n"]
)
def test_a_line_that_a_crash_cut_off_is_ignored_and_overwritten(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "edits.jsonl"
    path.write_text(LINE + rest)
    assert read_entries(path) == [json.loads(LINE)]
    with open_journal(path) as journal:
        assert journal.entries == [json.loads(LINE)]
        journal.append({"do": "undo"})
    assert read_entries(path) == [json.loads(LINE), {"do": "undo"}]
    assert path.read_text().startswith(LINE + '{"do":"undo","check":"')
    path.write_text(path.read_text() + rest)
    assert read_entries(path) == [json.loads(LINE), {"do": "undo"}]


def test_damage_before_the_last_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "edits.jsonl"
    path.write_text(LINE + "nonsense\n" + LINE)
    with pytest.raises(InputError, match=r"Line 2 of .*edits.jsonl is damaged"):
        read_entries(path)


def edited(path: Path) -> list[bytes]:
    """A run with three edits, and the lines of its journal."""
    make_run(path, [0, 1, 2] * 4).name(0, "heron").merge(1, 2).name(0, "egret")
    return (path / "edits.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_confirmed_line_that_has_rotted_is_refused(tmp_path: Path, line: int) -> None:
    lines = edited(tmp_path / "run")
    path = tmp_path / "run" / "edits.jsonl"
    for place in range(0, len(lines[line]), 3):
        rotted = bytearray(lines[line])
        rotted[place] ^= 4
        path.write_bytes(b"".join([*lines[:line], rotted, *lines[line + 1 :]]))
        for use in (lambda run: run.names, lambda run: run.name(1, "stork")):
            with pytest.raises(InputError, match=r"edits.jsonl"):
                use(load(tmp_path / "run"))


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_edits_that_are_gone_are_missed(tmp_path: Path, kept: int) -> None:
    lines = edited(tmp_path / "run")
    path, names = tmp_path / "run" / "edits.jsonl", (tmp_path / "run" / "names.json").read_bytes()
    path.write_bytes(b"".join(lines[:kept]))
    if not kept:
        path.unlink()
    for use in (lambda run: run.names, lambda run: run.name(1, "stork"), lambda run: run.undo()):
        with pytest.raises(InputError, match=r"has lost its last (edit|[23] edits) \(of 3\); put back a copy"):
            use(load(tmp_path / "run"))
    (tmp_path / "run" / "edits.json").unlink()
    if not kept or kept == 1:  # the last name is lost
        with pytest.raises(InputError, match="called 'egret', of which .*edits.jsonl knows nothing"):
            load(tmp_path / "run").name(1, "stork")
        assert (tmp_path / "run" / "names.json").read_bytes() == names
        (tmp_path / "run" / "names.json").unlink()
        assert load(tmp_path / "run").name(1, "stork").names[1] == "stork"


def test_lines_taken_out_or_exchanged_are_noticed(tmp_path: Path) -> None:
    first, second, third = edited(tmp_path / "run")
    for lines in ([second, third], [first, third], [second, first, third], [first, first, second, third]):
        (tmp_path / "run" / "edits.jsonl").write_bytes(b"".join(lines))
        with pytest.raises(InputError, match=r"edits.jsonl"):
            load(tmp_path / "run").names  # noqa: B018


def test_a_journal_ahead_of_what_was_confirmed_is_whole(tmp_path: Path) -> None:
    """As after a kill between the line and the file that counts it."""
    run = make_run(tmp_path / "run", [0, 1, 2] * 4).name(0, "heron")
    before = (run.path / "edits.json").read_bytes(), (run.path / "names.json").read_bytes()
    run.name(1, "egret")
    (run.path / "edits.json").write_bytes(before[0])
    (run.path / "names.json").write_bytes(before[1])
    assert load(run.path).names == {0: "heron", 1: "egret"}
    assert len(load(run.path).undo().edits) == 3


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["edits.jsonl", "edits.json"])
def test_a_journal_that_leads_elsewhere_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    run = make_run(tmp_path / "run", [0, 1, 2] * 4)
    victim = tmp_path / "authorized_keys"
    victim.write_text("ssh-ed25519 AAAA\n")
    path = run.path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "link" else tmp_path / "new")
    for use in (lambda run: run.names, lambda run: run.name(1, "stork")):
        with pytest.raises(InputError, match=r"is (a link|no file|a folder)"):
            use(load(run.path))
    assert victim.read_text() == "ssh-ed25519 AAAA\n"
    assert not (tmp_path / "new").exists()


def test_edits_of_another_run_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1])
    (run.path / "edits.jsonl").write_text('{"do":"move","rows":[7],"cluster":0}\n')
    with pytest.raises(InputError, match="do not fit its predictions.csv"):
        run.labels  # noqa: B018
    (run.path / "edits.jsonl").write_text('{"do":"fly"}\n')
    with pytest.raises(InputError, match="do not fit its predictions.csv"):
        load(run.path).classes  # noqa: B018


@pytest.mark.parametrize(
    "line",
    [
        {"do": "name", "cluster": 5, "name": "heron"},
        {"do": "mark", "cluster": 5, "as": "not a class"},
        {"do": "merge", "into": 5, "clusters": [0]},
        {"do": "move", "rows": [0], "cluster": 5},
        {"do": "move", "rows": [0], "known": "heron"},
        {"do": "split", "cluster": 5, "parts": {"2": [0]}},
        {"do": "split", "cluster": 0, "parts": [0]},
        {"do": "regroup", "k": 2, "numbers": [0, 1], "kept": [], "clusters": [0]},
        {"do": "dissolve", "cluster": 5, "parts": {}},
        {"do": "dissolve", "cluster": 0, "parts": {}},
        {"do": "dissolve", "cluster": 0, "parts": {"0": [0]}},
        {"do": "dissolve", "cluster": 0, "parts": {"-9": [0]}},
        {"do": "undo"},
        {"do": ["name"]},
    ],
    ids=lambda line: json.dumps(line),
)
def test_lines_that_no_edit_of_this_run_leaves_are_refused(tmp_path: Path, line: dict[str, object]) -> None:
    run = make_run(tmp_path / "run", [0, 1])
    (run.path / "edits.jsonl").write_text(json.dumps(line) + "\n")
    for look in (lambda r: r.predictions, lambda r: r.names, lambda r: r.labels, lambda r: r.name(0, "x")):
        with pytest.raises(InputError, match="do not fit its predictions.csv"):
            look(load(run.path))


FULL = """
import resource, sys
from pathlib import Path
from autonovel.base.errors import TrainingError
from autonovel.runs.journal import open_journal
path = Path(sys.argv[1])
with open_journal(path) as journal:
    journal.append({"do": "undo"})
before = path.read_bytes()
resource.setrlimit(resource.RLIMIT_FSIZE, (30, 30))
try:
    with open_journal(path) as journal:
        journal.append({"do": "name", "cluster": 0, "name": "heron"})
except TrainingError as error:
    print(error)
assert path.read_bytes() == before
"""


def test_a_full_disk_is_said_and_leaves_no_half_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "edits.jsonl"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "The edit could not be kept" in done.stdout
    assert "do it again" in done.stdout


def test_threads_and_processes_take_turns(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1, 2] * 4)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda i: load(run.path).name(0, f"name {i}"), range(40)))
    assert sorted(entry["name"] for entry in run.edits) == sorted(f"name {i}" for i in range(40))
    assert json.loads((run.path / "names.json").read_text()) == {"0": run.names[0]}


@pytest.mark.parametrize("name", ["names.json", "edits.json", "edits.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_beside_the_journal_is_no_pipe_and_no_link(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    run = make_run(tmp_path / "run", [0, 1, 2] * 4).name(0, "heron")
    (run.path / "edits.json").unlink()
    (run.path / name).unlink(missing_ok=True)
    make(run.path / name)
    with pytest.raises(InputError, match=r"is no file|is a link"):
        _ = load(run.path).edits


NAMING = """
import itertools, sys
import autonovel as an
run = an.load(sys.argv[1])
for i in itertools.count():
    run.name(i % 3, f"{sys.argv[2]} {i}")
    print(f"{sys.argv[2]} {i}", flush=True)
"""


def test_what_was_confirmed_survives_kill_9(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1, 2] * 4)
    chance = random.Random(0)
    confirmed: list[str] = []
    for attempt in range(15):
        process = subprocess.Popen(
            [sys.executable, "-c", NAMING, run.path, f"try {attempt}"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
        process.wait()
        confirmed += [line for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")]
    assert len(confirmed) > 15
    kept = [entry["name"] for entry in load(run.path).edits]
    wanted = [line.rstrip("\n") for line in confirmed]
    assert [name for name in kept if name in set(wanted)] == wanted
    assert len(kept) <= len(wanted) + 15  # at most one each that was kept and not told any more
    run.name(0, "heron")
    assert load(run.path).names[0] == "heron"
