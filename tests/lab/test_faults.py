"""The script that counts kills, failing writes, damaged files and requests."""

import json
from pathlib import Path

import faults
import pytest

from tests.lab.conftest import Script


@pytest.mark.parametrize("lost", [False, True])
def test_what_went_wrong_is_said_and_ends_with_status_1(lost: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def attempt() -> str:
        assert not lost, "the journal is gone"
        return ""

    tally = faults.Tally(None)
    tally.attempt("kills", attempt)
    assert tally.report() == lost
    assert ("the journal is gone" in capsys.readouterr().out) == lost


@pytest.mark.long
def test_it_starts(script: Script, tmp_path: Path) -> None:
    done = script("faults.py", "--requests", 20, "--json", tmp_path / "faults.json")
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((tmp_path / "faults.json").read_text())
    assert said["wrong"] == []
    assert said["requests"]["answered"] + said["requests"]["refused"] == 20
