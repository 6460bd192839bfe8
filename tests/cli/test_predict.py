"""``autonovel predict`` with the names of files on standard input."""

import csv
import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.cli.conftest import Call
from tests.report.made import digits_run


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
