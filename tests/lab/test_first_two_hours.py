"""What is measured first is one script that goes through `autonovel reproduce`."""

import json
from pathlib import Path

import pytest

from tests.lab.conftest import Script

TINY = (
    *(
        "pretrain.epochs=1",
        "supervised.epochs=1",
        "joint.epochs=1",
        "similarity.epochs=1",
        "kcl.epochs=1",
        "mcl.epochs=1",
    ),
    *("dtc.epochs=2", "dtc.fit-epochs=1", "model.width=4"),
)


def test_every_command_of_the_order_is_one(script: Script) -> None:
    done = script("first_two_hours.py", "--list")
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("$ autonovel reproduce ")[1:]
    runs = [part.count("\nautonovel reproduce ") for part in parts]
    assert runs == [18, 6, 21, 160, 6, 5, 0]  # OmniGlot has 20 alphabets; pictures are drawn of runs that are there


@pytest.mark.long
def test_the_whole_order_is_measured_on_digits(script: Script, tmp_path: Path) -> None:
    words = ("--scale", "small", "--seeds", 1, "--device", "cpu", "--out", tmp_path, "--try", *TINY)
    done = script("first_two_hours.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "rows" / "paper.jsonl").read_text().splitlines()]
    assert len(lines) == 37
    assert len(list((tmp_path / "figures").glob("*.png"))) == 6
    stopped = script("first_two_hours.py", *words, "--budget", 0)
    assert stopped.returncode == 0
    assert "$" not in stopped.stdout
