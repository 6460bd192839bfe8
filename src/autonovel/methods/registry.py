"""Every method by name. Imports no torch, so that the command line can list them; a class is imported when it is asked for.

One line here and a file beside it add a method: nothing else asks for a method's name or type.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from autonovel.errors import InputError, did_you_mean


class Entry(NamedTuple):
    """A method that can be chosen.

    Attributes:
        home: the module in this folder and the name in it.
        line: when to use it.
    """

    home: str
    line: str

    def load(self) -> Any:
        """The class or function itself."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(f"autonovel.methods.{module}"), name)


PRETRAINING: Mapping[str, Entry | None] = {
    "none": None,
    "rotation": Entry("rotation:Rotation", "tell by how many quarter turns an image was rotated: the paper's choice"),
    "prototypical": Entry("prototypical:Prototypical", "episodes over many known classes with few images each"),
}
"""What ``--pretrain.method`` takes."""

OBJECTIVES: Mapping[str, Entry] = {
    "pairs": Entry("pairs:Pairs", "the paper's: which two images belong together is read off their strongest features"),
    "swap": Entry("swap:Swapped", "each view predicts the cluster of the other: more accurate where classes are even"),
}
"""What ``--joint.objective`` takes."""

PLANS: Mapping[str, Entry] = {
    "autonovel": Entry("autonovel:plan", "learn a representation, then the known classes, then known and new together"),
    "kmeans": Entry("kmeans:plan", "the first stages, then k-means on their features: the baseline to beat"),
}
"""What ``--method`` takes: whole methods, each a list of stages."""


def find(kind: Mapping[str, Any], name: str, flag: str) -> Any:
    """The class or function of this name; None for a method that stands for no stage."""
    if name not in kind:
        hint = did_you_mean(name, kind)
        raise InputError(f"{flag} is '{name}'; choose one of {', '.join(kind)}{hint}.")
    entry = kind[name]
    return None if entry is None else entry.load()
