"""The tree of settings: documented, ranged, counted; one check that refuses a bad value of every field."""

import ast
import dataclasses
import inspect
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as how_often

from autonovel.base.errors import InputError
from autonovel.cli.flags import all_flags
from autonovel.settings import augment, estimate, joint, recipe, stages
from autonovel.settings.fields import (
    Open,
    Range,
    When,
    beside,
    check,
    family_of,
    from_dict,
    leaves,
    left_open,
    to_dict,
    types_of,
)
from autonovel.settings.recipe import COMPARED, Recipe
from autonovel.settings.recipes import PRESETS, describe_recipes, get_recipe
from tests.settings.made import recipes

pytestmark = pytest.mark.usefixtures("flags_in_messages")

MODULES = (augment, estimate, joint, recipe, stages)
KINDS = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind) and is_dataclass(kind) and kind.__module__ == module.__name__
]
NO_FLAGS = ("name", "preset")
"""Fields of a recipe that other flags say."""


def tree(kind: type[Any] = Recipe, prefix: str = "") -> list[tuple[str, type[Any], str]]:
    """Every field of every class in the tree: its dotted name, its class, its name there."""
    found = family_of(kind)
    rows = []
    for member in found[1].values() if found is not None else [kind]:
        for name, hint in types_of(member).items():
            rows += tree(hint, f"{prefix}{name}.") if is_dataclass(hint) else [(f"{prefix}{name}", member, name)]
    return rows


def test_there_are_at_most_110_settings() -> None:
    """Beside those of the stages that only the compared methods have."""
    ours = [flag for flag in all_flags(Recipe) if flag.path.partition(".")[0] not in (*COMPARED, "similarity")]
    assert len([flag for flag in ours if flag.path not in NO_FLAGS]) <= 110
    assert {path for path, _, _ in tree()} <= {flag.path for flag in all_flags(Recipe)}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", sorted(set(describe_recipes()) - {"omniglot"}))
def test_a_recipe_shows_at_most_66_settings(name: str, preset: str) -> None:
    assert len([path for path, _ in leaves(get_recipe(name, preset)) if path not in NO_FLAGS]) <= 66


@pytest.mark.parametrize(("path", "kind", "name"), tree())
def test_a_bad_value_of_every_field_is_refused_in_a_sentence(path: str, kind: type[Any], name: str) -> None:
    when = beside(kind, name, When)
    own = kind() if when is None else replace(kind(), **{when.field: when.values[0]})
    check(own, path.removesuffix(name))
    limits = beside(kind, name, Range)
    for bad, rule in [(object(), "give "), *([] if limits is None else _outside(limits, getattr(own, name)))]:
        with pytest.raises(InputError) as caught:
            check(replace(own, **{name: bad}), path.removesuffix(name))
        sentence = str(caught.value)
        assert sentence.startswith(f"--{path.replace('_', '-')} is ")
        assert f"; {rule}" in sentence
        assert sentence.endswith(".")


def _outside(limits: Range, good: Any) -> list[tuple[Any, str]]:
    """Values beside the range, in the form of a good one, with the beginning of what is said of them."""
    numbers = [limits.least - 3.5, limits.most + 1, *([limits.least] if limits.above and limits.open is None else [])]
    bad = [number for number in numbers if abs(number) != float("inf")]
    if isinstance(good, tuple) or good is None:
        bad = [(int(number), 1) for number in bad] + ([(1, 0.5)] if limits.rising and limits.most == 1 else [])
    elif isinstance(good, int):
        bad = list(map(int, bad))
    else:
        bad.append(float("nan"))
    return [(value, "it must ") for value in bad]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_learning_rate_is_a_number_above_0(value: float) -> None:
    with pytest.raises(InputError, match=r"^--supervised.lr is .*; it must be above 0\.$"):
        check(replace(Recipe(), supervised=replace(Recipe().supervised, lr=value)))


@how_often(max_examples=60, deadline=None)
@given(recipes())
def test_every_recipe_within_its_ranges_is_taken_and_survives_a_round_trip(made: Recipe) -> None:
    check(made)
    assert from_dict(Recipe, to_dict(made)) == made
    assert hash(from_dict(Recipe, to_dict(made))) == hash(made)


def test_what_is_left_open_is_found_by_its_name() -> None:
    assert list(left_open(Recipe())) == []
    assert {"method", "mirror", "model.backbone", "model.width", "joint.objective", "joint.lr"} <= set(
        left_open(get_recipe("folder"))
    )


def test_a_field_has_one_mark_that_leaves_it_open() -> None:
    for _, kind, name in tree():
        limits = beside(kind, name, Range)
        assert beside(kind, name, Open) is None or limits is None or limits.open is None


def test_fields_of_one_name_have_one_type_whoever_has_them() -> None:
    types: dict[str, set[str]] = {}
    for path, kind, name in tree():
        types.setdefault(path, set()).add(str(types_of(kind)[name]))
    assert all(len(found) == 1 for found in types.values())


# ---- what is said of them


@cache
def texts(kind: type[Any]) -> dict[str, str]:
    body = ast.parse(inspect.getsource(inspect.getmodule(kind))).body  # type: ignore[arg-type]
    [own] = [node for node in body if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    found = {}
    for node, after in zip(own.body, [*own.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[ast.unparse(node.target)] = str(after.value.value).strip()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_class_and_field_says_what_it_is(kind: type[Any]) -> None:
    assert inspect.getdoc(kind)
    for f in dataclasses.fields(kind):
        said = [texts(owner).get(f.name, "") for owner in kind.__mro__ if is_dataclass(owner)]
        assert any(len(text) > 10 for text in said), f"{kind.__name__}.{f.name} has no text"


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_frozen_and_hashable(kind: type[Any]) -> None:
    value = kind()
    hash(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, 1)
