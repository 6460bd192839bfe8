"""Flags made of dataclasses: one documented field is a flag, its help and its default.

The fields of a dataclass within a dataclass have a prefix: ``--joint.heads``. A field's type says what may be typed:
numbers, texts, paths, Literal choices, unions of these, None as ``none``, and tuples as several words. A yes-or-no field has
two flags, ``--report`` and ``--no-report``; a name that Python keeps for itself has an underscore at its
end, ``from_``, which is not typed. ``--flag value`` and ``--flag=value`` are the same, flags and
positional words may come in any order, and after ``--`` there are no more flags.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from autonovel.base.errors import InputError, did_you_mean
from autonovel.settings.fields import family_of, shown, types_of
from autonovel.settings.kinds import in_words, members

T = TypeVar("T")
_PLACED = "positional"
Positional = Annotated[T, _PLACED]
"""The type of a field that is typed without a flag, at its place."""

Given = dict[str, Any]
"""What was typed: values by the dotted names of their fields."""

_METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH", NoneType: "none"}


@dataclass(frozen=True)
class Flag:
    """A field as it is typed.

    Attributes:
        path: its dotted name, ``joint.heads``.
        kind: its type.
        default: its value when nothing is typed; MISSING where it must be given.
        owner: the dataclass whose field it is.
        positional: whether it is typed without a flag.
        choices: what follows its documentation: a sentence for each name that it takes.
    """

    path: str
    kind: Any
    default: Any
    owner: type
    positional: bool = False
    choices: str = ""

    @property
    def text(self) -> str:
        """Its documentation, which is looked up only where it is shown: reading the source takes a while."""
        return " ".join(filter(None, (text_of(self.owner, self.path.rpartition(".")[2]), self.choices)))

    @property
    def name(self) -> str:
        """``--joint.heads``, or ``LABELLED`` for a positional one."""
        return self.path.upper() if self.positional else f"--{self.path.rstrip('_').replace('_', '-')}"

    @property
    def group(self) -> str:
        """What stands before the last dot: ``joint``."""
        return self.path.rpartition(".")[0]

    @property
    def negative(self) -> str:
        """The flag that says no: ``--no-report``."""
        stage, dot, last = self.name.removeprefix("--").rpartition(".")
        return f"--{stage}{dot}no-{last}"

    @property
    def repeats(self) -> bool:
        """Whether any number of words may be given."""
        return get_origin(self.kind) is tuple and get_args(self.kind)[-1] is Ellipsis


def flags_of(kind: type[Any], values: Any = None, prefix: str = "") -> Iterator[Flag]:
    """All flags of a dataclass and the dataclasses within it.

    Args:
        kind: the dataclass.
        values: an instance whose values are the defaults, in place of the class's own.
        prefix: put before every name.
    """
    hints = get_type_hints(kind, include_extras=True)
    if values is not None and (choices := family_of(kind)) is not None:
        yield _chooser(kind, choices, getattr(values, choices[0]), prefix)
    names = shown(values) if values is not None else [f.name for f in fields(kind)]
    for f in fields(kind):
        default = f.default if values is None else getattr(values, f.name)
        if f.name not in names:
            continue
        if is_dataclass(default):
            yield from flags_of(type(default), default, f"{prefix}{f.name}.")
        else:
            hint = hints[f.name]
            placed = _PLACED in getattr(hint, "__metadata__", ())
            plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
            yield Flag(f"{prefix}{f.name}", plain, default, kind, placed)


def all_flags(kind: type[Any], prefix: str = "") -> Iterator[Flag]:
    """All flags of a class of settings, whatever may be chosen in it; those of the class's own choices come first."""
    choices, done = family_of(kind), set[str]()
    if choices is not None:
        yield _chooser(kind, choices, None, prefix)
    for member in (kind, *(choices[1].values() if choices is not None else ())):
        for f in fields(member):
            if f.name in done or f.name not in types_of(member):
                continue
            done.add(f.name)
            hint, path = types_of(member)[f.name], f"{prefix}{f.name}"
            if isinstance(hint, type) and is_dataclass(hint):
                yield from all_flags(hint, f"{path}.")
            else:
                yield Flag(path, hint, f.default, member)


def _chooser(kind: type[Any], choices: tuple[str, Mapping[str, type]], default: Any, prefix: str) -> Flag:
    name, members_ = choices
    return Flag(f"{prefix}{name}", Literal[tuple(members_)], default, kind)


def read(verb: str, words: Sequence[str], flags: Sequence[Flag], short: Mapping[str, str] = {}) -> Given:
    """The values that were typed.

    Args:
        verb: the command.
        words: what was typed after it.
        flags: all there are.
        short: further spellings of flags.
    """
    table = {f.name: (f, None) for f in flags if not f.positional} | {
        f.negative: (f, False) for f in flags if f.kind is bool
    }
    given: Given = {}
    loose: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            loose += rest
            break
        if not _is_flag(word):
            loose.append(word)
            continue
        typed, equals, value = word.partition("=")
        name = typed.replace("_", "-")
        name = short.get(name, name)
        if name not in table:
            negatives = "no-" in name  # else every short flag would be like one of them
            near = did_you_mean(name, [*(n for n, (_, fixed) in table.items() if fixed is None or negatives), *short])
            raise InputError(f"There is no flag {typed}{near}; autonovel {verb} --help-all shows all of them.")
        flag, fixed = table[name]
        if flag.kind is bool and not equals:
            given[flag.path] = fixed is None
        elif flag.kind is bool:
            if value not in ("true", "false") or fixed is not None:
                raise InputError(f"{typed} takes no value; {flag.negative} is its opposite.")
            given[flag.path] = value == "true"
        else:
            candidates = _parts(flag.kind, value) if equals else _values(rest)
            converted, used = _convert(flag, typed, candidates)
            if flag.repeats and not flag.group and candidates and not used:
                raise InputError(f"{typed} is '{candidates[0]}'; give {in_words(flag.kind)}.")
            # a command's own list may be typed in several parts; a field of the recipe is what was typed last
            before = given.get(flag.path, ()) if flag.repeats and not flag.group else ()
            given[flag.path] = (*before, *converted) if before else converted
            if equals and used < len(candidates):
                raise InputError(f"{typed} is '{value}'; give {in_words(flag.kind)}.")
            rest = rest if equals else rest[used:]
    given |= _place(loose, [f for f in flags if f.positional], usage(verb, flags))
    for flag in flags:
        if flag.default is MISSING and flag.path not in given:
            raise InputError(f"{flag.name} is missing ({usage(verb, flags)}).")
    return given


def build(kind: type[T], given: Given) -> T:
    """The dataclass with the given values; those not given keep their defaults."""
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given})  # type: ignore[arg-type]


def usage(verb: str, flags: Sequence[Flag]) -> str:
    """How a command is typed."""
    shown = [
        (name if flag.default is MISSING else f"[{name}]")
        for flag in flags
        if (name := _in_usage(flag)) and (flag.positional or flag.default is MISSING)
    ]
    more = ["[flags]"] if any(not f.positional and f.default is not MISSING for f in flags) else []
    return " ".join(["usage: autonovel", verb, *shown, *more])


def _in_usage(flag: Flag) -> str:
    value = "" if flag.positional else f" {metavar(flag.kind)}"
    return f"{flag.name}{value}{' ...' if flag.repeats else ''}"


def metavar(kind: Any) -> str:
    """What stands for the value in a line of help: ``N``, ``paper|fast``, ``N N``."""
    if get_origin(kind) is tuple:
        first, *others = get_args(kind)
        return f"{metavar(first)} ..." if Ellipsis in others else " ".join(map(metavar, (first, *others)))
    if members(kind):
        return "|".join(metavar(part) for part in members(kind))
    named = _METAVARS.get(kind, getattr(kind, "METAVAR", "VALUE"))
    return "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else named


def text_of(kind: type[Any], name: str) -> str:
    """The documentation of a field: the string below it in the source."""
    for owner in kind.__mro__:
        text = _texts(owner.__module__).get(owner.__qualname__, {}).get(name)
        if text is not None:
            return text
    return ""


@functools.cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> documentation, for a module whose source is at hand."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    texts: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            own = texts.setdefault(node.name, {})
            for line, below in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(line, ast.AnnAssign)
                    and isinstance(line.target, ast.Name)
                    and isinstance(below, ast.Expr)
                    and isinstance(below.value, ast.Constant)
                    and isinstance(below.value.value, str)
                ):
                    own[line.target.id] = " ".join(below.value.value.split())
    return texts


def _is_flag(word: str) -> bool:
    """Whether a word is a flag, and no value: a negative number and the ``-`` of standard input are values."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _values(words: Sequence[str]) -> list[str]:
    """The words up to the next flag."""
    ends = [i for i, word in enumerate(words) if _is_flag(word)]
    return list(words[: ends[0]] if ends else words)


def _parts(kind: Any, value: str) -> list[str]:
    """The words of a value after ``=``: numbers may be several, with commas between them."""
    several = any(get_origin(part) is tuple and str not in get_args(part) for part in members(kind) or (kind,))
    return value.split(",") if several else [value]


def take_value(flag: Flag, typed: str, word: str) -> Any:
    """The value of a flag from one word, for commands that read flags of the recipe within a word of their own.

    Args:
        flag: whose value it is.
        typed: what the user typed before it, for the message where it cannot be read.
        word: the value.
    """
    if flag.kind is bool:
        flag = replace(flag, kind=Literal["true", "false"])
        return _convert(flag, typed, [word])[0] == "true"
    if get_origin(flag.kind) is tuple:
        raise InputError(f"{typed} takes several words at once and cannot be compared; compare a field of one value.")
    return _convert(flag, typed, [word])[0]


def _convert(flag: Flag, typed: str, words: list[str]) -> tuple[Any, int]:
    try:
        return _take(flag.kind, words)
    except IndexError:
        raise InputError(f"{typed} needs {in_words(flag.kind)}.") from None
    except (ValueError, KeyError):
        choices = [str(name) for part in members(flag.kind) or (flag.kind,) for name in _choices(part)]
        raise InputError(
            f"{typed} is '{words[0]}'{did_you_mean(words[0], choices)}; give {in_words(flag.kind)}."
        ) from None


def _take(kind: Any, words: list[str]) -> tuple[Any, int]:
    """A value of this type from the first words, and how many of them it took.

    Raises:
        ValueError or KeyError: they do not say such a value.
        IndexError: there are too few.
    """
    if parts := members(kind):
        # a word that stands for itself comes before anything that it could be read as
        for part in sorted(parts, key=lambda part: part in _METAVARS and part is not NoneType):
            try:
                return _take(part, words)
            except (ValueError, KeyError):
                continue
        raise ValueError
    if get_origin(kind) is tuple:
        return _take_several(kind, words)
    word = words[0]
    if get_origin(kind) is Literal:
        return {str(choice): choice for choice in get_args(kind)}[word], 1
    if kind is NoneType:
        return {"none": None}[word.lower()], 1
    return kind(word), 1


def _take_several(kind: Any, words: list[str]) -> tuple[tuple[Any, ...], int]:
    parts = get_args(kind)
    if parts[-1] is not Ellipsis:
        taken = [_take(part, words[place:])[0] for place, part in enumerate(parts)]
        return tuple(taken), len(taken)
    values: list[Any] = []
    for word in words:
        try:
            values.append(_take(parts[0], [word])[0])
        except (ValueError, KeyError):
            break
    return tuple(values), len(values)


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _place(words: list[str], flags: list[Flag], shown: str) -> Given:
    """Words without flags, given to the positional fields in their order."""
    given: Given = {}
    for flag in flags:
        taken, words = (words, []) if flag.repeats else (words[:1], words[1:])
        if taken:
            given[flag.path], used = _convert(flag, flag.name, taken)
            if not used:
                raise InputError(f"{flag.name} cannot begin with '{taken[0]}'; give {in_words(flag.kind)} ({shown}).")
            words = taken[used:] + words
    if words:
        raise InputError(f"'{words[0]}' is one word too many, or the value of a flag that is missing ({shown}).")
    return given
