import os
import signal
from collections.abc import Iterator
from pathlib import Path

# before torch is imported: with every core in each worker they would mostly wait for each other, and what tiny networks learn
# depends on the number of threads
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

from autonovel.base.errors import on_command_line
from tests.small_data import write_small_cifar10

# a suite that a script has put into the background ignores Ctrl-C, and so would every process that it starts: what Ctrl-C does
# would then be tested nowhere
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# an example that takes longer than usual says that the machine has other work, not that anything is wrong
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def flags_in_messages() -> Iterator[None]:
    """Messages name flags, as they do on the command line, in place of Python's arguments."""
    with on_command_line():
        yield


@pytest.fixture(scope="session")
def small_cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ten generated images of each class of CIFAR-10, in its files."""
    return write_small_cifar10(tmp_path_factory.mktemp("cifar"), per_class=10)
