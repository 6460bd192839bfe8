"""The command line as its users meet it: a process with arguments, two streams, an exit status, and signals."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.conftest import Call
from tests.cli.test_main import assert_refused

EPOCHS = 30  # so many that a run is not over before it can be interrupted
TINY = """
    --device cpu --model.width 4 --model.size 16 --pretrain.epochs 1 --pretrain.batch 50 --supervised.epochs 1
    --supervised.batch 50 --joint.batch 50 --joint.lr 0.01 --joint.ramp 5
""".split()
STAGES = ("pretrain", "supervised", "joint")
# one thread: sums come out the same to the bit however busy the machine is
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "autonovel", *map(str, words)]


def autonovel(*words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    env = ENVIRONMENT | environment
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=100, cwd=cwd, env=env)


def discovery(cifar: Path, out: Path, *more: object) -> list[object]:
    words = ["discover", "--data", "cifar10", "--root", cifar, "--unverified", "--out", out]
    # the report is drawn by the demo below; here it would only take time
    return [*words, "--n-new", "5", "--no-report", "--joint.epochs", EPOCHS, *TINY, *more]


@pytest.fixture(scope="module")
def whole(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    result = autonovel(*discovery(cifar, out))
    assert result.returncode == 0, result.stderr
    check_streams(result)
    return out


def check_streams(result: subprocess.CompletedProcess[str]) -> None:
    """Progress on stderr as plain lines, one an epoch; the table on stdout."""
    told = [line for line in result.stderr.splitlines() if line.startswith("joint ")]
    assert [line.split()[1] for line in told] == [f"{i}/{EPOCHS}" for i in range(1, EPOCHS + 1)]
    assert all(line.endswith(" left") for line in told)
    first = next(line for line in result.stderr.splitlines() if line.startswith("pretrain 1/1 "))
    assert re.search(r"about [0-9:]+ left$", first)  # over all stages, of which two are still unknown
    assert not first.endswith("about 0:00 left")
    assert "\x1b" not in result.stderr + result.stdout
    assert "\r" not in result.stderr + result.stdout
    assert "5 new classes among 100 unlabelled images" in result.stdout
    for word in ("matched class", "ACC", "NMI", "ARI", "k-means on supervised features", "test split, separate"):
        assert word in result.stdout


# ---- refusals


def test_data_that_is_missing_or_not_the_published_one(cifar: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    nowhere = call("discover", "--data", "cifar10", "--root", tmp_path / "nowhere", "--out", out)
    assert_refused(nowhere, f"There is no folder {tmp_path / 'nowhere'}", "--root")
    empty = call("discover", "--data", "cifar10", "--root", tmp_path, "--out", out)
    assert_refused(empty, str(tmp_path), "cifar-10-batches-py")
    other = call("discover", "--data", "cifar10", "--root", cifar, "--out", out)
    assert_refused(other, "md5 differs", "--unverified", "cifar-10-batches-py")
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--joint.top-k", "33"], "top_k is 33, but features have 32 components"),
        (["--start-from", "nowhere"], "no run in nowhere"),
    ],
)
def test_settings_that_cannot_work(
    cifar: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, more: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(call(*discovery(cifar, tmp_path / "run", *more)), part)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_recipe_is_refused_and_left_alone(cifar: Path, whole: Path, call: Call) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file() and path.name != "lock"}
    result = call(*discovery(cifar, whole, "--joint.top-k", "3", "--seed", "4"))
    assert_refused(result, str(whole), "recipe.joint.top_k is 5 there, 3 now", "seed is 0 there, 4 now")
    assert before == {path: path.stat().st_mtime_ns for path in before}


# ---- whole runs


def test_the_same_command_again_does_nothing_and_prints_the_result(cifar: Path, whole: Path, call: Call) -> None:
    before = (whole / "joint.safetensors").stat().st_mtime_ns
    result = call(*discovery(cifar, whole, "--json"))
    assert result.returncode == 0
    assert (whole / "joint.safetensors").stat().st_mtime_ns == before
    assert json.loads(result.stdout) == json.loads((whole / "summary.json").read_text())
    assert "finished already" in result.stderr


def test_a_benchmark_with_labels_is_clustered_without_them(cifar: Path, tmp_path: Path, call: Call) -> None:
    words = [
        "cluster",
        "--recipe",
        "cifar10",
        "--data",
        "cifar10",
        "--root",
        cifar,
        "--unverified",
        "--k",
        "true",
        "--joint.epochs",
        1,
        *TINY,
    ]
    result = call(*words, "--out", tmp_path / "run", "--json")
    assert result.returncode == 0, result.stderr

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    summary = json.loads(result.stdout, parse_constant=refuse)
    assert (summary["n_known"], summary["n_new"]) == (0, 10)
    assert summary["test"]["single"]["old"] is None
    assert summary["test"]["single"]["new"] == summary["test"]["single"]["all"]
    again = call(*words, "--out", tmp_path / "run")
    assert again.returncode == 0, again.stderr
    assert "test split, single matching: new" in again.stdout


def test_an_estimate_is_printed_with_what_is_known_of_it(cifar: Path, tmp_path: Path, call: Call) -> None:
    words = ["estimate", "--data", "cifar10", "--root", cifar, "--unverified", *TINY, "--out", tmp_path / "run"]
    words += ["--estimate.max-new", 8]
    told = call(*words)
    assert told.returncode == 0, told.stderr
    assert "The truth is 5." in told.stdout
    assert (tmp_path / "run" / "estimate.png").exists()
    assert str(tmp_path / "run" / "estimate.png") in told.stdout
    found = json.loads(call(*words, "--json").stdout)
    assert told.stdout.startswith(f"{found['n_new']} new classes")
    assert (found["interval"] is not None) == ("between" in told.stdout)


def test_too_little_room_and_memory_are_said_in_a_sentence(cifar: Path, tmp_path: Path, call: Call) -> None:
    # a limit on the size of files stands for a full disk
    narrow = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # noqa: E731
    words = command(*discovery(cifar, tmp_path / "run"))
    full = subprocess.run(words, capture_output=True, text=True, timeout=100, env=ENVIRONMENT, preexec_fn=narrow)
    assert full.returncode == 1
    assert "pretrain.safetensors cannot be written" in full.stderr
    assert "Traceback" not in full.stderr
    large = call("demo", "--out", tmp_path / "demo", "--device", "cpu", "--joint.hidden", 10**12)
    assert large.returncode == 1
    assert "not enough memory" in large.stderr


def test_demo_prints_the_table_and_json(tmp_path: Path, call: Call) -> None:
    words = ["demo", "--out", tmp_path / "run", "--device", "cpu", "--joint.epochs", 1, "--model.networks", 2]
    words += ["--model.width", 4]
    result = call(*words)
    assert result.returncode == 0, result.stderr
    assert "5 new classes among 896 unlabelled images" in result.stdout
    assert "k-means on pixels: ACC 8" in result.stdout
    for line in ("supervised 1/1", "joint 1/1", "supervised-2 1/1", "joint-2 1/1"):
        assert line in result.stderr
        assert line not in result.stdout
    assert f"autonovel name {tmp_path / 'run'} 0 NAME" in result.stdout.splitlines()[-1]
    told = call(*words, "--json")
    summary = json.loads(told.stdout)  # nothing else on stdout
    always = {"n_known", "n_new", "n_new_estimated", "images", "seconds", "device", "seed", "recipe"}
    assert set(summary) >= always | {"acc_new", "nmi_new", "ari_new"}
    assert sum(summary["cluster_sizes"]) == 896
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"report.html", "clusters.png"}


# ---- kill and continue


def told_epochs(out: Path, stage: str) -> int:
    file = out / "metrics.jsonl"
    return file.read_text().count(f'"stage": "{stage}"') if file.exists() else 0


def wait_for(process: subprocess.Popen[str], out: Path, epochs: int) -> None:
    """Until so many epochs of joint training are over; the process must still be at work then."""
    deadline = time.monotonic() + 300
    while told_epochs(out, "joint") < epochs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(*words: object, code: str | None = None) -> subprocess.Popen[str]:
    line = command(*words) if code is None else [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def assert_same_run(out: Path, whole: Path) -> None:
    for stage in STAGES:
        one, other = load_file(out / f"{stage}.safetensors"), load_file(whole / f"{stage}.safetensors")
        assert one.keys() == other.keys()
        for name in one:
            assert torch.equal(one[name], other[name]), f"{stage}: {name}"
    for file in ("predictions.csv", "features.npy", "config.json"):
        assert (out / file).read_bytes() == (whole / file).read_bytes()
    lines = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (out, whole)]
    records = [[(m["stage"], m["epoch"], m["lr"], m["losses"]) for m in run] for run in lines]
    assert records[0] == records[1]  # every epoch once, in order, with the same losses
    assert [path.name for path in (out / "state").iterdir()] == ["lock"]


EAGER = """
import functools, sys
import autonovel.discovery.run_stages as walk
from autonovel.cli.main import main
# the state is kept after each epoch, not every few seconds
walk.train = functools.partial(walk.train, checkpoint_seconds=0.0)
sys.exit(main())
"""


def test_an_interrupted_or_killed_run_continues_to_the_same_bits(cifar: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for kind, epochs in ((signal.SIGTERM, 3), (signal.SIGINT, 8)):
        process = start(*discovery(cifar, out))
        wait_for(process, out, epochs)
        process.send_signal(kind)
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 130
        assert stderr.splitlines()[-1] == "autonovel: Interrupted; the same command continues from here."
        assert "Traceback" not in stderr
        assert (out / "state" / "joint.safetensors").exists()
        assert not (out / "summary.json").exists()
    before = told_epochs(out, "joint")
    process = start(*discovery(cifar, out), code=EAGER)
    wait_for(process, out, before + 5)
    process.kill()
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    rest = autonovel(*discovery(cifar, out))
    assert rest.returncode == 0, rest.stderr
    resumed = next(line for line in rest.stderr.splitlines() if "joint: resuming after epoch " in line)
    assert int(resumed.split("epoch ")[1].split()[0]) >= before + 4
    assert "supervised 1/1" not in rest.stderr  # finished stages are not done again
    assert_same_run(out, whole)


def test_two_processes_do_not_work_in_one_folder(cifar: Path, whole: Path, call: Call) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (whole / "state" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_refused(call(*discovery(cifar, whole)), "Another process is working in", str(whole))
