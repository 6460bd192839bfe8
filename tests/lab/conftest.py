"""The scripts of the laboratory are no package: they import each other by name."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LAB = Path(__file__).parents[2] / "lab"
sys.path.insert(0, str(LAB))

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script() -> Script:
    """Start a script as a person does, and wait for it."""

    def start(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(LAB / name), *map(str, arguments)]
        return subprocess.run(
            words, capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )

    return start
