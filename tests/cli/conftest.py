from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from autonovel.cli.main import main
from tests.runs.made import make_run
from tests.small_data import write_small_cifar10


class Result(NamedTuple):
    """What a command leaves: as subprocess has it."""

    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Result]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """The command in this process, which has imported torch already: a process of its own takes two seconds longer."""

    def run(*words: object) -> Result:
        capsys.readouterr()
        status = main([str(word) for word in words])
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_cifar10(tmp_path_factory.mktemp("cifar"), per_class=20)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A finished run that a test may change."""
    groups = [0] * 9 + [1] * 8 + [2] * 7 + [3] * 6 + [4] * 5
    run = make_run(tmp_path / "run", groups, n_new=5)
    sizes = [groups.count(number) for number in range(5)]
    run.write_json(
        "summary.json", {**run.summary, "cluster_sizes": sizes, "acc_new": 0.9, "images": {"unlabelled": 35}}
    )
    return run.path
