import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autonovel.base.errors import InputError
from autonovel.machine.disk import check_room, nearest_there_is, temporary_folder, why_not_writable


def test_a_folder_that_can_be_made_is_writable_and_nothing_is_left_of_the_trial(tmp_path: Path) -> None:
    assert why_not_writable(tmp_path) == why_not_writable(tmp_path / "a" / "b") == ""
    assert nearest_there_is(tmp_path / "a" / "b") == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_why_a_folder_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert why_not_writable(tmp_path / "file") == "Not a directory"
    assert why_not_writable(tmp_path / ("long" * 100)) == "File name too long"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody may write")
def test_a_folder_in_which_nobody_may_write() -> None:
    assert why_not_writable(Path("/proc/deep/run"))


def test_what_killed_processes_left_goes_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = temporary_folder()
    assert mine.parent == tmp_path
    assert mine.stat().st_mode & 0o777 == 0o700
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = mine.name.replace(f"-{mine.name.split('-')[2]}-", f"-{ended.pid}-")
    (tmp_path / dead).mkdir()
    (tmp_path / dead / "pixels").write_bytes(b"x")
    (tmp_path / f"{dead[:-1]}0f").symlink_to(mine)
    others = ["autonovel-photos", f"{dead}.txt", "autonovel-abcdef-1-x"]
    for name in others:
        (tmp_path / name).mkdir()
    kept = temporary_folder()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {mine.name, kept.name, f"{dead[:-1]}0f", *others}


def test_what_does_not_fit_on_the_disk_is_refused(tmp_path: Path) -> None:
    check_room(tmp_path / "not" / "there", 1000, "A thousand bytes take", "do nothing")
    with pytest.raises(InputError, match=r"A lot takes 1,000,000,000\.0 GB and .* has room for .* GB; buy a disk\."):
        check_room(tmp_path, 1e18, "A lot takes", "buy a disk")
