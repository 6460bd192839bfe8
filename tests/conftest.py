from collections.abc import Iterator

import pytest
import torch

from autonovel.errors import on_command_line


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
