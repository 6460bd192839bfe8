"""The alphabets of OmniGlot: which are to be discovered, and which of the known ones serve as probes.

Imports nothing heavy, so that a recipe can name the alphabets without loading any of the machinery that reads them.
"""

from __future__ import annotations

from collections.abc import Iterable

from autonovel.settings.recipes import PROBE_ALPHABETS as PROBE_ALPHABETS

EVALUATION_ALPHABETS = (
    "Angelic", "Atemayar_Qelisayer", "Atlantean", "Aurek-Besh", "Avesta", "Ge_ez", "Glagolitic", "Gurmukhi", "Kannada",
    "Keble", "Malayalam", "Manipuri", "Mongolian", "Old_Church_Slavonic_(Cyrillic)", "Oriya", "Sylheti",
    "Syriac_(Serto)", "Tengwar", "Tibetan", "ULOG",
)  # fmt: skip
"""The alphabets of OmniGlot whose characters are to be discovered, one alphabet per task."""


def classes_by_alphabet(class_names: Iterable[str]) -> dict[str, list[int]]:
    """The classes of each alphabet, from OmniGlot's class names (``Latin/character01``).

    >>> classes_by_alphabet(["Latin/character01", "Greek/character01", "Latin/character02"])
    {'Latin': [0, 2], 'Greek': [1]}
    """
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(class_names):
        groups.setdefault(name.partition("/")[0], []).append(number)
    return groups
