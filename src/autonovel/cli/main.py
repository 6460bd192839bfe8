"""The command line: finds the verb, parses its options, turns errors into one sentence and an exit status."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, make_dataclass, replace
from typing import Any

import tyro

from autonovel.cli.verbs import VERBS, Common
from autonovel.errors import AutonovelWarning, InputError, TrainingError
from autonovel.machine.launch import launched
from autonovel.machine.switches import set_for_command
from autonovel.recipes import describe_recipes, get_recipe

_SHORT = {"--incremental": "--joint.incremental", "--no-incremental": "--joint.no-incremental"}
"""Flags that stand for a field of the recipe."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 where the work failed, 2 where the input cannot be used."""
    set_for_command()
    status = _main(argv)
    if launched().several:
        from autonovel.machine.processes import end

        end(status)
    return status


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not launched().first:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # the first process prints what all of them know
    try:
        if words and words[0] not in ("-h", "--help", "--version"):
            signal.signal(signal.SIGTERM, _interrupt)
            if launched().several:
                signal.signal(signal.SIGINT, _interrupt)
            _run_verb(words[0], words[1:])
        else:
            print(_version() if words == ["--version"] else _overview(), flush=True)
    except InputError as error:
        return _complain(str(error), 2)
    except TrainingError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return _complain("Interrupted. The same command goes on from here.", 130)
    except BrokenPipeError:
        # whoever reads has seen enough; what Python still wants to print when it ends goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RuntimeError, MemoryError) as error:
        if _is_out_of_memory(error):
            return _complain(
                "There is not enough memory for this; choose a smaller batch (--joint.batch and so on), smaller images "
                "(--model.size) or a narrower network (--model.width).",
                1,
            )
        if not _lost_a_process(error):
            raise
        return _complain("Another process of this run has ended. The same command goes on from the last kept state.", 1)
    return 0 if words else 2


def _version() -> str:
    import autonovel

    return f"autonovel {autonovel.__version__}"


def _run_verb(verb: str, words: list[str]) -> None:
    if verb not in VERBS:
        raise InputError(f"There is no command '{verb}'; choose one of {', '.join(VERBS)}.")
    kind, function = VERBS[verb]
    _plain_warnings()
    words = [_SHORT.get(word, word) for word in words]
    if issubclass(kind, Common):
        recipe = get_recipe(*_look_ahead(words, kind))
        # the parts of the recipe become options beside the verb's own: --joint.epochs, --model.width
        parts = [(f.name, type(getattr(recipe, f.name)), getattr(recipe, f.name)) for f in fields(recipe)]
        parts = [part for part in parts if is_dataclass(part[2])]
        whole = make_dataclass(kind.__name__, parts, bases=(kind,), frozen=True)
        whole.__doc__ = kind.__doc__
        options = _parse(whole, words, verb)
        with _joined(options.device):
            function(options, replace(recipe, **{name: getattr(options, name) for name, _, _ in parts}))
    else:
        function(_parse(kind, words, verb))


def _look_ahead(words: list[str], kind: type[Common]) -> tuple[str, str]:
    """The recipe and preset among the words: they decide the defaults of all other flags."""

    def value(flag: str, default: str) -> str:
        for i, word in enumerate(words):
            if word == f"--{flag}" and i + 1 < len(words):
                return words[i + 1]
            if word.startswith(f"--{flag}="):
                return word.partition("=")[2]
        return default

    default = next(f.default for f in fields(kind) if f.name == "recipe")
    name = value("recipe", str(default))
    if not name:
        benchmark = value("data", "")
        name = _recipe_of(benchmark) if benchmark else "folder"
    return name, value("preset", "paper")


def _recipe_of(benchmark: str) -> str:
    """The recipe whose settings belong to a benchmark."""
    family = benchmark.partition(":")[0].partition("-")[0]
    return family if family in describe_recipes() else "best"


def _parse(kind: type[Any], words: list[str], verb: str) -> Any:
    """The options; what tyro has to say of bad ones, in a box of several lines, becomes one sentence."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=words, prog=f"autonovel {verb}")
    except SystemExit as exit_:
        if not exit_.code:  # --help
            raise
    inside = [line.strip("│ ").rstrip() for line in said.getvalue().splitlines() if line.startswith("│")]
    sentence = " ".join(itertools.takewhile(lambda line: not line.startswith("─"), inside))
    raise InputError(f"{sentence.strip('. ') or 'The options cannot be read'}; see autonovel {verb} --help.")


def _overview() -> str:
    lines = [
        "autonovel: discover the new classes in a pile of unlabelled images",
        "",
        "usage: autonovel COMMAND ...",
        "",
    ]
    lines += [f"  {verb:<10} {(kind.__doc__ or '').splitlines()[0]}" for verb, (kind, _) in VERBS.items()]
    return "\n".join([*lines, "", "autonovel COMMAND --help lists the options of a command."])


def _plain_warnings() -> None:
    """Show our own warnings as one plain sentence."""
    import warnings

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, AutonovelWarning) and launched().first:
            print(f"autonovel: warning: {message}", file=sys.stderr)

    warnings.showwarning = show


@contextlib.contextmanager
def _joined(device: str) -> Iterator[None]:
    """Work with the other processes, where torchrun has started some."""
    if not launched().several:
        yield
        return
    from autonovel.machine.processes import join, leave

    join(device)
    yield
    leave()  # after an error there is no one to wait for


def _complain(text: str, status: int) -> int:
    if _may_speak():
        print(f"autonovel: {text}", file=sys.stderr)
    return status


def _may_speak() -> bool:
    """Whether no other process has said a last word."""
    if not launched().several:
        return True
    from autonovel.machine.processes import may_speak

    return may_speak()


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, on a GPU or in the machine; torch has no common error for both."""
    said = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)


def _lost_a_process(error: BaseException) -> bool:
    """Whether the error only shows that another process has ended."""
    if not launched().several:
        return False
    from autonovel.machine.processes import lost_contact

    return lost_contact(error)


def _interrupt(*_: Any) -> None:
    # once is enough: a second signal, from torchrun, must not break off the writing of the state
    for kind in (signal.SIGTERM, signal.SIGINT) if launched().several else ():
        signal.signal(kind, signal.SIG_IGN)
    raise KeyboardInterrupt
