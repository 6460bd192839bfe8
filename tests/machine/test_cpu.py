"""How threads wait is set before torch is there, and never against the user's own choice."""

import os
import subprocess
import sys

import pytest

from autonovel.machine.cpu import SPINS

POLICY = "import os, autonovel; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("program", "settings", "expected"),
    [
        (POLICY, {}, SPINS),
        (POLICY, {"OMP_WAIT_POLICY": "ACTIVE"}, "None"),
        (POLICY, {"GOMP_SPINCOUNT": "1000"}, "1000"),
        (f"import torch; {POLICY}", {}, "None"),  # too late: torch has read it
    ],
)
def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(
    program: str, settings: dict[str, str], expected: str
) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", program], env=clean | settings, capture_output=True, text=True)
    assert done.stdout.strip() == expected, done.stderr
