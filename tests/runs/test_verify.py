"""``autonovel verify``: a run that is whole, and every way in which one is not."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autonovel.api.run import load
from autonovel.base.errors import InputError
from autonovel.cli.main import main
from autonovel.report.html import write_report
from autonovel.runs import checksums
from autonovel.runs.folder import Folder as Run
from autonovel.runs.verify import problems_of
from tests.report.made import digits_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = digits_run(tmp_path_factory.mktemp("verify") / "run", n=40)
    run.name(0, "heron").merge(0, 1)
    return run.path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    return load(shutil.copytree(made, tmp_path / "run"))


def test_a_run_is_whole_when_it_ends(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(problems_of(run)) == []
    listed = set(run.checksums)
    assert {
        "config.json",
        "summary.json",
        "predictions.csv",
        "images.csv",
        "features.npy",
        "joint.safetensors",
    } <= listed
    assert {"probabilities.npy", "unlike.csv", "thumbnails/index.json", "thumbnails/00000.jpg"} <= listed
    assert main(["verify", str(run.path)]) == 0
    assert f"is whole: {len(listed)} files as they were written, 2 edits." in capsys.readouterr().out


def test_edits_and_reports_leave_it_whole(run: Run) -> None:
    run.undo().redo().name(2, "egret")
    write_report(run)
    assert list(problems_of(run)) == []


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="the usual tool is not there")
def test_the_usual_tool_checks_it_too(run: Run) -> None:
    done = subprocess.run(["sha256sum", "--check", "--strict", checksums.FILE], cwd=run.path, capture_output=True)
    assert done.returncode == 0


def test_every_file_in_which_a_bit_has_turned_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(0)
    for name in sorted(run.checksums):
        path = run.path / name
        content = path.read_bytes()
        rotted = bytearray(content or b"x")
        rotted[chance.randrange(len(rotted))] ^= 1 << chance.randrange(8)
        path.write_bytes(rotted)
        if name != "config.json":  # without which it is no run
            assert main(["verify", str(run.path)]) == 1
            assert f"{path} is damaged (it is not as the run wrote it)" in capsys.readouterr().out
        with pytest.raises(InputError, match="not as the run wrote it"):
            Run(run.path).file(name)
        path.write_bytes(content)
        path.unlink()
        if name not in ("config.json", "summary.json"):
            assert any(str(path) in line for line in problems_of(load(run.path))), name
        path.write_bytes(content)
    assert list(problems_of(load(run.path))) == []


@pytest.mark.parametrize("name", ["unlike.csv", "images.csv", "seen.npy", "probabilities.npy", "thumbnails/index.json"])
def test_a_file_that_a_run_may_lack_is_missed_where_it_had_one(run: Run, name: str) -> None:
    (run.path / name).unlink()
    with pytest.raises(InputError, match=f"{name} is damaged .it is missing"):
        load(run.path).has(name)
    assert not load(run.path).has("no such file")


def linked(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize("make", [linked, os.mkfifo])
@pytest.mark.parametrize("name", ["summary.json", "features.npy", "thumbnails/00000.jpg", "state/lock", "stray"])
def test_links_and_pipes_are_named_and_nobody_follows_them(
    run: Run, tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    path = run.path / name
    path.unlink(missing_ok=True)
    make(path)
    assert any(str(path) in line for line in problems_of(Run(run.path)))
    if name != "stray":
        with pytest.raises(InputError, match=r"is a link|it is no file"):
            Run(run.path).file(name).read_bytes()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("folder", ["thumbnails", "state"])
def test_a_folder_that_is_a_link_is_refused(run: Run, tmp_path: Path, folder: str) -> None:
    shutil.move(run.path / folder, tmp_path / "elsewhere")
    (run.path / folder).symlink_to(tmp_path / "elsewhere")
    before = {path: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()}
    assert any("is a link" in line for line in problems_of(Run(run.path)))
    for write in (
        lambda: Run(run.path).write_thumbnails(None),  # type: ignore[arg-type]
        lambda: Run(run.path).write_json(f"{folder}/index.json", {}),
        lambda: Run(run.path).remove(f"{folder}/index.json"),
    ):
        with pytest.raises((InputError, TypeError)):
            write()
    assert {path: path.read_bytes() for path in (tmp_path / "elsewhere").iterdir()} == before


def test_a_file_that_the_run_writes_again_is_as_the_run_wrote_it(run: Run) -> None:
    run.write_images(run.images[:-1])
    assert run.file("images.csv").exists()
    assert Run(run.path).file("images.csv").exists()


def test_a_run_without_checksums_is_said_to_have_none(run: Run) -> None:
    run.remove(checksums.FILE)
    assert list(problems_of(load(run.path))) == [
        f"{run.path} has no checksums.sha256, so that nothing tells whether its files have changed."
    ]


@pytest.mark.parametrize("content", [b"nonsense\n", b"\xff", b"0" * 64 + b"  /etc/passwd\n", b"0" * 64 + b"  ../x\n"])
def test_a_list_of_checksums_that_is_none_is_named(run: Run, content: bytes) -> None:
    (run.path / checksums.FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"checksums.sha256 is damaged"):
        list(problems_of(load(run.path)))


REWRITTEN = """
import os, sys

from autonovel.runs.folder import Folder
run, moment = Folder(sys.argv[1]), sys.argv[2]
listed = Folder._write_checksums
count = 0

def killed(self, found):
    global count
    count += 1
    if moment == "before" and count == 1:
        listed(self, found)
        os.kill(os.getpid(), 9)
    if moment == "after" and count == 2:
        os.kill(os.getpid(), 9)
    listed(self, found)

Folder._write_checksums = killed
run.write_rows("unlike.csv", ("image",), [("1.png",)])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_a_file_is_written_again_spoils_nothing(run: Run, moment: str) -> None:
    before = run.file("unlike.csv").read_text()
    done = subprocess.run([sys.executable, "-c", REWRITTEN, run.path, moment], check=False)
    assert done.returncode == -9
    assert list(problems_of(Run(run.path))) == []
    assert (Run(run.path).file("unlike.csv").read_text() == before) == (moment == "before")
