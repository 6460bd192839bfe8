"""A tree of settings: which of its fields mean something, what each may hold, and how values get in and out of it.

Settings are frozen dataclasses. A field says its range itself, ``Annotated[int, Range(1)]``, and which choice it goes with,
``Annotated[int, When("schedule", "cosine")]``. Where a method is chosen by name, its settings are a class of their own, and the
classes are a family (:func:`family`): the name of the class is its chooser, ``pretrain.method``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, reduce
from typing import Any, TypeVar, cast, get_args, get_type_hints

from autonovel.base.errors import InputError, did_you_mean, listed, option
from autonovel.settings.kinds import in_words, is_a

T = TypeVar("T")
Work = TypeVar("Work", bound=Callable[..., Any])


@dataclass(frozen=True)
class Range:
    """The numbers that a field, or each part of it, may hold.

    Attributes:
        least: the smallest one.
        most: the largest one.
        above: whether the smallest one itself is too small.
        rising: whether the parts of the field must not fall.
        open: the number that leaves the field to the data.
    """

    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    rising: bool = False
    open: float | None = None

    def refuses(self, value: Any) -> bool:
        """Whether a value of the right type lies outside."""
        if value is None or (value == self.open and self.open is not None):
            return False
        parts = value if isinstance(value, tuple | list) else (value,)
        return not all(map(self._takes, parts)) or (self.rising and list(parts) != sorted(parts))

    def _takes(self, part: float) -> bool:
        return self.least <= part <= self.most and math.isfinite(part) and not (self.above and part == self.least)

    @property
    def rule(self) -> str:
        """What a value must do, for a sentence.

        >>> Range(1).rule, Range(0, above=True).rule, Range(0, 1, rising=True).rule
        ('be at least 1', 'be above 0', 'lie between 0 and 1, the smaller first')
        """
        if math.isinf(self.most):
            rule = f"be {'above' if self.above else 'at least'} {self.least}"
        elif math.isinf(self.least):
            rule = f"be at most {self.most}"
        else:
            rule = f"lie between {self.least} and {self.most}"
        left = f", or be {self.open} to leave it to the data" if self.open is not None else ""
        return f"{rule}{', the smaller first' if self.rising else ''}{left}"


@dataclass(frozen=True)
class Open:
    """The text that leaves a field to the data."""

    open: str = "auto"


@dataclass(frozen=True)
class When:
    """The choice that a field belongs to: the dotted name of another field, and what that must be; or one choice more."""

    field: str
    values: tuple[str, ...]
    also: When | None

    def __init__(self, field: str, *values: str, also: When | None = None) -> None:
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "also", also)


# ---- Families: classes of which one is chosen by name

_FAMILIES: dict[type, tuple[str, Mapping[str, type]]] = {}


def family(base: type[T], chooser: str, *members: type[T]) -> Mapping[str, type[T]]:
    """Make classes a family, of which a person chooses one: by the name that each gives as its attribute ``chooser``."""
    by_name = {getattr(kind, chooser): kind for kind in members}
    _FAMILIES[base] = (chooser, by_name)
    return by_name


def family_of(kind: type) -> tuple[str, Mapping[str, type]] | None:
    """What the members of a class's family are chosen by, and the members by name."""
    return next((_FAMILIES[base] for base in kind.__mro__ if base in _FAMILIES), None)


def usual(kind: type[T], preset: str) -> T:
    """The settings that a class brings in a preset: its own defaults, in preset fast with its ``FAST`` ones."""
    return kind(**(getattr(kind, "FAST", {}) if preset == "fast" else {}))


def chosen(kind: type[T], name: Any, path: str) -> type[T]:
    """The class of this name in the family of a class."""
    choices = family_of(kind)
    assert choices is not None
    if name not in choices[1]:
        names = ", ".join(choices[1])
        raise InputError(f"{option(path)} is {name!r}{did_you_mean(str(name), choices[1])}; choose one of {names}.")
    return choices[1][name]


# ---- Which fields mean something


def _remembered(work: Work) -> Work:
    """What :func:`functools.cache` does, with the types of the arguments."""
    return cast(Work, cache(work))


@_remembered
def _hints(kind: Any) -> dict[str, Any]:
    """The types of the fields with what is said beside them; looked up once, for that compiles every annotation anew."""
    own = {f.name for f in fields(kind)}
    return {name: hint for name, hint in get_type_hints(kind, include_extras=True).items() if name in own}


@_remembered
def types_of(kind: Any) -> dict[str, Any]:
    """The types of the fields that the class does not hide."""
    hidden = getattr(kind, "HIDES", ())
    return {
        name: get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        for name, hint in _hints(kind).items()
        if name not in hidden
    }


@_remembered
def beside(kind: Any, name: str, what: type[T]) -> T | None:
    """What a field says of itself beside its type: its :class:`Range`, its :class:`When`."""
    said = getattr(_hints(kind)[name], "__metadata__", ())
    return next((one for one in said if isinstance(one, what)), None)


def shown(settings: Any) -> list[str]:
    """The names of the fields that mean something, as things are chosen.

    >>> from autonovel.settings.stages import Supervised
    >>> [name for name in shown(Supervised(schedule="cosine")) if name in ("milestones", "decay", "warmup")]
    ['warmup']
    """
    kind = type(settings)
    return [name for name in types_of(kind) if _applies(settings, beside(kind, name, When))]


def _applies(settings: Any, when: When | None) -> bool:
    if when is None:
        return True
    value = settings
    for name in when.field.split("."):
        value = getattr(value, name, None)
    return value in when.values or (when.also is not None and _applies(settings, when.also))


def tidied(settings: T) -> T:
    """The same settings; fields that mean nothing have their defaults, so that they cannot differ."""
    names, changes = shown(settings), dict[str, Any]()
    for f in fields(settings):  # type: ignore[arg-type]
        own = getattr(settings, f.name)
        value = f.default if f.name not in names else tidied(own) if is_dataclass(own) else own
        if value is not own and value != own:
            changes[f.name] = value
    return replace(settings, **changes) if changes else settings  # type: ignore[type-var]


def leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that means something, by its dotted name, with its value; choosers come first."""
    choices = family_of(type(settings))
    if choices is not None:
        yield f"{prefix}{choices[0]}", getattr(settings, choices[0])
    for name in shown(settings):
        own = getattr(settings, name)
        if is_dataclass(own):
            yield from leaves(own, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", own


def owner(settings: Any, path: str, prefix: str = "") -> tuple[str, tuple[str, ...], str] | None:
    """To what a field belongs that means nothing here: the chooser, what it would have to be, and what it is.

    None where the field means something, or where nothing has such a field.
    """
    kind, (name, _, rest) = type(settings), path.partition(".")
    choices = family_of(kind)
    if choices is not None and not _has(kind, path) and name != choices[0]:
        having = tuple(member for member, other in choices[1].items() if _has(other, path))
        return (f"{prefix}{choices[0]}", having, getattr(settings, choices[0])) if having else None
    if name not in types_of(kind):
        return None
    when = beside(kind, name, When)
    if when is not None and not _applies(settings, when):
        return f"{prefix}{when.field}", when.values, getattr(settings, when.field)
    own = getattr(settings, name)
    return owner(own, rest, f"{prefix}{name}.") if rest and is_dataclass(own) else None


def _has(kind: type, path: str) -> bool:
    name, _, rest = path.partition(".")
    if name not in types_of(kind):
        return False
    return not rest or (is_dataclass(types_of(kind)[name]) and _has(types_of(kind)[name], rest))


# ---- What a field may hold


def fits(kind: type, name: str, value: Any) -> bool:
    """Whether a field of a settings class can hold this value, which may have been read from JSON.

    >>> from autonovel.settings.augment import Augment
    >>> fits(Augment, "rotate", 5), fits(Augment, "rotate", "much"), fits(Augment, "area", [0.4, 1])
    (True, False, True)
    """
    return is_a(types_of(kind)[name], value)


def taken(kind: type, name: str, none: str) -> str:
    """What a field of a settings class takes, for a sentence.

    >>> from autonovel.settings.recipe import Recipe
    >>> taken(Recipe, "pile", "None"), taken(Recipe, "joint", "null")
    ('new, mixed or auto', 'its settings by name')
    """
    hint = types_of(kind)[name]
    return "its settings by name" if is_dataclass(hint) else in_words(hint, none)


def check(settings: Any, prefix: str = "") -> None:
    """Refuse a value that its field cannot hold: every field that means something is looked at."""
    kind = type(settings)
    for name, hint in types_of(kind).items():
        value, path = getattr(settings, name), f"{prefix}{name}"
        if not _applies(settings, beside(kind, name, When)):
            continue
        right = isinstance(value, hint) if isinstance(hint, type) and is_dataclass(hint) else is_a(hint, value)
        if not right:
            raise InputError(f"{option(path)} is {value!r}; give {taken(kind, name, 'None')}.")
        if is_dataclass(value):
            check(value, f"{path}.")
        limits = beside(kind, name, Range)
        if limits is not None and limits.refuses(value):
            words = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise InputError(f"{option(path)} is {words}; it must {limits.rule}.")


def left_open(settings: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of the fields that still leave their value to the data."""
    kind = type(settings)
    choices = family_of(kind)
    if choices is not None and getattr(settings, choices[0]) == "auto":
        yield f"{prefix}{choices[0]}"
    for name in shown(settings):
        value = getattr(settings, name)
        if is_dataclass(value):
            yield from left_open(value, f"{prefix}{name}.")
        for said in (beside(kind, name, Range), beside(kind, name, Open)):
            if said is not None and said.open is not None and value == said.open:
                yield f"{prefix}{name}"


# ---- In and out


def overlay(settings: T, values: Mapping[str, Any], preset: str) -> T:
    """The settings with values in their places, given by dotted names; a value for what means nothing here is refused.

    Another method than there was brings its own class with what that usually has in the preset.
    """
    laid = _laid(settings, values, preset, "")
    _refuse_strangers(laid, values)
    return tidied(laid)


def _laid(settings: T, values: Mapping[str, Any], preset: str, prefix: str) -> T:
    choices = family_of(type(settings))
    if (
        choices is not None
        and (path := f"{prefix}{choices[0]}") in values
        and values[path] != getattr(settings, choices[0])
    ):
        settings = usual(chosen(type(settings), values[path], path), preset)
    changed: dict[str, Any] = {}
    for name in types_of(type(settings)):
        own, path = getattr(settings, name), f"{prefix}{name}"
        if is_dataclass(own):
            changed[name] = _laid(own, values, preset, f"{path}.")
        elif path in values:
            changed[name] = tuple(values[path]) if isinstance(values[path], list) else values[path]
    return replace(settings, **changed)  # type: ignore[type-var]


def _refuse_strangers(settings: Any, paths: Iterable[str]) -> None:
    """Refuse dotted names of fields that mean nothing as things are chosen, and say to what they belong; then misfits."""
    known = dict(leaves(settings))
    for path in paths:
        if path in known:
            continue
        belongs = owner(settings, path)
        if belongs is not None:
            chooser, names, present = belongs
            raise InputError(
                f"{option(path)} belongs to {option(chooser)} {listed(names, 'or')}; this run has {present}."
            )
        near = did_you_mean(path, known)
        raise InputError(f"A recipe has no field '{path}'{near}; autonovel recipes NAME shows all of them.")
    for path in paths:
        *above, name = path.split(".")
        kind = type(reduce(getattr, above, settings))
        if name in types_of(kind) and not fits(kind, name, known[path]):
            raise InputError(f"{option(path)} is {known[path]!r}; give {taken(kind, name, 'None')}.")


def to_dict(settings: Any) -> dict[str, Any]:
    """Every field that means something as plain values, with the names of what is chosen."""
    choices = family_of(type(settings))
    chooser = {} if choices is None else {choices[0]: getattr(settings, choices[0])}
    own = {name: getattr(settings, name) for name in shown(settings)}
    return chooser | {name: to_dict(value) if is_dataclass(value) else value for name, value in own.items()}


def from_dict(kind: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """A settings object from the plain values of :func:`to_dict`, nested ones included; what is left out has its default.

    >>> from autonovel.settings.recipe import Recipe
    >>> from_dict(Recipe, to_dict(Recipe(name="mine"))) == Recipe(name="mine")
    True
    """
    choices, values = family_of(kind), dict(values)
    if choices is not None and choices[0] in values:
        kind = chosen(kind, values.pop(choices[0]), f"{prefix}{choices[0]}")
    known = types_of(kind)
    ready: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            near = did_you_mean(name, known)
            raise InputError(f"{kind.__name__} has no setting '{name}'{near}; it has {', '.join(known)}.")
        hint = known[name]
        if is_dataclass(hint) and isinstance(value, Mapping):
            default = next(f.default for f in fields(kind) if f.name == name)  # type: ignore[arg-type]
            ready[name] = from_dict(type(default), value, f"{prefix}{name}.")
        elif not is_dataclass(hint) and fits(kind, name, value):
            ready[name] = tuple(value) if isinstance(value, list) else value
        else:
            give = taken(kind, name, "null")
            raise InputError(f"The setting {name} of {kind.__name__} cannot be {value!r}; give {give}.")
    return kind(**ready)
