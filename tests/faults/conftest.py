from collections.abc import Iterator

import pytest

from tests.faults.harness import Harness


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """The world in which commands are broken off and files damaged."""
    harness = Harness(tmp_path_factory.mktemp("faults"))
    yield harness
    harness.close()
