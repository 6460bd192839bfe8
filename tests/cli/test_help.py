"""Help as it is read: every command, every flag, without waiting for torch."""

import subprocess
import sys
from dataclasses import fields

import pytest

from autonovel.cli.common import TrainingVerb
from autonovel.cli.flags import flags_of
from autonovel.cli.main import VERBS, _flags, _verb
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from tests.cli.conftest import Call


def test_the_overview_names_every_command(call: Call) -> None:
    result = call("--help")
    assert result.returncode == 0
    assert result.stderr == ""
    for verb in VERBS:
        assert f"\n  {verb} " in result.stdout
    assert call("-h") == result
    assert call("help") == result
    assert call("help", "discover") == call("discover", "--help")
    nothing = call()
    assert nothing.returncode == 2
    assert "usage: autonovel" in nothing.stdout


def test_help_shows_the_flags_that_matter(call: Call) -> None:
    result = call("discover", "--help")
    assert result.returncode == 0
    shown = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  --")]
    for flag in ("--out", "--n-new", "--recipe", "--preset", "--data", "--root", "--seed", "--device", "--json"):
        assert flag in shown
    assert len(shown) <= 13
    assert "--joint.epochs" not in result.stdout
    assert "autonovel discover --help-all shows the other " in result.stdout
    assert "  LABELLED " in result.stdout
    assert "usage: autonovel discover [LABELLED] [UNLABELLED] [flags]" in result.stdout


def test_help_all_shows_every_field_of_the_recipe_by_stage(call: Call) -> None:
    lines = call("discover", "--help-all").stdout.splitlines()
    shown = {line.split()[0].replace("[no-]", "") for line in lines if line.startswith("  --")}
    kind = _verb("discover")
    assert shown == {flag.name for flag in _flags(kind, get_recipe("folder")) if not flag.positional}
    for flag in ("--joint.epochs", "--model.width", "--unverified", "--start-from", "--incremental"):
        assert flag in shown
    assert "--joint.heads" not in shown  # nobody has chosen what has it
    groups = [line.partition(":")[0] for line in lines if line.partition(":")[0] in ("model", "pretrain", "joint")]
    assert groups == ["model", "pretrain", "joint"]
    assert max(map(len, lines)) <= 100


def test_help_shows_the_values_of_the_recipe_that_is_named(call: Call) -> None:
    def value(*words: str) -> str:
        shown = call("discover", "--help-all", *words).stdout
        return shown.partition("--joint.epochs N")[2].partition("[")[2].partition("]")[0]

    assert value("--recipe", "cifar10") == str(get_recipe("cifar10").joint.epochs)
    assert value("--data=cifar10", "--preset", "fast") == str(get_recipe("cifar10", "fast").joint.epochs)
    assert value("--nonsense") == str(get_recipe("folder").joint.epochs)
    chosen = call("discover", "--help-all", "--joint.objective", "swap").stdout
    assert "--joint.heads" in chosen
    assert "--joint.top-k" not in chosen


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_of_every_command_is_documented_and_has_one_meaning(verb: str, call: Call) -> None:
    kind = _verb(verb)
    trains = issubclass(kind, TrainingVerb)
    flags = _flags(kind, Recipe() if trains else None)
    for flag in flags:
        assert flag.text.endswith("."), flag.path
    names = [flag.name for flag in flags]
    assert len(set(names)) == len(names)
    assert {f.name for f in fields(kind)} == {flag.path for flag in flags_of(kind)}
    for words in ([verb, "--help"], [verb, "-h"], [verb, "somewhere", "--help-all"]):
        result = call(*words)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith(f"usage: autonovel {verb}")
    assert (kind.__doc__ or "").endswith(".")


def test_help_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from autonovel.cli.main import VERBS, main\n"
        "for verb in VERBS: main([verb, '--help-all'])\n"
        "main(['--help']); print({'torch', 'numpy', 'PIL', 'rich', 'scipy'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "set()", result.stderr


@pytest.mark.parametrize("words", ["recipes cifar10", "discover --help-all"])
def test_a_reader_that_stops_early_is_no_error(words: str) -> None:
    command = [sys.executable, "-u", "-m", "autonovel", *words.split()]  # unbuffered: every line meets the closed pipe
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
