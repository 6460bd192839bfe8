"""What is refused before an image is read, in Python's words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autonovel.base.errors import InputError, did_you_mean, on_command_line, option, unknown
from autonovel.discovery.arguments import check_arguments


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n_new": 1}, "n_new is 1; there must be at least 2 classes to tell apart."),
        ({"n_new": -5}, "n_new is -5; there must be"),
        ({"n_new": True}, "n_new is True; give a whole number or 'auto'."),
        ({"n_new": 2.5}, "n_new is 2.5; give a whole number or 'auto'."),
        ({"n_new": "5"}, "n_new is '5'; give a whole number or 'auto'."),
        ({"n_new": None}, "n_new is None; give a whole number or 'auto'."),
        ({"k": 1}, "k is 1; there must be"),
        ({"k": "some"}, "k is 'some'; give a whole number or 'auto'."),
        ({"device": "gpu"}, "There is no device 'gpu'; choose cpu, cuda, cuda:N or auto."),
        ({"device": "cuda:x"}, "There is no device 'cuda:x'"),
        ({"device": 0}, "There is no device '0'"),
        ({"seed": 1.5}, "seed is 1.5; give a whole number of at most 18 digits."),
        ({"seed": "1"}, "seed is '1'; give a whole number"),
        ({"seed": True}, "seed is True; give a whole number"),
        ({"seed": 10**18}, "seed is 1000000000000000000; give a whole number of at most 18 digits."),
    ],
)
def test_numbers_and_devices(arguments: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_arguments(out=tmp_path / "run", **arguments)
    assert str(caught.value).startswith(sentence)


def test_what_can_work_is_accepted_and_leaves_nothing(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for n_new in ("auto", 2, np.int64(3)):
        for device in ("auto", "cpu", "cuda", "cuda:11"):
            check_arguments(out=tmp_path / "a" / "b" / "run", n_new=n_new, device=device)
    for seed in (0, -3, np.int64(7), 10**18 - 1):
        check_arguments(out=tmp_path / "run", seed=seed)
    check_arguments(out=str(photos / "run"), k=7)  # the folder of a run is passed over when the pile is read
    assert list(tmp_path.rglob("*")) == [photos]


def test_folders_that_hold_a_run_or_what_is_left_of_one(tmp_path: Path) -> None:
    begun, empty, finished = tmp_path / "begun", tmp_path / "empty", tmp_path / "finished"
    for folder in (begun, empty, finished):
        folder.mkdir()
    (begun / "state").mkdir()
    (begun / ".config.json.123.part").touch()
    (finished / "config.json").touch()
    (finished / "anything").touch()
    for folder in (begun, empty, finished):
        check_arguments(out=folder)
    (begun / "notes.txt").touch()
    with pytest.raises(InputError, match="begun is not empty and holds no run; give another folder as out."):
        check_arguments(out=begun)


def test_folders_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for out in ("file", "file/run", "./file/a/b"):
        with pytest.raises(InputError, match="^file is a file; give another folder for the run as out.$"):
            check_arguments(out=out)
    with pytest.raises(InputError, match="cannot be written .*; give another folder for the run as out"):
        check_arguments(out="long" * 100)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody may write")
def test_a_folder_that_may_not_be_written() -> None:
    with pytest.raises(
        InputError,
        match=r"^The folder /proc/deep/run cannot be written \(.+\); give another folder for the run as out.$",
    ):
        check_arguments(out="/proc/deep/run")


def test_options_are_spelled_as_the_user_spells_them() -> None:
    assert option("n_new") == "n_new"
    assert option("joint.known_per_batch", 3) == "recipe.joint.known_per_batch=3"
    with on_command_line():
        assert option("n_new", "true") == "--n-new true"
        assert option("joint.known_per_batch", 3) == "--joint.known-per-batch 3"
        assert option("pretrain.turns", True) == "--pretrain.turns"
        assert option("pretrain.turns", False) == "--pretrain.no-turns"
        assert option("pretrain.milestones", (1, 2)) == "--pretrain.milestones 1 2"
        with pytest.raises(ValueError, match="inner"), on_command_line():
            raise ValueError("inner")
        assert option("n_new") == "--n-new"
    assert option("n_new") == "n_new"


def test_unknown_names() -> None:
    assert did_you_mean("cifar1O", ["svhn", "cifar10"]) == " (did you mean cifar10?)"
    assert did_you_mean("birds", ["svhn", "cifar10"]) == ""
    assert str(unknown("recipe", "x", ["a", "b"])) == "There is no recipe 'x'; choose one of a, b."
