"""Folders that are probably not what the user meant: each is named for what it is, with what to give instead."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from autonovel.base.errors import InputError
from autonovel.data.images import Source
from autonovel.data.reading.problems import Problem, printable

_TEXT = frozenset({
    ".txt", ".md", ".rst", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".html", ".htm", ".yaml", ".yml", ".toml", ".ini",
    ".log", ".py", ".tex",
})  # fmt: skip
_NAMES_OF_PILES = frozenset({"unlabelled", "unlabeled", "unsorted", "unknown", "pile"})


def check_two_paths(labelled: Path, unlabelled: Path) -> list[str]:
    """Refuse one path given twice, and a pile that lies among the class folders; returns notes on what is allowed."""
    known, pile = Path(os.path.realpath(labelled)), Path(os.path.realpath(unlabelled))
    called_known, called_pile = printable(labelled), printable(unlabelled)
    if known == pile:
        instead = (
            "give the images to be sorted in a folder of their own"
            if known.is_dir()
            else "give it once, for the labelled images: its rows without a class are the images to be sorted"
        )
        raise InputError(f"{called_known} was given both for the labelled and for the unlabelled images; {instead}.")
    if not (known.is_dir() and pile.is_dir()):
        return []
    if pile.is_relative_to(known):
        raise InputError(
            f"The folder {called_pile}, given for the unlabelled images, lies inside {called_known}, given for the "
            f"labelled ones, where every sub-folder counts as a class; {_instead_of_parent(known, pile)}."
        )
    if known.is_relative_to(pile):
        return [
            f"The folder {called_pile}, given for the unlabelled images, contains {called_known}, given for the "
            "labelled ones, whose images are not sorted again; to sort only some of the others, give a folder beside "
            "that of the labelled images."
        ]
    return []


def _instead_of_parent(known: Path, pile: Path) -> str:
    """What to give instead of a folder for the labelled images in which the pile lies."""
    top = known / pile.relative_to(known).parts[0]
    others = [folder for folder in _sub_folders(known) if folder != top]
    if len(others) == 1 and _sub_folders(others[0]):
        return f"give {printable(others[0])} for the labelled images"
    return f"move {printable(top)} out of {printable(known)}, or give a folder that holds the class folders alone"


def _sub_folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def refuse_without_images(folder: Path, role: str, problems: Sequence[Problem]) -> None:
    """Refuse a folder in which nothing looks like an image, and say what it holds instead.

    Called for folders without a single image file; where images were found but cannot be used, this leaves it to the
    count of unusable images to say so.
    """
    if any(problem.counts for problem in problems):
        return
    others = [problem.path for problem in problems if problem.reason == "not an image"]
    besides = "nor any other visible files"
    if others:
        kinds = Counter(os.path.splitext(path)[1].lower() for path in others)
        shown = ", ".join(f"{count:,} {kind or 'without an ending'}" for kind, count in kinds.most_common(4))
        besides = (
            f"only {'text' if kinds.keys() <= _TEXT else 'other'} files ({shown}{', ...' if len(kinds) > 4 else ''})"
        )
    elif any(problem.reason == "the folder of a run" for problem in problems):
        besides = "only a run folder"
    raise InputError(
        f"There are no images in {printable(folder)}, {besides}; give the folder that holds the {role} images."
    )


def check_class_folders(folder: Path, classes: Sequence[str | None], *, alone: bool) -> list[str]:
    """Notes on a class that is named as a pile is; ``alone``, without any unlabelled images, the folder is refused."""
    pile = next((name for name in dict.fromkeys(classes) if name is not None and name.lower() in _NAMES_OF_PILES), None)
    called = printable(folder)
    if alone and classes:
        instead = (
            "give the images to be sorted as the unlabelled images"
            if pile is None
            else f"the sub-folder {pile!r} counts as a class: move it out of there and give it for the unlabelled images"
        )
        raise InputError(f"Every image in {called} has a class, so there is nothing to discover; {instead}.")
    if pile is None:
        return []
    return [
        f"The sub-folder {pile!r} of {called} counts as a known class; if its images are to be sorted, move it out of "
        "there and give it for the unlabelled images."
    ]


def deeper_classes(origin: str, sources: Sequence[Source]) -> list[str]:
    """A note where the labelled images lie in folders below those of their classes, which may be the classes that were meant."""
    tops: dict[str, None] = {}
    deeper: dict[str, None] = {}
    for source in sources:
        top, _, below = source.relative.replace(os.sep, "/").partition("/")
        second, inside, _ = below.partition("/")
        if not inside:  # an image in the folder of its class
            return []
        tops[top] = deeper[f"{top}/{second}"] = None
    if len(deeper) <= len(tops):
        return []
    return [
        f"The known classes are the {len(tops)} folders in {origin}; their sub-folders ({_first(list(deeper))}) are not "
        "classes of their own. If they are, give a table of the labelled images with the columns path and label."
    ]


def _first(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")


def unused_folder_names(origin: str, sources: Sequence[Source]) -> list[str]:
    """A note where unlabelled images come in sub-folders as those of classes do: the names are not used."""
    tops: dict[str, None] = {}
    for source in sources:
        top, inside, _ = source.relative.replace(os.sep, "/").partition("/")
        if not inside:  # an image beside the sub-folders: they are not classes
            return []
        tops[top] = None
    if len(tops) < 2:
        return []
    shown = _first(list(tops))
    return [
        f"The {len(tops)} sub-folders of {origin} ({shown}) are not used as classes: all images in it are unlabelled."
    ]
