"""Sorted folders: what is where, and that no file of the user is ever lost."""

import csv
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from autonovel.api.run import Run, load
from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.export import export
from autonovel.export import folders as module
from autonovel.export.place import move
from tests.export.conftest import edit


def listing(folder: Path) -> dict[str, int]:
    """Files per folder."""
    return dict(Counter(path.parent.name for path in folder.glob("*/*")))


def rows(file: Path) -> list[list[str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))[1:]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_each_class_has_its_folder(run: Run, tmp_path: Path) -> None:
    edit(run)
    out = export(run, tmp_path / "sorted")
    assert listing(out) == Counter(p.name for p in run.predictions)
    assert {path.name for path in out.iterdir()} == {"files.csv", "new 0", "grey heron", "not a class", "1"}
    source = {record.image: Path(record.source) for record in run.images}
    for p in run.predictions:
        file = out / p.name / source[p.image].name
        assert file.read_bytes() == source[p.image].read_bytes()
        assert not file.is_symlink()
    assert {(out / file, Path(came), image) for file, came, image in rows(out / "files.csv")} == {
        (out / p.name / source[p.image].name, source[p.image], p.image) for p in run.predictions
    }


def test_labelled_images_too(run: Run, tmp_path: Path) -> None:
    out = export(run, tmp_path / "sorted", all=True)
    given = Counter(record.label for record in run.images if record.label is not None)
    assert listing(out) == given + Counter(p.name for p in run.predictions)


def test_files_of_one_name_are_numbered(own: Run, tmp_path: Path) -> None:
    records, moved = own.images, []
    for number, record in enumerate(records):
        folder = tmp_path / "photos" / str(number)
        folder.mkdir()
        moved.append(
            record._replace(source=shutil.move(record.source, folder / ("image.png" if number % 2 else "IMAGE.png")))
        )
    own.write_images(moved)
    out = export(load(own.path), tmp_path / "sorted")
    assert listing(out) == Counter(p.name for p in own.predictions)
    names = {path.name.lower() for path in (out / "new 0").iterdir()}
    assert {"image.png", "image (2).png", "image (3).png"} <= names
    came = {image: file for file, _, image in rows(out / "files.csv")}
    for record in moved:
        if record.label is None:
            assert (out / came[record.image]).read_bytes() == Path(record.source).read_bytes()


def test_hostile_names_stay_inside(run: Run, tmp_path: Path) -> None:
    run.name(0, "../../escape").name(1, "con").name(2, "a/b").name(3, "a_b").name(4, "x" * 200)
    out = export(run, tmp_path / "deep" / "er" / "sorted")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "deep"}
    folders = [path for path in out.iterdir() if path.is_dir()]
    assert len(folders) == 5
    assert {"_con", "a_b", "a_b (2)"} <= {path.name for path in folders}
    assert all(path.resolve().parent == out.resolve() for path in folders)


@pytest.mark.parametrize("how", ["link", "hardlink"])
def test_links_take_no_room(own: Run, tmp_path: Path, how: str) -> None:
    out = export(own, tmp_path / "sorted", how=how)
    for file, source, _ in rows(out / "files.csv"):
        assert (out / file).is_symlink() == (how == "link")
        assert os.path.samefile(out / file, source)


def test_a_move_can_be_taken_back_by_its_list(own: Run, tmp_path: Path) -> None:
    before = contents(tmp_path / "photos")
    out = export(own, tmp_path / "sorted", how="move", yes=True)
    pile = {Path(own.images[row].source).name for row in own.unlabelled}
    assert set(contents(tmp_path / "photos")) == set(before) - pile
    for file, source, _ in rows(out / "files.csv"):
        (out / file).rename(source)
    assert contents(tmp_path / "photos") == before


def test_a_move_to_another_file_system(own: Run, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system")
    target = other / f"autonovel-test-{os.getpid()}"
    before = contents(tmp_path / "photos")
    try:
        with pytest.raises(InputError, match="another file system.*how='link'"):
            export(own, target, how="hardlink")
        assert not target.exists()
        export(own, target, how="move", yes=True)
        for file, source, _ in rows(target / "files.csv"):
            assert (target / file).read_bytes() == before[Path(source).name]
            assert not Path(source).exists()
    finally:
        shutil.rmtree(target, ignore_errors=True)


def test_a_move_that_is_broken_off_loses_nothing(own: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, out, count = contents(tmp_path / "photos"), tmp_path / "sorted", 0

    def move_some(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count > 5:
            raise KeyboardInterrupt
        move(source, target)

    monkeypatch.setitem(module.PLACE, "move", move_some)
    with pytest.raises(KeyboardInterrupt):
        export(own, out, how="move", yes=True)
    monkeypatch.undo()
    moved = {file: source for file, source, _ in rows(out / "files.csv") if (out / file).exists()}
    assert len(moved) == 5
    assert len(contents(tmp_path / "photos")) == len(before) - 5
    with pytest.warns(AutonovelWarning, match="5 of .* could not be placed"):
        export(own, out, how="move", overwrite=True, yes=True)
    assert {row[1]: row[2] for row in rows(out / "problems.csv")} == {
        source: f"an earlier export left it in {file}" for file, source in moved.items()
    }
    for file, source, _ in rows(out / "files.csv"):
        (out / file).rename(source)
    assert contents(tmp_path / "photos") == before


def test_nothing_is_moved_where_a_check_fails(own: Run, tmp_path: Path) -> None:
    records = own.images
    first, second = own.unlabelled[:2]
    records[second] = records[second]._replace(source=records[first].source, digest=records[first].digest)
    own.write_images(records)
    before = contents(tmp_path / "photos")
    with pytest.raises(InputError, match="file of two images .*how='copy'"):
        export(load(own.path), tmp_path / "sorted", how="move", yes=True)
    assert contents(tmp_path / "photos") == before
    assert not (tmp_path / "sorted").exists()


def test_moved_files_survive_a_second_export(own: Run, tmp_path: Path) -> None:
    out = export(own, tmp_path / "sorted", how="move", yes=True)
    before = {path: path.read_bytes() for path in out.glob("*/*")}
    with pytest.raises(InputError, match="None of the .* can be placed .*an earlier export left it in"):
        export(own, out, overwrite=True)
    record = own.images[int(own.unlabelled[0])]
    Path(record.source).write_bytes(b"\x89PNG\r\n\x1a\nanother file of that name")
    with pytest.warns(AutonovelWarning, match="could not be placed"):
        export(own, out, overwrite=True)
    assert all(path.read_bytes() == content for path, content in before.items())
    [added] = set(out.glob("*/*")) - set(before)
    assert added.read_bytes().endswith(b"another file of that name")
    assert {out / file for file, _, _ in rows(out / "files.csv")} == {*before, added}


def test_an_export_may_be_sorted_again_where_it_is(own: Run, tmp_path: Path) -> None:
    out = export(own, tmp_path / "sorted")
    now = {image: str(out / file) for file, _, image in rows(out / "files.csv")}
    own.write_images(record._replace(source=now.get(record.image, record.source)) for record in own.images)
    before = {path: path.read_bytes() for path in out.glob("*/*")}
    run = load(own.path).name(0, "heron")
    export(run, out, overwrite=True)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert listing(out)["heron"] == listing(out)["new 0"] == len(run.clusters[0].members)


@pytest.mark.parametrize("how", ["copy", "hardlink"])
def test_the_last_copy_of_a_file_is_not_deleted(own: Run, tmp_path: Path, how: str) -> None:
    out = export(own, tmp_path / "sorted", how=how)
    gone, changed = (own.images[row] for row in own.unlabelled[:2].tolist())
    files = {image: out / file for file, _, image in rows(out / "files.csv")}
    content = files[gone.image].read_bytes()
    Path(gone.source).unlink()
    files[changed.image].unlink()
    files[changed.image].write_bytes(b"retouched by hand")
    own.name(0, "heron")
    with pytest.warns(AutonovelWarning, match="1 of .* could not be placed"):
        export(own, out, overwrite=True)
    assert files[gone.image].read_bytes() == content
    assert files[changed.image].read_bytes() == b"retouched by hand"
    assert sum(listing(out).values()) == len(own.predictions) + 1


@pytest.mark.parametrize("left", [0, 100])
@pytest.mark.parametrize("zeros", [0, 50])
def test_what_a_dying_machine_left_of_a_picture_is_made_whole(own: Run, tmp_path: Path, left: int, zeros: int) -> None:
    out = export(own, tmp_path / "sorted")
    before = {path: path.read_bytes() for path in out.glob("*/*")}
    first = min(before)
    first.write_bytes(before[first][:left] + bytes(zeros))
    export(own, out, overwrite=True)
    assert {path: path.read_bytes() for path in out.glob("*/*")} == before


KILLED = """
import os, sys
from pathlib import Path
from autonovel.machine.disk import whole
with whole(Path(sys.argv[1]), lasting=False) as part:
    part.touch()
    os.kill(os.getpid(), 9)
"""


def test_unfinished_files_of_a_killed_export_go(own: Run, tmp_path: Path) -> None:
    out = export(own, tmp_path / "sorted")
    before = listing(out)
    subprocess.run([sys.executable, "-c", KILLED, out / "new 0" / "a.png"], check=False)
    assert listing(out) != before
    export(own, out, overwrite=True)
    assert listing(out) == before


def test_overwriting_replaces_the_export_and_nothing_else(run: Run, tmp_path: Path) -> None:
    out = export(run, tmp_path / "sorted")
    (out / "new 0" / "notes.txt").write_text("mine")
    (out / "egret").write_text("a file where a folder will be")
    with pytest.raises(InputError, match="is not empty; .*overwrite=True"):
        export(run, out)
    run.name(0, "heron").name(1, "egret")
    export(run, out, overwrite=True)
    assert [path.name for path in (out / "new 0").iterdir()] == ["notes.txt"]
    assert (out / "egret").read_text() == "a file where a folder will be"
    assert not (out / "new 1").exists()
    found = listing(out)
    assert found.pop("new 0") == 1
    assert found.pop("egret (2)") == (run.labels == run.classes.index("egret")).sum()
    assert found["heron"] == (run.labels == run.classes.index("heron")).sum()


def test_a_forged_list_deletes_nothing_outside(run: Run, tmp_path: Path) -> None:
    out, mine = tmp_path / "sorted", tmp_path / "mine.txt"
    out.mkdir()
    mine.write_text("mine")
    (out / "files.csv").write_text(f"file,source,image\n../mine.txt,,x\n{mine},,x\na/../../mine.txt,,x\n")
    export(run, out, overwrite=True)
    assert mine.read_text() == "mine"


def test_another_files_csv_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "files.csv").write_text("my,own,table\n1,2,3\n")
    with pytest.raises(InputError, match="is not the list of an export"):
        export(run, tmp_path, overwrite=True)
    assert (tmp_path / "files.csv").read_text() == "my,own,table\n1,2,3\n"


def test_missing_files_are_listed(own: Run, tmp_path: Path) -> None:
    gone = [own.images[row] for row in own.unlabelled[:3].tolist()]
    for record in gone:
        Path(record.source).unlink()
    with pytest.warns(AutonovelWarning, match=r"3 of .* could not be placed; see .*problems\.csv"):
        out = export(own, tmp_path / "sorted")
    assert [row[:2] for row in rows(out / "problems.csv")] == [[r.image, r.source] for r in gone]
    assert sum(listing(out).values()) == len(own.predictions) - 3
    for record in own.images:
        Path(record.source).unlink(missing_ok=True)
    with pytest.raises(InputError, match="None of the .* images can be placed"):
        export(own, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_images_without_a_file_come_from_thumbnails(run: Run, tmp_path: Path) -> None:
    run.write_images(record._replace(source="") for record in run.images)
    with pytest.warns(AutonovelWarning, match="came from no file were written as PNG from the thumbnails"):
        out = export(load(run.path), tmp_path / "sorted")
    assert listing(out) == Counter(p.name for p in run.predictions)
    from sklearn.datasets import load_digits

    digits = load_digits().images
    for file, source, image in rows(out / "files.csv"):
        assert source == ""
        found = Image.open(out / file)
        assert found.size == (8, 8)
        if image.startswith("digit "):
            true = digits[int(image[6:10])] * (255 / 16)
            assert np.abs(np.asarray(found) - true).mean() < 4  # JPEG changes pixels a little
    shutil.rmtree(run.path / "thumbnails")
    with pytest.raises(InputError, match="thumbnails/index.json is damaged"):
        export(load(run.path), tmp_path / "again")


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_is_noticed_before(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(1000, 990, 10))
    with pytest.raises(InputError, match="has room for 0.0 MB; .*how='link'"):
        export(run, tmp_path / "sorted")
    assert not (tmp_path / "sorted").exists()
    export(run, tmp_path / "sorted", how="link")


def test_a_run_folder_is_no_target(run: Run, made: Path) -> None:
    with pytest.raises(InputError, match="is a run folder"):
        export(run, run.path, overwrite=True)


def test_a_file_is_no_target(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        export(run, tmp_path / "mine", overwrite=True)
