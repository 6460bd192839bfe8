"""Folders to learn from, read by Hugging Face's own reader and by the rule that YOLO trains by."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from autonovel.api.run import Run, load
from autonovel.base.errors import AutonovelWarning
from autonovel.export import export
from tests.export.conftest import edit

READ = """
import json, sys
import numpy as np
from datasets import load_dataset
images = load_dataset("imagefolder", data_dir=sys.argv[1])
assert list(images) == ["train"], list(images)
images = images["train"].class_encode_column("label")
for row in images:
    row["label"] = images.features["label"].int2str(row["label"])
    print(json.dumps(row | {"pixels": np.asarray(row.pop("image")).tolist()}))
"""


def opened(folder: Path, cache: Path) -> dict[str, dict[str, object]]:
    """The rows by their ids, as another process reads them."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-c", READ, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | offline)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["id"]: row for row in rows}


def test_imagefolder(own: Run, tmp_path: Path) -> None:
    """With names that its reader would take for splits or for no images."""
    records, first = own.images, own.unlabelled.tolist()[:4]
    for row, name in zip(first, ("my test image.png", "val-1.png", "bare", "new.avif"), strict=True):
        records[row] = records[row]._replace(source=str(Path(records[row].source).rename(tmp_path / "photos" / name)))
    own.write_images(records)
    run = edit(load(own.path))
    run.name(0, "test | [x]")
    out = export(run, tmp_path / "val" / "test set", format="imagefolder", all=True)
    rows, answers = opened(out, tmp_path / "cache"), {p.image: p for p in run.predictions}
    assert len(rows) == len(run.images)
    for record in run.images:
        row, answer = rows[record.image], answers.get(record.image)
        assert row["label"] == (answer.name if answer else record.label)
        assert (row["cluster"], row["probability"]) == (
            (answer.cluster, answer.probability) if answer else (None, None)
        )
        with Image.open(record.source) as image:
            assert row["pixels"] == np.asarray(image).tolist()
    card = (out / "README.md").read_text()
    assert card.startswith("---\ntask_categories:\n- image-classification\n")
    assert f"| test \\| \\[x\\] | new | {sum(p.name == 'test | [x]' for p in run.predictions)} |" in card


def test_imagefolder_lists_what_is_there(own: Run, tmp_path: Path) -> None:
    gone = own.unlabelled.tolist()[0]
    Path(own.images[gone].source).unlink()
    with pytest.warns(AutonovelWarning, match="1 of .* could not be placed"):
        out = export(own, tmp_path / "set", format="imagefolder", how="link")
    lines = [json.loads(line) for line in (out / "train" / "metadata.jsonl").read_text().splitlines()]
    assert {line["file_name"] for line in lines} == {file.name for file in (out / "train").glob("*.png")}
    assert {line["id"] for line in lines} == {p.image for p in own.predictions} - {own.images[gone].image}


def parts(folder: Path) -> dict[str, dict[str, set[str]]]:
    return {
        part: {c.name: {file.name for file in c.iterdir()} for c in (folder / part).iterdir()}
        for part in ("train", "val")
    }


def test_yolo(run: Run, tmp_path: Path) -> None:
    edit(run)
    run.move([0], "new")
    out = export(run, tmp_path / "yolo", format="yolo")
    found = parts(out)
    counts = Counter(p.name for p in run.predictions)
    assert 1 in counts.values()
    assert found["train"].keys() == found["val"].keys() == counts.keys()  # classes are numbered by their folders
    for name, count in counts.items():
        train, val = found["train"][name], found["val"][name]
        assert len(val) == max(1, count // 5)
        if count > 1:
            assert not train & val
            assert len(train) + len(val) == count
        else:
            assert train == val
    run.name(0, "egret")
    again = parts(export(load(run.path), out, format="yolo", overwrite=True))
    assert again["val"] == {"egret" if name == "new 0" else name: files for name, files in found["val"].items()}
