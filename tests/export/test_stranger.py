"""The run folder of a stranger: whatever its files name, nothing of the user's is moved, copied or waited for."""

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from autonovel.api.run import Run, load
from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.cli.main import main
from autonovel.data.reading.members import STORES_AGREED, content_in
from autonovel.data.reading.problems import as_path, printable
from autonovel.export import export
from autonovel.models import backbones
from autonovel.models.backbones import build_backbone
from autonovel.settings.recipe import Model


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def documents(own: Run, tmp_path: Path) -> Path:
    """Files of the user that the run names in place of half of its images."""
    folder = tmp_path / "documents"
    folder.mkdir()
    records = own.images
    for number, row in enumerate(own.unlabelled.tolist()[::2]):
        (folder / f"{number}.txt").write_text(f"private {number}\n")
        records[row] = records[row]._replace(source=str(folder / f"{number}.txt"))
    own.write_images(records)
    return folder


@pytest.mark.parametrize("how", ["copy", "link", "hardlink", "move"])
def test_only_images_leave_their_place(own: Run, documents: Path, tmp_path: Path, how: str) -> None:
    before = contents(documents)
    with pytest.warns(AutonovelWarning, match="could not be placed"):
        out = export(load(own.path), tmp_path / "sorted", how=how, yes=True)
    assert contents(documents) == before
    assert not list(out.glob("*/*.txt"))
    assert list(out.glob("*/*.png"))


def test_what_the_run_has_not_seen_is_not_moved(own: Run, tmp_path: Path) -> None:
    """Images of the user's that a stranger's run names without knowing what is in them, or that have changed since."""
    records, rows = own.images, own.unlabelled.tolist()
    Path(records[rows[0]].source).write_bytes(Path(records[rows[1]].source).read_bytes())
    records[rows[2]] = records[rows[2]]._replace(digest="")
    own.write_images(records)
    with pytest.warns(AutonovelWarning, match="2 of .* could not be placed"):
        export(load(own.path), tmp_path / "sorted", how="move", yes=True)
    assert all(Path(records[row].source).exists() == (row in (rows[0], rows[2])) for row in rows)


def test_a_move_is_agreed_on_first(own: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    before = contents(tmp_path / "photos")
    with pytest.raises(
        InputError, match=rf"{len(own.unlabelled)} files would be moved out of {tmp_path / 'photos'}; add yes=True"
    ):
        export(own, tmp_path / "sorted", how="move")
    words = ["export", str(own.path), "--to", str(tmp_path / "sorted"), "--how", "move"]
    assert main(words) == 2
    assert f"files would be moved out of {tmp_path / 'photos'}; add --yes" in capsys.readouterr().err
    for answer in ("n\n", "\n", ""):
        typed = io.StringIO(answer)
        typed.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", typed)
        assert main(words) == 2
        said = capsys.readouterr()
        assert "Move them? [y/N]" in said.out
        assert "Nothing was moved." in said.err
    assert contents(tmp_path / "photos") == before
    assert not (tmp_path / "sorted").exists()
    typed = io.StringIO("y\n")
    typed.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", typed)
    assert main(words) == 0
    assert len(contents(tmp_path / "photos")) == len(before) - len(own.unlabelled)


@pytest.mark.parametrize("format", ["folders", "coco", "fiftyone", "csv"])
def test_a_pipe_in_place_of_an_image_keeps_nobody_waiting(own: Run, tmp_path: Path, format: str) -> None:
    row = int(own.unlabelled[0])
    source = Path(own.images[row].source)
    source.unlink()
    os.mkfifo(source)
    if format == "folders":
        with pytest.warns(AutonovelWarning, match="1 of .* could not be placed"):
            export(own, tmp_path / "out", format=format)
    else:
        export(own, tmp_path / "out", format=format)


@pytest.mark.skipif(os.name != "posix", reason="names are bytes there")
def test_names_are_the_bytes_they_are(own: Run, tmp_path: Path) -> None:
    records, rows = own.images, own.unlabelled.tolist()[:3]
    names = [b"bad\xff.png", b"bad\\xff.png", b"bad\\x5cxff.png"]
    for row, name in zip(rows, names, strict=True):
        path = os.fsdecode(os.fsencode(tmp_path) + b"/photos/" + name)
        shutil.move(records[row].source, path)
        records[row] = records[row]._replace(source=printable(path))
        assert as_path(printable(path)) == path
    assert len({records[row].source for row in rows}) == 3
    own.write_images(records)
    out = export(load(own.path), tmp_path / "sorted")
    found = {path.read_bytes() for path in out.glob("*/*")}
    for row in rows:
        assert Path(as_path(records[row].source)).read_bytes() in found
    assert len(list(out.glob("*/*"))) == len(own.unlabelled)
    for format in ("csv", "coco", "cvat", "fiftyone", "imagefolder", "label-studio", "yolo"):
        export(load(own.path), tmp_path / format, format=format)


def test_a_network_that_a_file_names_is_not_fetched(own: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def library(wanted: Any) -> Any:
        asked.append(wanted.fetch)
        raise InputError("This network is not here.")

    monkeypatch.setitem(backbones.SCHEMES, "hf", library)
    config = json.loads((own.path / "config.json").read_text())
    config["asked"]["values"] = {"model.backbone": "hf:somebody/something"}
    config["run"]["data"]["made"] = {"network": "", "backbone": "hf:somebody/something", "size": 8, "decoded": 8}
    config["run"]["data"]["made"] |= {"channels": 3, "width": 4}
    config["run"]["data"]["features"] = 1
    (own.path / "config.json").write_text(json.dumps(config))
    (own.path / "checksums.sha256").unlink()
    words = ("discover", "--from", str(own.path), "--out", str(tmp_path / "new"))
    assert main(list(words)) == main(["predict", str(own.path), str(tmp_path / "photos"), "--engine", "local"]) == 2
    config["run"]["data"].pop("features")
    (own.path / "config.json").write_text(json.dumps(config))
    own.name(0, "heron")
    assert main([*words, "--model.backbone", "hf:somebody/something"]) == 2  # a person named it
    assert asked == [False, False, True]
    for name in ("hf:somebody/something", "timm:hf-hub:somebody/something", "else/where.safetensors"):
        with pytest.raises(InputError):
            build_backbone(Model(backbone=name), channels=3, size=32, weights=False)


def test_pictures_are_not_fetched_from_where_a_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr(fsspec, "open", asked := MagicMock(side_effect=OSError))
    assert content_in("http://somebody/x.tar", "http://somebody/x.tar/a.png") is None
    asked.assert_not_called()
    monkeypatch.setattr(STORES_AGREED, "is_set", lambda: True)
    assert content_in("http://somebody/x.tar", "http://somebody/x.tar/a.png") is None
    asked.assert_called_once()


@pytest.mark.parametrize("name", ["pipe.tar", "pipe.parquet"])
def test_a_pipe_in_place_of_a_shard_ends(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert content_in(str(tmp_path / name), f"{tmp_path / name}/0") is None
