"""``autonovel recipes``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autonovel.base.errors import option
from autonovel.base.screen import say
from autonovel.cli.common import Preset, Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Recipes(Verb):
    """List the recipes and methods, or show every field that means something in a recipe as the flag that sets it."""

    name: Positional[str] = ""
    """The recipe to show; all are listed when left out."""
    preset: Preset = "paper"
    """Which preset of it."""

    def do(self) -> None:
        """List or show."""
        from autonovel.settings.fields import leaves
        from autonovel.settings.recipes import PRESETS, describe_recipes, get_recipe
        from autonovel.settings.registry import described

        if self.name:
            for path, value in leaves(get_recipe(self.name, self.preset)):
                say(option("recipe" if path == "name" else path, value))
            return
        say(f"--recipe NAME (each in the presets {', '.join(PRESETS)}; all fields of one: autonovel recipes NAME)")
        _print_names(describe_recipes())
        for path, lines in described().items():
            say(f"\n{option(path)} NAME")
            _print_names(lines)
        say("\nautonovel tune compares any of them on your own known classes; docs/paper.md has figures.")


def _print_names(lines: Mapping[str, str]) -> None:
    for name, line in lines.items():
        say(f"  {name:<{max(map(len, lines))}}  {line}")
