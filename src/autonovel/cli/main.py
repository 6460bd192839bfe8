"""The command line: finds the command, reads its flags, turns errors into one sentence and an exit status."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from autonovel.base.errors import AutonovelWarning, InputError, TrainingError, on_command_line, option, unknown
from autonovel.base.screen import say
from autonovel.cli.common import TrainingVerb
from autonovel.cli.flags import Flag, Given, all_flags, build, flags_of, read
from autonovel.cli.help import full_help, headings_of, overview, short_help
from autonovel.machine.launch import launched
from autonovel.machine.switches import set_for_command
from autonovel.runs.verbs import VERBS as EDITS

if TYPE_CHECKING:
    from autonovel.settings.recipe import Recipe
    from autonovel.settings.resolve import Asked

VERBS = {
    "demo": "demo.Demo",
    "discover": "discover.Discover",
    "estimate": "estimate.Estimate",
    "cluster": "cluster.Cluster",
    "tune": "tune.Tune",
    "reproduce": "reproduce.Reproduce",
    "show": "show.Show",
    "report": "report.Report",
    "browse": "browse.Browse",
    **{word: f"edit.{word}" for word in EDITS},
    "describe": "describe.Describe",
    "predict": "predict.Predict",
    "export": "export.Export",
    "verify": "verify.Verify",
    "check": "check.Check",
    "recipes": "recipes.Recipes",
    "backbones": "backbones.Backbones",
    "data": "data.Data",
    "doctor": "doctor.Doctor",
}
"""Every command and its class, in a module beside this one."""

HELP = ("-h", "--help", "--help-all")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 where the work failed, 2 where the input cannot be used."""
    set_for_command()  # before torch is imported
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not launched().first:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # the first process prints what all of them know
    with on_command_line(), _plain_warnings(), _interruptible() as signals:
        status = _status_of(words, signals)
    if launched().several:
        from autonovel.machine.processes import end

        end(status)
    return status


def _status_of(words: list[str], signals: list[int]) -> int:
    try:
        _obey(words)
    except (Exception, KeyboardInterrupt) as error:
        # where a signal comes while torch is asking an object for its shape, the interrupt ends as an error of another kind
        if signals or isinstance(error, KeyboardInterrupt):
            trains = bool(words) and words[0] in VERBS and issubclass(_verb(words[0]), TrainingVerb)
            return _complain(f"Interrupted{'; the same command continues from here' if trains else ''}.", 130)
        return _explain(error)
    return 0 if words else 2


def _explain(error: Exception) -> int:
    """Say in a sentence what went wrong, and the status for it; an error of ours is raised again."""
    if isinstance(error, InputError):
        return _complain(str(error), 2)
    if isinstance(error, TrainingError):
        return _complain(str(error), 1)
    if isinstance(error, BrokenPipeError):
        # whoever reads has seen enough; what Python still wants to print when it ends goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError) and error.strerror:
        name = "A file that was written or read" if error.filename is None else error.filename
        return _complain(f"{name}: {error.strerror}.", 1)
    if isinstance(error, RuntimeError | MemoryError) and _is_out_of_memory(error):
        return _complain(
            "There is not enough memory for this; choose smaller batches (--joint.batch and so on), smaller images "
            "(--model.size) or a narrower network (--model.width).",
            1,
        )
    if isinstance(error, RuntimeError) and _lost_a_process(error):
        return _complain(
            "Another process of this run has ended; the same command continues from the last kept state.", 1
        )
    raise error


def _obey(words: list[str]) -> None:
    if words[:1] == ["--version"]:
        import autonovel

        say(f"autonovel {autonovel.__version__}")
    elif not words or words[0] in HELP:
        lines = {verb: (_verb(verb).__doc__ or "").partition(":")[0].partition(". ")[0] for verb in VERBS}
        say(overview({verb: text.rstrip(".") for verb, text in lines.items()}))
    elif words[0] not in VERBS:
        raise unknown("command", words[0], VERBS)
    elif any(word in HELP for word in words):
        say(_help(words[0], words[1:]))
    elif issubclass(kind := _verb(words[0]), TrainingVerb):
        options, asked, given = _typed(words[0], kind, words[1:])
        _refuse_idle(options, given)
        with _joined(options.device):
            options.check()
            options.do(asked)
    else:
        given = read(words[0], words[1:], list(flags_of(kind)))
        options = build(kind, given)
        _refuse_idle(options, given)
        options.do()


def _refuse_idle(options: Any, given: Given) -> None:
    """Refuse a flag that would do nothing beside the others: whoever typed it expects something of it."""
    for path in given:
        if why := options.idle(path):
            raise InputError(f"{option(path.rstrip('_'))} has no effect here: {why}; leave it out.")


def _typed(verb: str, kind: type[Any], words: list[str]) -> tuple[Any, Asked, Given]:
    """The options of a command that trains, the recipe with the fields that were typed, and all that was typed."""
    from autonovel.settings.fields import check
    from autonovel.settings.recipe import Recipe

    own = {flag.path for flag in flags_of(kind)}
    settings = [_named(flag) for flag in all_flags(Recipe) if flag.path not in SAID_BY_OPTIONS]
    given = read(verb, words, [*flags_of(kind), *settings])
    options = build(kind, given)
    asked = options.base(given).with_values({path: value for path, value in given.items() if path not in own})
    check(asked.get())
    return options, asked, given


def _verb(name: str) -> type[Any]:
    module, _, kind = VERBS[name].partition(".")
    command: type[Any] = getattr(import_module(f"autonovel.cli.{module}"), kind)
    return command


SAID_BY_OPTIONS = ("name", "preset")
"""Fields of a recipe that --recipe and --preset say."""


def _flags(kind: type[Any], recipe: Recipe | None = None) -> list[Flag]:
    """All flags of a command; what means something in the recipe is a flag beside its own, such as ``--joint.epochs``."""
    own = list(flags_of(kind))
    if recipe is None:
        return own
    from autonovel.settings.recipe import Recipe

    return own + [_named(flag) for flag in flags_of(Recipe, recipe) if flag.path not in SAID_BY_OPTIONS]


def _named(flag: Flag) -> Flag:
    """A flag that chooses by name takes the names there are, and says of each when to use it."""
    from autonovel.settings.registry import METHODS, described

    names, lines = tuple(METHODS) if flag.path == "method" else (), described().get(flag.path, {})
    choices = " ".join(f"{name}: {line}." for name, line in lines.items())
    return replace(flag, kind=Literal[names] if names else flag.kind, choices=choices)


def _help(verb: str, words: list[str]) -> str:
    kind, recipe = _verb(verb), None
    if issubclass(kind, TrainingVerb):  # what means something depends on what the other words choose
        recipe, others = kind().base({}).get(), [word for word in words if word not in HELP]
        with suppress(InputError):  # help is asked for where a command was refused
            recipe = _typed(verb, kind, others)[1].get() if others else recipe
    flags = _flags(kind, recipe)
    if "--help-all" in words:
        return full_help(verb, kind.__doc__ or "", flags, {} if recipe is None else headings_of(recipe))
    return short_help(verb, kind.__doc__ or "", flags, kind.MATTER)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show our own warnings as one plain sentence, those of others as Python does, and each of them once."""
    with warnings.catch_warnings():
        as_python_does, shown = warnings.showwarning, set[tuple[type[Warning], str]]()

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if not launched().first or (category, str(message)) in shown:
                return
            shown.add((category, str(message)))
            if issubclass(category, AutonovelWarning):
                say(f"autonovel: warning: {message}", sys.stderr)
            else:
                as_python_does(message, category, *rest, **more)

        warnings.showwarning = show
        yield


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """``kill`` ends the work as Ctrl-C does; gives the list of signals that have come."""
    kinds, came = (signal.SIGTERM, signal.SIGINT), list[int]()
    if threading.current_thread() is not threading.main_thread():  # where Python allows no handlers
        yield came
        return

    def interrupt(kind: int, _: Any) -> None:
        came.append(kind)
        # once is enough: a second signal, from torchrun, must not break off the writing of the state
        for other in kinds if launched().several else ():
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    # what is ignored stays so, as Ctrl-C is by a command that a script has put into the background
    heard = [kind for kind in kinds if signal.getsignal(kind) is not signal.SIG_IGN]
    before = [(kind, signal.signal(kind, interrupt)) for kind in heard]
    try:
        yield came
    finally:
        for kind, handler in before:
            signal.signal(kind, handler)


@contextmanager
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
        say(f"autonovel: {text}", sys.stderr)
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
