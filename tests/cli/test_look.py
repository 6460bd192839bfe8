"""``autonovel report`` and ``autonovel browse`` on a run with pictures."""

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.report.made import digits_run


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_run(tmp_path_factory.mktemp("pictured") / "run", n=100).path


def test_the_report_is_written_and_named(pictured: Path, call: Call) -> None:
    result = call("report", pictured)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(pictured / "report.html")
    assert "<html" in (pictured / "report.html").read_text()
    lines = call("show", pictured).stdout.splitlines()
    assert any(line.startswith("The whole report: ") and line.endswith(str(pictured / "report.html")) for line in lines)


def test_what_to_do_next_follows_from_what_was_done(tmp_path: Path, call: Call) -> None:
    run = digits_run(tmp_path / "run", n=100)

    def told() -> dict[str, str]:
        return dict(re.findall(r"^([A-Z][a-z ]+): +(.+)$", call("show", run.path).stdout, re.M))

    run.report()
    first = told()
    assert first["The class of every image"] == str(run.path / "predictions.csv")
    assert first["Give one a name"] == f"autonovel name {run.path} 0 NAME"
    run.name(0, "heron")
    then = told()
    assert then["What the machine answered"] == str(run.path / "predictions.csv")
    assert then["Write picture and report again"] == f"autonovel report {run.path}"
    assert then["Give one a name"] == f"autonovel name {run.path} 1 NAME"
    assert "Sort the images into folders" not in then
    for number in (1, 2, 3, 4):
        run.name(number, f"bird {number}")
    run.report()
    last = told()
    assert "Give one a name" not in last
    assert last["Sort the images into folders"] == f"autonovel export {run.path} --to sorted"
    assert "Write picture and report again" not in last


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_page_is_served_until_it_is_stopped(pictured: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "autonovel", "browse", str(pictured), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(url, timeout=20) as page:
            assert page.status == 200
        process.send_signal(how)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 0
    assert stderr == ""


def test_a_port_that_is_taken_is_a_sentence(pictured: Path, call: Call) -> None:
    result = call("browse", pictured, "--no-open", "--port", 99999)
    assert result.returncode == 2
    assert "Port 99999 cannot be used" in result.stderr
