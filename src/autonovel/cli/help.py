"""What --help and --help-all print."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from autonovel.cli.flags import Flag, metavar, text_of, usage

WIDEST = 100
"""Longer lines are hard to read, however wide the terminal is."""
INDENT = 24
"""Where the text of a flag begins."""


def overview(verbs: Mapping[str, str]) -> str:
    """All commands with a line each."""
    lines = ["autonovel: discover the new classes in a pile of unlabelled images", ""]
    lines += ["usage: autonovel COMMAND ...", ""]
    lines += [_entry(verb, text, 11) for verb, text in verbs.items()]
    return "\n".join([*lines, "", "autonovel COMMAND --help shows the flags of a command."])


def short_help(verb: str, text: str, flags: Sequence[Flag], chosen: Sequence[str]) -> str:
    """What a command does, and a line for each of the flags that matter most.

    Args:
        verb: the command.
        text: what it does.
        flags: all of its flags.
        chosen: the dotted names of those to show, in this order; all of them where it is empty.
    """
    by_path = {flag.path: flag for flag in flags if not flag.positional}
    shown = [by_path[path] for path in chosen if path in by_path] if chosen else list(by_path.values())
    lines = _head(verb, text, flags)
    lines += [_entry(typed(flag), _with_default(_first_sentence(flag.text), flag)) for flag in shown]
    if len(shown) < len(by_path):
        lines += ["", f"autonovel {verb} --help-all shows the other {len(by_path) - len(shown)} flags, stage by stage."]
    return "\n".join(lines)


def full_help(verb: str, text: str, flags: Sequence[Flag], headings: Mapping[str, str]) -> str:
    """What a command does, and all its flags in groups.

    Args:
        verb: the command.
        text: what it does.
        flags: all of its flags.
        headings: group (``joint.augment``) -> what it is about.
    """
    lines = _head(verb, text, flags)
    groups: dict[str, list[Flag]] = {}
    for flag in flags:
        if not flag.positional:
            groups.setdefault(flag.group, []).append(flag)
    for group, members in groups.items():
        if group:
            lines += ["", *_wrapped(f"{group}: {headings.get(group, '')}", "", "")]
        lines += [_entry(typed(flag), _with_default(flag.text, flag)) for flag in members]
    return "\n".join(lines)


def _head(verb: str, text: str, flags: Sequence[Flag]) -> list[str]:
    lines = [usage(verb, flags), "", *_wrapped(" ".join(text.split()), "", ""), ""]
    placed = [_entry(flag.name, flag.text) for flag in flags if flag.positional]
    return [*lines, *placed, ""] if placed else lines


def typed(flag: Flag) -> str:
    """``--joint.epochs N``, ``--joint.[no-]incremental``."""
    if flag.kind is not bool:
        value = metavar(flag.kind)
        return f"{flag.name} {value.removesuffix('|none') if flag.default is None else value}"
    return flag.name if _plain_switch(flag) else flag.negative.replace("no-", "[no-]", 1)


def _with_default(text: str, flag: Flag) -> str:
    if flag.default in (None, "", (), MISSING) or _plain_switch(flag):
        return text
    if flag.kind is bool:
        return f"{text} [{'yes' if flag.default else 'no'}]"
    values = flag.default if isinstance(flag.default, tuple) else (flag.default,)
    return f"{text} [{' '.join(map(str, values))}]"


def _plain_switch(flag: Flag) -> bool:
    """Whether a flag says yes to something that nobody would say no to: ``--json``."""
    return flag.kind is bool and flag.default is False and not flag.group


def _first_sentence(text: str) -> str:
    """The text up to its first full stop; later sentences are for --help-all."""
    first, stop, _ = text.partition(". ")
    return f"{first}." if stop else text


def _entry(name: str, text: str, indent: int = INDENT) -> str:
    """A name and, beside or below it, its text."""
    head, column = f"  {name}", indent + 2
    if len(head) + 2 <= column:
        return "\n".join(_wrapped(text, head.ljust(column), " " * column)) or head
    return "\n".join([head, *_wrapped(text, " " * column, " " * column)])


def _wrapped(text: str, first: str, others: str) -> list[str]:
    width = max(40, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def headings_of(values: Any, prefix: str = "") -> dict[str, str]:
    """Group -> what it is about, from the documentation of the dataclasses within a dataclass."""
    headings: dict[str, str] = {}
    for f in fields(values):
        own = getattr(values, f.name)
        if is_dataclass(own):
            headings[f"{prefix}{f.name}"] = text_of(type(values), f.name)
            headings |= headings_of(own, f"{prefix}{f.name}.")
    return headings
