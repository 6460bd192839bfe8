"""What is printed: text for a person, and nothing that a terminal obeys."""

import ast
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autonovel
from autonovel.api.run import Run
from autonovel.base.errors import AutonovelWarning
from autonovel.base.screen import printable, say
from autonovel.cli.main import main
from autonovel.machine.progress import Bars, Lines
from tests.runs.made import make_run

CLEAR_SCREEN, RED = "\x1b[2J", "\x1b[31mred"


@given(text=st.text() | st.text("\x00\x07\b\t\n\r\x1b\x7f\x9b[ab"))
def test_no_control_character_is_left_and_other_text_is_unchanged(text: str) -> None:
    shown = printable(text)
    shown.encode()  # half of a pair, from a file name that is not UTF-8, could not be printed
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in shown)
    if all(unicodedata.category(c) not in ("Cc", "Cs") or c in "\n\t" for c in text):
        assert shown == text


def test_a_control_character_is_shown_as_one_writes_it() -> None:
    assert printable("a\x1b[2Jb\r\x9bc\udcff") == r"a\x1b[2Jb\r\x9bc\udcff"


def test_everything_is_printed_in_one_place() -> None:
    package = Path(autonovel.__file__).parent
    printing = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == {"base/screen.py"}


def named_run(path: Path) -> Run:
    """A run with a known class and a cluster of hostile names."""
    return make_run(path, [0, 0, 1, 1, -1], n_new=2, known=(RED, "dog"))


def test_names_reach_the_screen_without_what_a_terminal_obeys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = named_run(tmp_path / f"run{CLEAR_SCREEN}")
    for words in (["show", str(run.path)], ["move", str(run.path), RED, "4.png"]):
        assert main(words) == 0
        out, err = capsys.readouterr()
        assert "\x1b" not in out + err
        assert r"\x1b[31mred" in out
    run.show()
    assert r"\x1b[31mred" in capsys.readouterr().out


def test_errors_and_warnings_reach_the_screen_without_what_a_terminal_obeys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(_: list[str]) -> None:
        warnings.warn(f"{RED} is odd", AutonovelWarning)

    assert main(["show", str(tmp_path / CLEAR_SCREEN)]) == 2
    monkeypatch.setattr("autonovel.cli.main._obey", warn)
    monkeypatch.setattr(warnings, "filters", [])  # those of the tests make errors of our warnings
    main(["show"])
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert all(part in shown for part in (r"\x1b[2J", r"warning: \x1b[31mred is odd"))


def test_messages_of_progress_hold_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    for reporter in (Lines(), Bars()):
        reporter.message(f"{RED} was left out")
        assert capsys.readouterr().err.strip() == r"\x1b[31mred was left out"


def test_text_of_several_lines_stays_that(capsys: pytest.CaptureFixture[str]) -> None:
    say("one\n\ttwo")
    assert capsys.readouterr().out == "one\n\ttwo\n"
