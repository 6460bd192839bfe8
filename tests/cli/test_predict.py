"""``autonovel predict`` with the names of files on standard input."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.cli.conftest import Call
from tests.report.made import digits_run
from tests.runs.made import make_run


def test_names_on_standard_input_may_be_any_that_a_file_can_have(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = digits_run(tmp_path / "run", n=100)
    names = [b"a b.png", b"h\xc3\xa4her.png", b"\xff.png", b"form\x0cfeed.png"]
    further = (load_digits().images[-len(names) :] * (255 / 16)).astype(np.uint8)
    for name, image in zip(names, further, strict=True):
        Image.fromarray(image).save(tmp_path / os.fsdecode(name))
    monkeypatch.chdir(tmp_path)
    text = io.TextIOWrapper(io.BytesIO(names[0] + b"\n\n" + b"\r\n".join(names[1:])), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", text)
    result = call("predict", run.path, "-", "--to", "found.csv")
    assert result.returncode == 0, result.stderr
    with open("found.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == ["a b.png", "h\xe4her.png", "\\xff.png", "form\x0cfeed.png"]
    known, unlike = (sum(row[column] == "1" for row in rows) for column in ("known", "unlike"))
    first, *others = result.stdout.splitlines()
    assert first == f"4 images: {known} of known classes, {4 - known} of new ones"
    assert len(others) == 1 + (unlike > 0)
    assert others[-1] == "The classes: found.csv"


def test_a_few_pictures_are_answered_at_once(tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    run = digits_run(tmp_path / "run", n=100).name(0, "a heron")
    for row, image in enumerate(load_digits().images[:3]):
        Image.fromarray((image * (255 / 16)).astype(np.uint8)).save(tmp_path / f"{row}.png")
    one = call("predict", run.path, tmp_path / "0.png")
    assert one.returncode == 0, one.stderr
    head, answer, total = one.stdout.splitlines()
    assert head.split() == ["image", "class", "probability"]
    assert "0.png  " in answer
    assert answer.endswith(("known", "new", "resembles none"))
    assert total.startswith("1 image: ")
    table = call("predict", run.path, tmp_path / "0.png", "--to", "-")
    [row] = csv.DictReader(io.StringIO(table.stdout))
    assert row["name"] in run.classes
    assert list(row) == ["image", "cluster", "name", "probability", "known", "unlike"]


def test_what_is_wrong_with_folder_or_images_is_said_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make_run(tmp_path / "run", [0] * 5 + [1] * 4 + [2] * 3)
    for words in (
        ["predict", "nowhere", "x"],
        ["predict", "run", "nowhere"],
        ["predict", "run", "empty"],
        ["discover", "nowhere", "empty"],
        ["discover", "empty", "empty"],
        ["cluster", "empty"],
        ["estimate", "empty", "nowhere"],
    ):
        code = f"""
import sys
from autonovel.cli.main import main
status = main({words!r})
print(status, "torch" in sys.modules)
"""
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert result.stdout == "2 False\n", (words, result)
        assert len(result.stderr.splitlines()) == 1
