from pathlib import Path

import pytest

from autonovel.machine.disk import nearest_there_is, why_not_writable


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
