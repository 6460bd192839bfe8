"""What can go wrong, in two kinds: the input is not usable, or the work failed; and how messages name things."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """The user's input cannot be used. The message is one sentence that says what to change; the command line exits with 2."""


class TrainingError(RuntimeError):
    """The work failed although the input was fine (a loss that is not finite, for example); the command line exits with 1."""


class AutonovelWarning(UserWarning):
    """Something the user should know that does not stop the work."""


_NOTHING: Any = object()
_typed = [False]  # whether the user types flags


def option(name: str, value: Any = _NOTHING) -> str:
    """An option as the user spells it, for messages: an argument in Python, a flag on the command line.

    Args:
        name: the argument; a setting of the recipe with its stage, such as ``joint.epochs``.
        value: what the user should give.

    >>> option("n_new"), option("device", "cpu"), option("pretrain.turns", False)
    ('n_new', "device='cpu'", 'recipe.pretrain.turns=False')
    >>> with on_command_line():
    ...     option("n_new"), option("device", "cpu"), option("pretrain.turns", False)
    ('--n-new', '--device cpu', '--pretrain.no-turns')
    """
    if not _typed[0]:
        name = f"recipe.{name}" if "." in name else name
        return name if value is _NOTHING else f"{name}={value!r}"
    stage, dot, last = name.replace("_", "-").rpartition(".")
    if isinstance(value, bool):
        return f"--{stage}{dot}{'' if value else 'no-'}{last}"
    values = () if value is _NOTHING else value if isinstance(value, tuple) else (value,)
    return " ".join([f"--{stage}{dot}{last}", *map(str, values)])


@contextmanager
def on_command_line() -> Iterator[None]:
    """Messages name flags instead of arguments; the command works inside of it."""
    before, _typed[0] = _typed[0], True
    try:
        yield
    finally:
        _typed[0] = before


def listed(words: Iterable[object], last: str = "and") -> str:
    """Words as a sentence lists them.

    >>> listed([1, 2, 5]), listed(["rank", "soft"], "or"), listed(["auto"])
    ('1, 2 and 5', 'rank or soft', 'auto')
    """
    *most, end = map(str, words)
    return f"{', '.join(most)} {last} {end}" if most else end


def kind_found(known: int, count: int = 2) -> str:
    """What this many groups of a pile are called: new classes, or just clusters where no class is known.

    >>> kind_found(known=5), kind_found(known=5, count=1), kind_found(known=0)
    ('new classes', 'new class', 'clusters')
    """
    one, several = ("new class", "new classes") if known else ("cluster", "clusters")
    return one if count == 1 else several


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A clause that names the choice most like the word, or nothing.

    >>> did_you_mean("rotatoin", ["rotation", "none"])
    ' (did you mean rotation?)'
    """
    from difflib import get_close_matches

    near = get_close_matches(word, list(choices), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def unknown(what: str, word: str, choices: Iterable[str]) -> InputError:
    """The error for a name that is none of the choices.

    >>> str(unknown("recipe", "cifar1O", ["cifar10", "svhn"]))
    "There is no recipe 'cifar1O' (did you mean cifar10?); choose one of cifar10, svhn."
    """
    names = list(choices)
    return InputError(f"There is no {what} '{word}'{did_you_mean(word, names)}; choose one of {', '.join(names)}.")


def needed(what: str, extra: str, *packages: str) -> None:
    """Say in a sentence which packages are missing for this."""
    missing = [package for package in packages if _is_missing(package)]
    if missing:
        raise InputError(f"{what} needs {' and '.join(missing)}: pip install 'autonovel[{extra}]'.")


def _is_missing(package: str) -> bool:
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
        return spec is None or spec.origin is None  # a folder of this name, which runs of wandb leave, is no package
    except ValueError:  # imported, but as something that is no package
        return True
