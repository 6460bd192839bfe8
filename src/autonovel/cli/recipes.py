"""``autonovel recipes``."""

from __future__ import annotations

from dataclasses import dataclass

from autonovel.cli.common import Preset, Verb
from autonovel.cli.flags import Positional, flags_of
from autonovel.errors import option
from autonovel.recipes import PRESETS, describe_recipes, get_recipe
from autonovel.settings import Recipe


@dataclass(frozen=True)
class Recipes(Verb):
    """List the recipes, or show every field of one as the flag that sets it."""

    name: Positional[str] = ""
    """The recipe to show; all are listed when left out."""
    preset: Preset = "paper"
    """Which preset of it."""

    def do(self) -> None:
        """List or show."""
        if self.name:
            for flag in flags_of(Recipe, get_recipe(self.name, self.preset)):
                print(option("recipe" if flag.path == "name" else flag.path, flag.default))
            return
        names = describe_recipes()
        for name, text in names.items():
            print(f"{name:<{max(map(len, names))}}  {text}")
        print(f"Presets: {', '.join(PRESETS)}. All fields of a recipe: autonovel recipes NAME")
