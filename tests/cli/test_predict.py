"""``autonovel predict`` with the names of files on standard input."""

import io
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.report.made import digits_run


def test_names_on_standard_input_may_be_any_that_a_file_can_have(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = digits_run(tmp_path / "run", n=40)
    given: list[object] = []
    monkeypatch.setattr("autonovel.predict.predict", lambda run, images, **options: given.append(images))
    names = b"a b.png\n\nh\xc3\xa4her.png\r\n\xff.png\nform\x0cfeed.png"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(names), encoding="utf-8"))
    result = call("predict", run.path, "-", "--to", tmp_path / "found.csv")
    assert result.returncode == 0, result.stderr
    assert given == [["a b.png", "h\xe4her.png", "\udcff.png", "form\x0cfeed.png"]]
