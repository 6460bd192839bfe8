import os
from pathlib import Path

import pytest

from autonovel.cli.main import main
from autonovel.machine.cache_folder import remove_oldest


def test_the_files_used_longest_ago_go_first(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(5)]
    for age, file in zip((3, 1, 4, 0, 2), files, strict=True):
        file.write_bytes(bytes(100))
        os.utime(file, (10_000 - age, 10_000 - age))
    remove_oldest([*files, tmp_path / "gone"], 500)
    assert all(file.exists() for file in files)
    remove_oldest(files, 250)
    assert [file.exists() for file in files] == [False, True, False, True, False]


def test_the_cache_can_be_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "autonovel" / "features").mkdir(parents=True)
    (tmp_path / "autonovel" / "features" / "a").write_bytes(bytes(3 * 2**20))
    (tmp_path / "other").mkdir()
    for removed in ("3 MiB", "0 MiB"):
        assert main(["doctor", "--empty-cache"]) == 0
        assert capsys.readouterr().out.startswith(f"{removed} removed from {tmp_path / 'autonovel'}")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
