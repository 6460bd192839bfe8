"""The command as a function: refusals, lists, warnings, and nothing of it left behind in the process."""

import json
import re
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from autonovel.base.errors import InputError, TrainingError, option
from autonovel.cli.data import Data
from autonovel.cli.doctor import Doctor
from autonovel.cli.main import main
from autonovel.data.reading.workers import Progress
from autonovel.settings.recipes import describe_recipes, get_recipe
from autonovel.settings.registry import described
from tests.cli.conftest import Call, Result


def assert_refused(result: Result, *parts: str) -> None:
    """One sentence on stderr, nothing on stdout, status 2."""
    assert result.returncode == 2, result
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("autonovel: ")
    assert lines[0].endswith(".")
    for part in parts:
        assert part in lines[0]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ---- lists and the machine


def test_recipes_are_listed_and_shown(call: Call) -> None:
    listed = call("recipes")
    assert listed.returncode == 0
    assert all(f"{name} " in listed.stdout for name in describe_recipes())
    for setting, lines in described().items():
        assert f"--{setting.replace('_', '-')} NAME\n" in listed.stdout
        assert all(f"  {name} " in listed.stdout and line in listed.stdout for name, line in lines.items())
    lines = call("recipes", "cifar100").stdout.splitlines()
    for line in ("--joint.consistency 50.0", "--joint.ramp 150", "--model.backbone resnet18", "--joint.top-k 5"):
        assert line in lines
    assert "--no-incremental" in lines
    assert not any("--joint.heads" in line for line in lines)
    assert "--pretrain.epochs 40" in call("recipes", "cifar10", "--preset", "fast").stdout.splitlines()


@pytest.mark.parametrize("recipe", ["cifar10", "omniglot", "folder"])
def test_what_a_recipe_shows_can_be_typed(recipe: str, call: Call) -> None:
    words = call("recipes", recipe).stdout.split()
    assert_refused(call("discover", *words, "nowhere"), "There is no file or folder 'nowhere'")


def test_a_recipe_comes_from_a_file_with_its_preset(call: Call) -> None:
    Path("mine.json").write_text(json.dumps(get_recipe("svhn", "fast").to_dict()))
    assert "--joint.epochs 60" in call("recipes", "mine.json").stdout.splitlines()
    assert_refused(call("discover", "nowhere", "--recipe", "mine.json"), "There is no file or folder 'nowhere'")
    assert_refused(call("discover", "x", "--recipe", "mine.json", "--preset", "paper"), "leave --preset out")
    assert_refused(
        call("discover", "x", "--recipe", "other.json"),
        "The recipe other.json cannot be read (No such file or directory); give a file that",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Say which settings to compare, for example --search joint.top-k=1,3,5"),
        ("--search joint.topk=1", "no field 'joint.topk' (did you mean joint.top_k?)"),
        ("--search joint.top-k=few", "--search joint.top_k is 'few'; give a whole number"),
        ("--search pretrain.method=rotatoin", "is 'rotatoin' (did you mean rotation?); give none, rotation"),
        ("--search joint.milestones=3,4", "cannot be compared; compare a field of one value."),
        ("--search joint.top-k=1 --splits 0", "--splits is 0; it must be at least 1"),
        ("--search joint.lr=1", "There is no file or folder 'nowhere'"),
        ("--search top_k", "--search is 'top_k'; give any number of FIELD=V1,V2,..."),
        ("--search joint.top-k=", "--search is 'joint.top-k='; give any number of FIELD=V1,V2,..."),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(words: str, message: str, call: Call) -> None:
    assert_refused(call("tune", "nowhere", *words.split()), message)


def test_a_flag_of_another_command_is_not_taken_for_the_opposite_of_one(call: Call) -> None:
    refused = call("cluster", "nowhere", "--n-new", "3")
    assert_refused(refused, "There is no flag --n-new")
    assert "--no-" not in refused.stderr
    assert_refused(call("tune", "nowhere", "--no-halvign"), "(did you mean --no-halving?)")


def test_benchmarks_are_listed(call: Call) -> None:
    assert "\ncifar100 " in call("data").stdout


def test_a_download_shows_its_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fetch(name: str, root: Path, *, progress: Progress | None = None) -> str:
        assert progress is not None
        later = time.monotonic() + 10  # half of it in ten seconds: not worth saying how long the rest takes
        monkeypatch.setattr("time.monotonic", lambda: later)
        progress(1_000, 2_000)
        return f"{name} is there"

    monkeypatch.setattr("autonovel.data.benchmarks.splits.fetch_benchmark", fetch)
    Data("cifar10").do()
    said = capsys.readouterr()
    assert said.out == "cifar10 is there\n"
    assert said.err == "bytes downloaded: 1,000 of 2,000\n"


def test_version_and_doctor(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("--version").stdout.startswith("autonovel ")
    kept = tmp_path / "autonovel" / "images" / "some"
    kept.parent.mkdir(parents=True)
    with kept.open("wb") as file:
        file.truncate(3 * 2**29)  # a file with a hole: 1.5 GiB that take no room
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = call("doctor")
    assert result.returncode == 0, result.stderr
    assert f"cache: 1.5 GiB in {kept.parent.parent}" in result.stdout
    assert f"torch {torch.__version__}" in result.stdout
    assert "training works on" in result.stdout.splitlines()[-1]


# ---- refusals


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("discovr", ["no command 'discovr' (did you mean discover?)", "choose one of demo, discover"]),
        ("demo --recipe digit", ["no recipe 'digit' (did you mean digits?)", "choose one of cifar10"]),
        ("demo --recipe nonsense", ["no recipe 'nonsense'; choose one of"]),
        ("recipes cifar11", ["no recipe 'cifar11' (did you mean cifar10?)"]),
        ("demo --preset fsat", ["--preset is 'fsat' (did you mean fast?)", "paper, reference or fast"]),
        ("discover --data cifar11", ["no benchmark 'cifar11' (did you mean cifar10"]),
        ("data cifar11", ["no benchmark 'cifar11' (did you mean cifar10"]),
        ("discover --data cifar10 --xyzzy 3", ["no flag --xyzzy;", "autonovel discover --help-all"]),
        ("demo --joint.epoch 3", ["no flag --joint.epoch (did you mean --joint.epochs?)"]),
        ("demo --method kmeens", ["--method is 'kmeens' (did you mean kmeans?); give auto, autonovel", "kmeans"]),
        ("demo --joint.objective swop", ["--joint.objective is 'swop' (did you mean swap?); give none, pairs"]),
        ("demo --joint.epochs ten", ["--joint.epochs is 'ten'; give a whole number."]),
        ("demo elsewhere", ["'elsewhere' is one word too many"]),
        ("discover", ["Give a folder of labelled and one of unlabelled images", "--data NAME"]),
        ("discover known new --data cifar10", ["either your own images or a benchmark (--data)"]),
        ("cluster", ["Give a folder or a table of images", "--data NAME"]),
        ("cluster pile --data cifar10", ["either your own images or a benchmark (--data)"]),
        ("name", ["RUN is missing (usage: autonovel name RUN CLUSTER NAME)."]),
        ("name nowhere 3 heron", ["There is no run in nowhere"]),
        ("show nowhere", ["There is no run in nowhere"]),
    ],
)
def test_what_cannot_be_meant_is_refused(words: str, parts: list[str], call: Call, tmp_path: Path) -> None:
    assert_refused(call(*words.split()), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--n-new 1", "--n-new is 1; there must be at least 2"),
        ("--n-new 1 --incremental", "--n-new is 1; there must be at least 2"),
        ("--n-new some", "--n-new is 'some'; give a whole number, auto or true."),
        ("--n-new true", "--n-new true is for benchmarks"),
        ("--device tpu", "no device 'tpu'; choose cpu, cuda, cuda:N or auto."),
        ("--out file", "file is a file; give another folder for the run as --out."),
        ("--out file/below", "file is a file"),
        ("--out full", "full is not empty and holds no run; give another folder as --out."),
    ],
)
def test_arguments_are_checked_before_an_image_is_read(words: str, part: str, call: Call, tmp_path: Path) -> None:
    for folder in ("photos/new", "photos/known", "full"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "broken.jpg").write_bytes(b"reading this would be another error")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    assert_refused(call("discover", "photos/known", "photos/new", *words.split()), part)
    assert sorted(tmp_path.rglob("*")) == before


def test_k_is_called_k(call: Call) -> None:
    assert_refused(call("cluster", "pile", "--k", "1"), "--k is 1; there must be at least 2")
    assert_refused(
        call("cluster", "pile", "--k", "true"), "--k true is for benchmarks; give the number of clusters, or auto"
    )


# ---- errors and warnings


def test_a_failure_of_the_work_is_status_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Doctor) -> None:
        raise TrainingError(f"The loss is not finite; lower {option('joint.lr')}.")

    monkeypatch.setattr(Doctor, "do", fail)
    assert call("doctor") == (1, "", "autonovel: The loss is not finite; lower --joint.lr.\n")
    monkeypatch.setattr(Doctor, "do", lambda self: Path("nowhere/file").write_text("lost"))
    assert call("doctor") == (1, "", "autonovel: nowhere/file: No such file or directory.\n")


WARNING = """
import warnings
from autonovel.cli.doctor import Doctor
from autonovel.cli.main import main
from autonovel.base.errors import AutonovelWarning

def warn(self):
    for _ in range(2):
        warnings.warn("Something is odd.", AutonovelWarning)
    for level in (1, 2):  # two places, one warning
        warnings.warn("the number is large", RuntimeWarning, stacklevel=level)

Doctor.do = warn
main(["doctor"])
"""


def test_our_warnings_are_one_line_and_those_of_others_as_python_shows_them() -> None:
    # in a process of its own: pytest has its own way with warnings
    result = subprocess.run([sys.executable, "-c", WARNING], capture_output=True, text=True, timeout=60)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "autonovel: warning: Something is odd.",
        "<string>:11: RuntimeWarning: the number is large",
    ]


def test_an_interrupted_command_says_how_to_continue_only_if_it_can(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Doctor, "do", stop)
    assert call("doctor") == (130, "", "autonovel: Interrupted.\n")
    monkeypatch.setattr("autonovel.cli.demo.Demo.do", stop)
    assert call("demo") == (130, "", "autonovel: Interrupted; the same command continues from here.\n")


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("error", [ValueError("no shape"), InputError("This file cannot be read.")])
def test_an_interrupt_that_became_another_error_on_its_way_is_one_all_the_same(
    call: Call, monkeypatch: pytest.MonkeyPatch, kind: signal.Signals, error: Exception
) -> None:
    def stop(*_: object) -> None:
        with suppress(KeyboardInterrupt):  # as code outside of Python does
            signal.raise_signal(kind)
        raise error

    monkeypatch.setattr(Doctor, "do", stop)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # tests that a shell runs in the background ignore it
    try:
        assert call("doctor") == (130, "", "autonovel: Interrupted.\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_stays_ignored_where_it_was(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(Doctor, "do", lambda _: signal.raise_signal(signal.SIGINT))
    try:
        assert call("doctor")[0] == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_command_leaves_the_process_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)]
    show = warnings.showwarning
    assert main(["recipes"]) == 0
    assert main(["nonsense"]) == 2
    assert [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert warnings.showwarning is show
    assert option("n_new") == "n_new"  # messages speak of arguments again


def test_the_answer_is_printed_before_the_pictures_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr("autonovel.api.discover.draw", lambda run, reporter: printed.append(capsys.readouterr().out))
    words = ["demo", "--out", tmp_path / "run", "--method", "kmeans", "--supervised.epochs", 1]
    assert main(list(map(str, words))) == 0
    assert len(printed) == 1
    assert "5 new classes among 896 unlabelled images" in printed[0]
    assert re.search(r"^\d+ s on cpu", printed[0], re.M)
    assert "predictions.csv" in capsys.readouterr().out
    assert main(list(map(str, words))) == 0  # a finished run is told again with the time that it took
    assert len(printed) == 2
