"""A command sets the switches of its process; the library leaves no trace in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode, compiler_settings
from autonovel.machine.jobs import side_by_side
from autonovel.machine.switches import SPINS, default_environment
from tests.training.test_engine import trained

COMMAND = "import os, autonovel.machine.switches as s; s.set_for_command(); print(os.environ.get('GOMP_SPINCOUNT'))"


def run(program: str, **settings: str) -> str:
    """What a program prints in a process of its own, in which nothing is chosen yet."""
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", program], env=clean | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("program", "settings", "expected"),
    [
        (COMMAND, {}, SPINS),
        (COMMAND, {"OMP_WAIT_POLICY": "ACTIVE"}, "None"),
        (COMMAND, {"GOMP_SPINCOUNT": "1000"}, "1000"),
        (f"import sys; sys.modules['torch'] = sys; {COMMAND}", {}, "None"),  # too late: torch has read it
    ],
)
def test_a_command_lets_waiting_threads_sleep_soon_unless_the_user_says_otherwise(
    program: str, settings: dict[str, str], expected: str
) -> None:
    assert run(program, **settings) == expected


MEMORY = """
import resource
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
before, held = resident(), [bytearray(16 << 20) for _ in range(4)]
del held
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_a_command_keeps_the_memory_that_it_frees() -> None:
    assert int(run(MEMORY)) < 16
    assert int(run(f"import autonovel.machine.switches as s; s.set_for_command()\n{MEMORY}")) > 48


def test_importing_the_library_changes_nothing_in_the_process() -> None:
    program = "import os; before = dict(os.environ); import autonovel, autonovel.cli.main; print(os.environ == before)"
    assert run(program) == "True"


def test_training_as_a_library_changes_nothing_in_the_process() -> None:
    before, threads = dict(os.environ), torch.get_num_threads()
    trained("pairs", Mode.of("cpu"), epochs=1)
    side_by_side([lambda: None])
    assert (dict(os.environ), torch.get_num_threads()) == (before, threads)


def test_the_compilers_settings_hold_only_while_a_step_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo import config

    limit = config.recompile_limit
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with compiler_settings():
        assert config.recompile_limit == max(64, limit)
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(user_cache() / "compiled")
    with pytest.raises(RuntimeError, match="no C compiler"), compiler_settings():
        raise RuntimeError("no C compiler")
    assert config.recompile_limit == limit
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    with compiler_settings():
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"


def test_cuda_is_told_to_load_its_code_at_once_while_runs_are_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_MODULE_LOADING", raising=False)
    assert side_by_side([lambda: os.environ["CUDA_MODULE_LOADING"]] * 2) == ["EAGER", "EAGER"]
    assert "CUDA_MODULE_LOADING" not in os.environ
    with default_environment("CUDA_MODULE_LOADING", "LAZY"):
        assert side_by_side([lambda: os.environ["CUDA_MODULE_LOADING"]]) == ["LAZY"]
