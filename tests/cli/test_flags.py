"""What may be typed, and what is said of the rest."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.cli.flags import (
    Flag,
    Positional,
    all_flags,
    build,
    flags_of,
    metavar,
    read,
    take_value,
    text_of,
    usage,
)
from autonovel.settings.fields import overlay
from autonovel.settings.recipe import Recipe
from tests.settings.made import recipes


@dataclass(frozen=True)
class Inner:
    """A group."""

    heads: int = 4
    """How many."""
    strong: bool = True
    """Whether it is strong."""


@dataclass(frozen=True)
class Base:
    """Options that others inherit."""

    seed: int = 0
    """A number."""


@dataclass(frozen=True)
class Options(Base):
    """Everything that a field can be."""

    source: Positional[Path | None] = None
    """Where from."""
    others: Positional[tuple[int, ...]] = ()
    """Further numbers."""
    n_new: int | Literal["auto", "true"] = "auto"
    """How many.
    It goes on."""
    rate: float = 0.5
    name: str = ""
    """A name."""
    out: Path = Path("there")
    """Where to."""
    rule: Literal["rank", "soft"] = "rank"
    """Which."""
    steps: tuple[int, ...] = (3,)
    """When."""
    words: tuple[str, ...] = ()
    """Any words."""
    area: tuple[float, float] = (0.5, 1.0)
    """From and to."""
    sizes: tuple[int, int] | None = None
    """Smallest and largest."""
    fast: bool = False
    """Whether to hurry."""
    inner: Inner = field(default=Inner())
    """The inner group."""


FLAGS = list(flags_of(Options))


def typed(*words: str) -> dict[str, Any]:
    return read("work", words, FLAGS, {"--quick": "--fast"})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {}),
        ("--seed 3", {"seed": 3}),
        ("--seed=3", {"seed": 3}),
        ("--seed -3", {"seed": -3}),
        ("--seed=-3", {"seed": -3}),
        ("--seed 3 --seed 4", {"seed": 4}),
        ("--n-new 5", {"n_new": 5}),
        ("--n_new auto", {"n_new": "auto"}),
        ("--n-new=true", {"n_new": "true"}),
        ("--rate 1e-3", {"rate": 0.001}),
        ("--rate -.5", {"rate": -0.5}),
        ("--name=a=b", {"name": "a=b"}),
        ("--name -", {"name": "-"}),
        ("--name=--odd", {"name": "--odd"}),
        ("--out a/b", {"out": Path("a/b")}),
        ("--rule soft", {"rule": "soft"}),
        ("--steps 1 2 3", {"steps": (1, 2, 3)}),
        ("--steps --seed 1", {"steps": (), "seed": 1}),
        ("--steps=1,2", {"steps": (1, 2)}),
        ("--steps 1 2 place", {"steps": (1, 2), "source": Path("place")}),
        ("--words a b,c", {"words": ("a", "b,c")}),
        ("--words=b,c", {"words": ("b,c",)}),
        ("--area .1 .2", {"area": (0.1, 0.2)}),
        ("--area=.1,.2 place", {"area": (0.1, 0.2), "source": Path("place")}),
        ("--sizes 1 2", {"sizes": (1, 2)}),
        ("--sizes none", {"sizes": None}),
        ("--sizes None place", {"sizes": None, "source": Path("place")}),
        ("--fast", {"fast": True}),
        ("--no-fast", {"fast": False}),
        ("--fast=false", {"fast": False}),
        ("--quick", {"fast": True}),
        ("--fast place", {"fast": True, "source": Path("place")}),
        ("--inner.heads 2 --inner.no-strong", {"inner.heads": 2, "inner.strong": False}),
        ("place 1 2", {"source": Path("place"), "others": (1, 2)}),
        ("place --seed 1 1 2", {"source": Path("place"), "others": (1, 2), "seed": 1}),
        ("--seed 1 -- --odd 1", {"source": Path("--odd"), "others": (1,), "seed": 1}),
        ("- -5", {"source": Path("-"), "others": (-5,)}),
    ],
)
def test_what_is_typed_is_what_is_meant(words: str, expected: dict[str, Any]) -> None:
    assert typed(*words.split()) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--sed 3", "There is no flag --sed (did you mean --seed?); autonovel work --help-all shows all of them."),
        ("--inner.no-stron", "There is no flag --inner.no-stron (did you mean --inner.no-strong?); autonovel work"),
        ("--quik", "There is no flag --quik (did you mean --quick?)"),
        ("--xyzzy", "There is no flag --xyzzy; autonovel"),
        ("-s 3", "There is no flag -s; autonovel"),
        ("--source x", "There is no flag --source"),
        ("--seed", "--seed needs a whole number."),
        ("--seed --fast", "--seed needs a whole number."),
        ("--seed=", "--seed is ''; give a whole number."),
        ("--seed 3.5", "--seed is '3.5'; give a whole number."),
        ("--n-new some", "--n-new is 'some'; give a whole number, auto or true."),
        ("--n-new atuo", "--n-new is 'atuo' (did you mean auto?); give a whole number, auto or true."),
        ("--rate x", "--rate is 'x'; give a number."),
        ("--rule sofd", "--rule is 'sofd' (did you mean soft?); give rank or soft."),
        ("--steps=1,x", "--steps is '1,x'; give any number of whole numbers."),
        ("--area .1", "--area needs 2 numbers."),
        ("--area=.1,.2,.3", "--area is '.1,.2,.3'; give 2 numbers."),
        ("--sizes 3 x", "--sizes is '3'; give 2 whole numbers or none."),
        ("--fast=3", "--fast takes no value; --no-fast is its opposite."),
        ("--no-fast=true", "--no-fast takes no value"),
        ("place x", "OTHERS cannot begin with 'x'; give any number of whole numbers (usage: autonovel work"),
        ("place 1 x", "'x' is one word too many, or the value of a flag that is missing (usage: autonovel work"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(words: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        typed(*words.split())
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Strict:
    """Nothing of this may be left out."""

    run: Positional[Path]
    """The folder."""
    numbers: Positional[tuple[int, ...]]
    """Some numbers."""
    to: Path
    """Where to."""
    port: int = 0
    """The port."""


def test_what_must_be_given() -> None:
    flags = list(flags_of(Strict))
    assert usage("work", flags) == "usage: autonovel work RUN NUMBERS ... --to PATH [flags]"
    assert build(Strict, read("work", "a 1 --to b 2".split(), flags)) == Strict(Path("a"), (1, 2), Path("b"))
    for words, name in (("--to b", "RUN"), ("a --to b", "NUMBERS"), ("a 1", "--to")):
        with pytest.raises(InputError, match=rf"^{name} is missing \(usage: autonovel work RUN NUMBERS ... --to PATH"):
            read("work", words.split(), flags)


def test_values_that_were_not_given_keep_their_defaults() -> None:
    assert build(Options, {"seed": 3, "inner.heads": 9}) == Options(seed=3)


def test_documentation_is_found_under_the_field_also_of_a_base() -> None:
    assert text_of(Options, "n_new") == "How many. It goes on."
    assert text_of(Options, "rate") == ""
    assert text_of(Options, "seed") == "A number."
    assert [flag.text for flag in FLAGS if flag.path == "inner.heads"] == ["How many."]


def test_types_in_words() -> None:
    shown = {flag.path: metavar(flag.kind) for flag in FLAGS}
    assert shown["n_new"] == "N|auto|true"
    assert shown["steps"] == "N ..."
    assert shown["area"] == "X X"
    assert shown["sizes"] == "N N|none"


def words_for(flag: Flag, value: Any, equals: bool) -> list[str]:
    """A value as it is typed."""
    if flag.kind is bool:
        return [flag.name if value else flag.negative]
    values = [str(part) for part in (value if isinstance(value, tuple) else (value,))]
    if len(values) == 1 and (equals or values[0].startswith("-")):
        return [f"{flag.name}={values[0]}"]
    return [flag.name, *values]


@settings(max_examples=60, deadline=None)
@given(recipes(), st.randoms(use_true_random=False))
def test_any_recipe_can_be_typed_in_any_order(recipe: Recipe, random: Any) -> None:
    flags = list(flags_of(Recipe, recipe))
    # texts that look like flags cannot be given as one of several values
    texts = [f for f in flags if get_origin(f.kind) is tuple and str in get_args(f.kind)]
    flags = [f for f in flags if f not in texts or not any(t.startswith("-") or not t for t in f.default)]
    groups = [words_for(flag, flag.default, random.random() < 0.5) for flag in flags]
    random.shuffle(groups)
    found = read("work", list(itertools.chain(*groups)), list(all_flags(Recipe)))
    assert found == {flag.path: flag.default for flag in flags}
    assert overlay(recipe, found, "paper") == recipe
    if len(flags) == len(list(flags_of(Recipe, recipe))):
        assert overlay(Recipe(), found, "paper") == recipe


@dataclass(frozen=True)
class Listing:
    """A command with a list of its own, beside one of a recipe."""

    words: tuple[str, ...] = ()
    """Words."""
    inner: Inner = Inner()
    """A group."""


def test_a_commands_own_list_may_be_typed_in_parts_and_a_field_of_the_recipe_is_what_was_typed_last() -> None:
    flags = list(flags_of(Listing))
    assert read("x", ["--words", "a", "b", "--words=c"], flags)["words"] == ("a", "b", "c")
    recipe = list(all_flags(Recipe))
    typed = ["--joint.milestones", "3", "4", "--joint.milestones", "5"]
    assert read("x", typed, recipe)["joint.milestones"] == (5,)


def test_a_value_within_another_word_is_read_as_the_flag_reads_it() -> None:
    flags = {flag.path: flag for flag in all_flags(Recipe)}
    for path, word, value in (
        ("joint.top_k", "3", 3), ("joint.lr", "1e-2", 0.01), ("incremental", "true", True),
        ("incremental", "false", False), ("joint.pairs", "soft", "soft"), ("joint.schedule", "cosine", "cosine"),
    ):  # fmt: skip
        assert take_value(flags[path], "--search", word) == value
    for path, word, message in (
        ("joint.top_k", "3.5", "--search is '3.5'; give a whole number"),
        ("incremental", "yes", "give true or false"),
        ("joint.milestones", "3", "cannot be compared; compare a field of one value."),
    ):
        with pytest.raises(InputError, match=message):
            take_value(flags[path], "--search", word)
