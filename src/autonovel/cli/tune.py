"""``autonovel tune``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from autonovel.base.errors import InputError, did_you_mean, option
from autonovel.base.screen import say
from autonovel.cli.common import TwoPiles, load_api_while
from autonovel.cli.flags import Positional, all_flags, take_value
from autonovel.discovery.arguments import check_search

if TYPE_CHECKING:
    from autonovel.settings.resolve import Asked


class Axis(str):
    """FIELD=V1,V2,...: a field of the recipe and the values to compare."""

    METAVAR = "FIELD=V1,V2"
    WORDS = "FIELD=V1,V2,..."

    def __new__(cls, text: str) -> Axis:
        """Refuse a word that is no such thing: it may be the next argument."""
        name, equals, values = text.partition("=")
        if not (name and equals and values):
            raise ValueError
        return super().__new__(cls, text)


@dataclass(frozen=True)
class Tune(TwoPiles):
    """Compare settings on known classes: some are hidden and discovered, and the settings that find them best win. The true
    classes of unlabelled images are never looked at. Writes the best recipe as best.json, for discover --recipe."""

    MATTER: ClassVar[tuple[str, ...]] = (
        *("search", "trials", "splits", "hide", "seeds", "n_new", "with_pile", "halving", "together", "out"),
        *("recipe", "preset", "data", "root", "seed", "device", "json"),
    )

    TO_SORT = False
    unlabelled: Positional[str | None] = None
    """The images to be sorted later; with them, what the recipe leaves to the data is decided as it will be then."""
    out: Path = Path("runs/tune")
    """The folder of the search. The same command with the same folder continues where it stopped."""
    search: tuple[Axis, ...] = ()
    """A field of the recipe and the values to compare, as joint.top-k=1,3,5; several fields give all combinations, and
    A+B=V1,V2 sets two fields to the same value."""
    trials: int | None = None
    """Try this many combinations, chosen at random, instead of all."""
    splits: int = 4
    """How many different sets of classes are hidden, one after the other."""
    hide: int | None = None
    """How many classes are hidden at a time. Left out, as many as there are new ones, at most two fifths of the known ones;
    a quarter of these where --n-new is not given."""
    seeds: int = 1
    """How many seeds each of them is tried with."""
    n_new: int | None = None
    """How many new classes there are, if you know it."""
    with_pile: bool = False
    """Keep the unlabelled images among the hidden ones, which makes the task as crowded as the real one; needs --n-new."""
    halving: bool = True
    """Leave the worse half of the combinations out after the first trial, the second, the fourth and so on."""
    together: int | None = None
    """Trials at the same time; 4 on a GPU and 1 on a CPU when left out."""

    def check(self) -> None:
        """Refuse what cannot work, before an image is read."""
        self.axes()
        check_search(
            out=self.out,
            device=self.device,
            splits=self.splits,
            seeds=self.seeds,
            together=self.together,
            n_new=self.n_new,
            with_pile=self.with_pile,
            seed=self.seed,
        )

    def axes(self) -> dict[str, list[Any]]:
        """Fields and values, as the recipe has them."""
        if not self.search:
            raise InputError(f"Say which settings to compare, for example {option('search')} joint.top-k=1,3,5.")
        axes: dict[str, list[Any]] = {}
        for name, values in map(axis, self.search):
            axes[name] = [*axes.get(name, []), *(value for value in values if value not in axes.get(name, []))]
        return axes

    def do(self, asked: Asked) -> None:
        """Compare."""
        _, (labelled, unlabelled, _) = load_api_while(self.read)  # the truth of a benchmark is dropped here
        from autonovel.api.tune import tune

        passed = self.passed_on(asked)
        del passed["world"]
        names = ("trials", "splits", "hide", "seeds", "n_new", "with_pile", "halving", "together", "cache")
        own = {name: getattr(self, name) for name in names}
        tuned = tune(labelled, unlabelled, search=self.axes(), **own, **passed)
        if self.json:
            say(json.dumps(tuned.to_dict()))
            return
        say(tuned)
        say(f"The best recipe: {tuned.path / 'best.json'}   All trials: {tuned.path / 'trials.jsonl'}")
        say(f"Use it: autonovel discover LABELLED UNLABELLED --recipe {tuned.path / 'best.json'}")


def axis(text: Axis) -> tuple[str, list[Any]]:
    """The field, or several joined by +, and its values."""
    from autonovel.settings.recipe import Recipe
    from autonovel.settings.registry import METHODS

    typed, _, values = text.partition("=")
    flags = {flag.path: flag for flag in all_flags(Recipe)}
    paths = [part.replace("-", "_").removeprefix("__") for part in typed.split("+")]
    for path in paths:
        if path not in flags:
            raise InputError(
                f"A recipe has no field '{path}'{did_you_mean(path, flags)}; autonovel recipes NAME shows all."
            )
    values_read = []
    for value in values.split(","):
        taken = [take_value(flags[path], f"{option('search')} {path}", value) for path in paths]
        names = METHODS if paths[0] == "method" else ()
        if names and taken[0] not in names:
            raise InputError(
                f"{option('search')} {paths[0]} is '{value}'{did_you_mean(value, names)}; choose among {', '.join(names)}."
            )
        values_read.append(taken[0])
    return "+".join(paths), values_read
