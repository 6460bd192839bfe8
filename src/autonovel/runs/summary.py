"""Reading summary.json, the result of a run: whoever reads it finds what a run writes there, or gets a sentence.

People edit the file, so its values are checked here, once for all who print, draw or export them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from autonovel.runs.files import RunFiles, damaged

FILE = "summary.json"

Check = Callable[[Any], bool]
"""Whether a value may be there."""


def _number(value: Any) -> bool:
    # neither NaN nor infinite, nor too large for a float
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2.0**63


def _count(value: Any) -> bool:
    return isinstance(value, int) and _number(value) and value >= 0


def _classes(value: Any) -> bool:
    return _count(value) and value <= 1_000_000  # a list of a billion clusters would fill the memory


def _text(value: Any) -> bool:
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)  # which no file can hold


def _stage(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w-]+", value) is not None  # it becomes part of a file name


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _by_name(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(_text(name) and check(part) for name, part in value.items())


def _with(**checks: Check) -> Check:
    """An object that has these entries, among others."""
    return lambda value: isinstance(value, dict) and all(n in value and check(value[n]) for n, check in checks.items())


def _pair(first: Check, second: Check) -> Check:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


def _square(value: Any) -> bool:
    return _list(_list(_count))(value) and all(len(line) == len(value) for line in value)


_ALWAYS: dict[str, Check] = {
    "n_known": _count,
    "n_new": _classes,
    "images": _with(unlabelled=_count),
    "seconds": _by_name(_number),
    "device": _text,
    "seed": lambda value: isinstance(value, int),
    "recipe": _text,
    "preset": _text,
}
_SOMETIMES: dict[str, Check] = {
    "n_new_estimated": _or_null(_count),
    "n_new_interval": _or_null(_pair(_number, _number)),
    "n_new_by_heads": _or_null(_count),
    "answering_stage": _stage,
    "cluster_sizes": _list(_count),
    "acc_new": _or_null(_number),
    "nmi_new": _or_null(_number),
    "ari_new": _or_null(_number),
    "matched": _by_name(_pair(_text, _count)),
    "confusion": _square,
    "confusion_classes": _list(_text),
    "pile": _with(single=_by_name(_or_null(_number))),
    "kmeans": _by_name(_number),
    "how_sure": lambda value: isinstance(value, dict),
    "test": _by_name(_by_name(_or_null(_number))),
    "sampled": _with(rows=_count, agreement=_number, numbers=_list(_count), rare=_count),
    "continued_from": _or_null(_with(run=_text, taken=_text)),
}
"""The entries that someone reads; any others are left alone."""


def read_summary(run: RunFiles) -> dict[str, Any]:
    """What summary.json says."""
    content = run.read_json(FILE)
    for name, fits in (_ALWAYS | _SOMETIMES).items():
        if name in content:
            if not fits(content[name]):
                raise damaged(run, FILE, f"its '{name}' is {_short(content[name])}, which no run writes")
        elif name in _ALWAYS:
            raise damaged(run, FILE, f"it lacks '{name}'")
    return content


def holds_known(summary: dict[str, Any]) -> bool:
    """Whether the pile of a run was judged to hold images of known classes too."""
    return bool(summary.get("how_sure", {}).get("pile") != "new")


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) < 60 else f"{text[:50]} ..."
