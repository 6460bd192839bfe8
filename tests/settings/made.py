"""Recipes with any values whatever that their fields can hold."""

import math
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from hypothesis import strategies as st

from autonovel.settings.fields import Range, beside, family_of, tidied, types_of
from autonovel.settings.recipe import Recipe

ANY = Range()


def values_of(hint: Any, limits: Range = ANY) -> st.SearchStrategy[Any]:
    """Values of a type of a setting, within its range."""
    low = -1000 if math.isinf(limits.least) else limits.least
    high = max(low, 1000 if math.isinf(limits.most) else limits.most)
    plain = {
        int: st.integers(math.ceil(low), math.floor(high)),
        float: st.floats(low, high, exclude_min=limits.above),
        str: st.text("abc-_:.= ", max_size=8),
        bool: st.booleans(),
        NoneType: st.none(),
    }
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        first, *others = get_args(hint)
        if Ellipsis in others:
            return st.lists(values_of(first, limits), max_size=3).map(tuple)
        parts = st.tuples(values_of(first, limits), *(values_of(other, limits) for other in others))
        return parts.map(lambda found: tuple(sorted(found))) if limits.rising else parts
    return plain[hint] if hint in plain else st.one_of(*(values_of(part, limits) for part in get_args(hint)))


def settings_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Settings of a class, or of any member of its family."""
    found = family_of(kind)
    members = list(found[1].values()) if found is not None else [kind]
    return st.one_of(*(st.builds(member, **_parts(member)) for member in members))


def _parts(kind: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    hints, names = types_of(kind), {f.name for f in fields(kind)}
    return {
        name: settings_of(hint) if is_dataclass(hint) else values_of(hint, beside(kind, name, Range) or ANY)
        for name, hint in hints.items()
        if name in names
    }


def recipes() -> st.SearchStrategy[Recipe]:
    """Recipes, sensible or not; what means nothing in one has its default."""
    return settings_of(Recipe).map(tidied)
