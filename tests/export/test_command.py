"""``autonovel export`` on the command line."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from autonovel.api.run import Run
from autonovel.cli import export as command
from autonovel.cli.main import main
from autonovel.export import FORMATS, HOW


def test_sorting_images(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.name(0, "heron")
    out = tmp_path / "sorted"
    assert main(["export", str(run.path), "--to", str(out), "--how", "link", "--all"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert len(list((out / "heron").iterdir())) == len(run.clusters[0].members)
    assert len(list((out / "0").iterdir())) > 0
    assert main(["export", str(run.path), "--to", str(out)]) == 2
    said = capsys.readouterr().err
    assert said == f"autonovel: The folder {out} is not empty; choose another one with --to, or add --overwrite.\n"
    assert main(["export", str(run.path), "--to", str(out), "--overwrite"]) == 0
    assert main(["export", str(run.path), "--to", str(tmp_path / "a.csv"), "--format", "csv"]) == 0
    assert "heron" in (tmp_path / "a.csv").read_text()


@pytest.mark.filterwarnings("default::autonovel.base.errors.AutonovelWarning")
def test_warnings_are_plain_sentences(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.write_images(record._replace(source="") for record in run.images)
    assert main(["export", str(run.path), "--to", str(tmp_path / "out")]) == 0
    assert re.fullmatch(r"autonovel: warning: \d+ images that came from no file .*\n", capsys.readouterr().err)


def test_what_cannot_be_is_refused(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run.path)]) == 2
    assert "--to is missing" in capsys.readouterr().err
    assert main(["export", str(run.path), "--to", str(tmp_path / "x"), "--format", "xml"]) == 2
    assert "--format" in capsys.readouterr().err
    assert main(["export", str(run.path), "--to", str(tmp_path / "x"), "--format", "csv", "--how", "move"]) == 2
    assert "--how move is for sorted folders; leave it out with --format csv." in capsys.readouterr().err


def test_flags_and_documentation_know_every_format() -> None:
    assert set(get_args(command.Format)) == set(FORMATS)
    assert set(get_args(command.How)) == set(HOW)
    text = (Path(__file__).parent.parent.parent / "docs" / "export.md").read_text(encoding="utf-8")
    for name in (*FORMATS, *HOW):
        assert f"`{name}`" in text, name


def test_images_are_sorted_without_torch(run: Run, tmp_path: Path) -> None:
    code = (
        "import sys; from autonovel.cli.main import main\n"
        f"main(['export', {str(run.path)!r}, '--to', {str(tmp_path / 'out')!r}])\n"
        f"main(['export', {str(run.path)!r}, '--to', {str(tmp_path / 'tasks')!r}, '--format', 'label-studio'])\n"
        f"main(['export', {str(run.path)!r}, '--to', {str(tmp_path / 'set')!r}, '--format', 'imagefolder'])\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines() == [*(str(tmp_path / name) for name in ("out", "tasks", "set")), "False"], (
        result.stderr
    )
