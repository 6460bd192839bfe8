"""Several processes give what one gives, write one run folder, and end together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from autonovel.api.run import load
from autonovel.base.errors import InputError
from autonovel.cli.main import main
from autonovel.machine.device import Mode
from autonovel.machine.launch import Launch, launched
from autonovel.machine.processes import ALONE, Share, World, join, may_speak
from autonovel.runs.shared import SharedFolder
from tests.small_data import write_small_cifar10
from tests.together import ESTIMATORS, KINDS, LONG, estimate, exact, long, short, train_kind

TIMEOUT = 150
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def start_two(*words: object) -> list[subprocess.Popen[str]]:
    """The same Python command in two processes that know of each other as torchrun would tell them."""
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, words)],
            env={**ENVIRONMENT, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def ends(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Status, stdout and stderr of each; none may hang."""
    try:
        told = [process.communicate(timeout=TIMEOUT) for process in processes]
        return [(process.returncode, *both) for process, both in zip(processes, told, strict=True)]
    finally:
        for process in processes:
            process.kill()


# ---- the parts


@given(st.integers(0, 200), st.integers(1, 9))
def test_every_row_belongs_to_one_process(total: int, size: int) -> None:
    parts = [World(rank, size).rows(total) for rank in range(size)]
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(total))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= 1


def test_alone_nothing_is_shared() -> None:
    assert join("cpu") is ALONE  # torchrun has not started this
    assert ALONE.share_of(1) is None
    assert ALONE.from_first(lambda: 3) == 3
    assert ALONE.share_out((lambda i=i: i * i) for i in range(3)) == [0, 1, 4]
    part = torch.ones(2)
    assert ALONE.join_rows(part, 2) is part
    ALONE.average([part])
    with ALONE.local_first():
        pass


def test_a_batch_smaller_than_the_processes_is_refused() -> None:
    assert World(3, 8).share_of(8) == Share(World(3, 8), 8)
    with pytest.raises(InputError, match="A batch of 7 images is too small for 8 processes"):
        World(3, 8).share_of(7)


def test_torchruns_environment_is_understood(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launched() == Launch()
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # which others than the first process give up
    for name, value in (("RANK", 5), ("WORLD_SIZE", 8), ("LOCAL_RANK", 1), ("LOCAL_WORLD_SIZE", 4)):
        monkeypatch.setenv(name, str(value))
    assert launched() == Launch()  # somebody else's RANK
    monkeypatch.setenv("MASTER_ADDR", "host")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert launched() == Launch(5, 8, 1, 4)
    assert launched().several
    assert not launched().first
    # what goes wrong before the processes meet goes wrong in all of them; the first one says it
    assert not may_speak()
    assert main(["discovr"]) == 2
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    assert may_speak()
    assert main(["discovr"]) == 2
    assert "no command 'discovr'" in capsys.readouterr().err


class Second(World):
    """A process whose first one has this to say."""

    def from_first(self, function):
        return {"seed": 0, "data": {"fingerprint": "a"}}


def test_processes_with_other_images_are_refused(tmp_path: Path) -> None:
    run = SharedFolder(tmp_path / "run", Second(1, 2))
    mine = {"run": {"seed": 0, "data": {"fingerprint": "b"}}}
    with (
        pytest.raises(InputError, match="Process 1 and the first one do not have the same data.fingerprint"),
        run.claim(mine),
    ):
        pass
    run.write_json("config.json", mine)
    run.append_metrics({})
    assert not run.path.exists()  # the second process writes nothing


# ---- training


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict:
    file = tmp_path_factory.mktemp("together") / "found.json"
    for status, _, stderr in ends(start_two("-m", "tests.together", file)):
        assert status == 0, stderr
    return json.loads(file.read_text())


def assert_same(one: dict, two: dict, atol: float) -> None:
    assert len(one["losses"]) == len(two["losses"])
    for a, b in zip(one["losses"], two["losses"], strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(b[name], a[name], rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_as_one(kind: str, together: dict) -> None:
    one, two = short(kind, exact()), together["short"][kind]
    assert_same(one, two, 1e-9)
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(two["features"], one["features"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", LONG)
def test_two_processes_stay_with_one_for_20_steps_in_single_precision(kind: str, together: dict) -> None:
    one = long(kind, exact())
    assert_same(one, together["long"][kind], 1e-5)
    assert one["losses"][0] != one["losses"][-1]


class OneOfSeveral(World):
    """Sends everything to itself, as if there were others."""

    several = True


@pytest.mark.parametrize("kind", ["rotation", "incremental", "swap"])
@pytest.mark.parametrize(
    ("device", "compiled", "captured"),
    [
        ("cpu", False, False),
        *(pytest.param("cuda", *how, marks=pytest.mark.gpu) for how in ((False, False), (False, True), (True, True))),
    ],
)
def test_sums_over_one_process_change_nothing(
    kind: str, device: str, compiled: bool, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    alone = replace(Mode.of(device), precision=torch.float32, compiled=compiled, compile_from=0.0, captured=captured)
    dist.init_process_group(
        "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1
    )
    try:
        several = train_kind(kind, replace(alone, world=OneOfSeveral()), epochs=2, lr=1e-4)
    finally:
        dist.destroy_process_group()
    assert_same(train_kind(kind, alone, epochs=2, lr=1e-4), several, 1e-4)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_two_processes_estimate_as_one(method: str, together: dict) -> None:
    # as text, in which NaN equals NaN
    assert json.dumps(together["estimates"][method]) == json.dumps(estimate(method))


def test_all_processes_end_with_the_same_bits(together: dict) -> None:
    assert together["ranks"] == [0, 1]
    assert together["alike"] == [True, True]
    assert together["told"] == "by 0"


# ---- whole runs

EPOCHS = 5
STAGES = ("pretrain", "supervised", "joint")


def discovery(cifar: Path, out: Path, *more: object) -> list[str]:
    words = f"""
        discover --data cifar10 --root {cifar} --unverified --out {out} --n-new 5 --device cpu --incremental
        --model.backbone small --model.width 4 --model.size 12 --pretrain.epochs 1 --pretrain.batch 51
        --pretrain.lr 0.001 --supervised.epochs 1 --supervised.batch 50 --supervised.lr 0.001 --joint.epochs {EPOCHS}
        --joint.batch 51 --joint.lr 0.001 --joint.ramp 5
    """
    return [*words.split(), *map(str, more)]


def torchrun(*words: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    return subprocess.Popen(
        [*line, "-m", "autonovel", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_cifar10(tmp_path_factory.mktemp("cifar"), per_class=20)


@pytest.fixture(scope="module")
def whole(cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a single process."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main(discovery(cifar, out)) == 0
    return out


def assert_same_run(out: Path, whole: Path) -> None:
    """The same run but for rounding, time and the name of the device."""
    for stage in STAGES:
        one, two = load_file(whole / f"{stage}.safetensors"), load_file(out / f"{stage}.safetensors")
        assert one.keys() == two.keys()
        for name in one:
            torch.testing.assert_close(two[name], one[name], rtol=0, atol=2e-3, msg=f"{stage}: {name}")
    runs = [load(folder) for folder in (whole, out)]
    assert runs[0].config == runs[1].config
    told = [[(m["stage"], m["epoch"], m["lr"]) for m in run.metrics] for run in runs]
    assert told[0] == told[1]
    for a, b in zip(runs[0].metrics, runs[1].metrics, strict=True):
        assert a["losses"] == pytest.approx(b["losses"], abs=1e-4)
    np.testing.assert_allclose(runs[1].features, runs[0].features, atol=2e-2)
    assert (runs[0].labels == runs[1].labels).mean() > 0.97
    assert runs[0].summary.keys() == runs[1].summary.keys()
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in whole.iterdir())
    assert [path.name for path in (out / "state").iterdir()] == ["lock"]


def test_torchrun_leaves_the_run_folder_of_a_single_process(cifar: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    [(status, stdout, stderr)] = ends([torchrun(*discovery(cifar, out))])
    assert status == 0, stderr
    assert_same_run(out, whole)
    assert load(out).summary["device"] == "2 processes, each cpu: 1 thread, float32"
    told = [line.split()[1] for line in stderr.splitlines() if line.startswith("joint ")]
    assert told == [f"{i}/{EPOCHS}" for i in range(1, EPOCHS + 1)]  # each epoch once
    assert stdout.count("5 new classes among 100 unlabelled images") == 1


FAILING = """
import sys
import autonovel.discovery.run_stages as walk
from autonovel.cli.main import main
from autonovel.machine.launch import launched
from autonovel.base.errors import TrainingError

train = walk.train

def failing(*arguments, on_epoch, key, **more):
    def told(epoch):
        on_epoch(epoch)
        if launched().rank == 1 and key[-1] == "joint" and epoch.number == 2:
            raise TrainingError("The fan of the second machine is broken; mend it.")
    train(*arguments, on_epoch=told, key=key, **more)

walk.train = failing
sys.exit(main())
"""


def test_an_error_in_one_process_ends_all_and_one_process_goes_on(cifar: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first, second = ends(start_two("-c", FAILING, *discovery(cifar, out)))
    assert (first[0], second[0]) == (1, 1)
    sentence = "autonovel: The fan of the second machine is broken; mend it."
    assert [line for line in second[2].splitlines() if line.startswith("autonovel:")] == [sentence]
    assert "autonovel:" not in first[2]
    assert "Traceback" not in first[2] + second[2]
    assert first[1] + second[1] == ""
    assert (out / "state" / "joint.safetensors").exists()
    assert main(discovery(cifar, out)) == 0
    assert [m["epoch"] for m in load(out).metrics if m["stage"] == "joint"] == list(range(EPOCHS))
    assert_same_run(out, whole)


def test_a_signal_to_torchrun_leaves_a_folder_that_goes_on(cifar: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "run", ("--joint.epochs", 100_000)
    process = torchrun(*discovery(cifar, out, *words))
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + TIMEOUT
    while not metrics.exists() or metrics.read_text().count('"joint"') < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    [(status, _, stderr)] = ends([process])
    assert status != 0
    complaints = [line for line in stderr.splitlines() if line.startswith("autonovel:")]
    assert complaints == ["autonovel: Interrupted; the same command continues from here."]
    with safe_open(out / "state" / "joint.safetensors", "pt") as state:
        assert int(state.metadata()["epochs_done"]) >= 3
