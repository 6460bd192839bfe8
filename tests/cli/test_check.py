"""``autonovel check``: what was planted in a folder of classes is what it prints, writes and gives to Python."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import autonovel as an
from autonovel.cli.main import main
from autonovel.settings.resolve import packaged_network
from tests.small_data import class_images

CLASSES, EACH = (0, 3, 6), 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not packaged_network():
        pytest.skip("no pre-trained network is installed")
    folder = tmp_path_factory.mktemp("check")
    for label in CLASSES:
        (folder / "known" / f"kind {label}").mkdir(parents=True)
        for i, pixels in enumerate(class_images(np.full(EACH, label), 64, seed=label)):
            blots = np.random.default_rng((label, i)).integers(0, 256, (5, 5, 3), np.uint8)  # each picture has its own
            mixed = Image.blend(Image.fromarray(pixels), Image.fromarray(blots).resize((64, 64)), 0.5)
            mixed.save(folder / "known" / f"kind {label}" / f"{label}-{i}.png")
    known = folder / "known"
    shutil.move(known / "kind 0" / "0-3.png", known / "kind 6" / "strayed.png")
    with Image.open(known / "kind 3" / "3-5.png") as image:
        image.resize((60, 60)).save(known / "kind 3" / "again.jpg", quality=90)
    return folder


def test_what_was_planted_is_printed_and_written(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["check", str(folder / "known"), "--cache", str(folder / "cache")]
    assert main([*words, "--to", str(tmp_path / "found.csv")]) == 0
    printed = capsys.readouterr().out
    assert "To look at: " in printed
    with (tmp_path / "found.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    wrong = {Path(row["image"]).name: row for row in rows if row["problem"] == "wrong label"}
    assert wrong["strayed.png"]["label"] == "kind 6"
    assert wrong["strayed.png"]["other"] == "kind 0"
    copies = [{Path(row["image"]).name, Path(row["other"]).name} for row in rows if row["problem"] == "copy"]
    assert copies == [{"3-5.png", "again.jpg"}]
    assert main([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(rows)
    found = an.check(folder / "known", cache=folder / "cache", verbose=False)
    assert [doubt.image for doubt in found] == [row["image"] for row in rows]


def test_what_cannot_be_checked_is_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, part in (
        (["nowhere"], "nowhere"),
        ([str(folder / "known"), "--to", "found.txt"], "found.txt"),
        ([str(folder / "known" / "kind 3")], "class"),
    ):
        assert main(["check", *words]) == 2
        assert part in capsys.readouterr().err


def test_settings_are_compared_without_a_pile(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", str(folder / "known"), "--out", str(tmp_path / "tune"), "--search", "estimate.max-new=0"]
    assert main(words) == 2  # read, and refused for another reason than that nothing is to be sorted
    assert "max-new" in capsys.readouterr().err
