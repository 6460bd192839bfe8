"""A flag that would do nothing beside the others is refused: every flag of a command is decided on here."""

from __future__ import annotations

import numpy as np
import pytest

import autonovel as an
from autonovel.base.errors import InputError
from autonovel.cli.flags import build, flags_of, read
from autonovel.cli.main import _verb, main
from autonovel.settings.resolve import Asked, Facts, resolve

BENCHMARK = {"root", "unverified"}
OF_IMAGES = {"recipe", "preset", "device", "cache"}
IDLE = {
    "discover a b": {*BENCHMARK, "address"},
    "discover --data digits": {"address"},
    "discover --from run": {*BENCHMARK, "address"},
    "discover a b --features": {*BENCHMARK, *OF_IMAGES, "start_from", "keep", "address"},
    "discover a b --engine local": {*BENCHMARK, "cache", "start_from", "keep", "address"},
    "discover a b --engine ray": {*BENCHMARK, "cache", "start_from", "keep"},
    "estimate a b": {*BENCHMARK, "address"},
    "estimate a b --features": {*BENCHMARK, *OF_IMAGES, "address"},
    "estimate a b --engine ray": {*BENCHMARK, "cache"},
    "cluster a": BENCHMARK,
    "cluster --data digits": set(),
    "tune a --search joint.heads=1,2": BENCHMARK,
    "describe a": {"address"},
    "describe a --engine ray": set(),
    "predict run a": {"address"},
    "predict run a --features": {"address", "engine"},
    "predict run a --engine ray": set(),
    "export run --to b": {"private", "yes"},
    "export run --to b --how move": {"private"},
    "export run --to b --format csv": {"private", "yes"},
    "export run --to b --format onnx": {"private", "yes", "all"},
    "export run --to b --format hub": {"yes", "all", "overwrite"},
}


@pytest.mark.parametrize("typed", IDLE)
def test_every_flag_does_something_or_is_refused(typed: str) -> None:
    verb, *words = typed.split()
    kind = _verb(verb)
    options = build(kind, read(verb, words, list(flags_of(kind))))
    assert {flag.path for flag in flags_of(kind) if options.idle(flag.path)} == IDLE[typed]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("discover a b --root c", "--root has no effect here: it belongs to --data NAME; leave it out."),
        (
            "discover a b --features --joint.epochs 5",
            "--joint.epochs has no effect here: features are grouped as they are; leave it out.",
        ),
        ("export a --to b --yes", "--yes has no effect here: it belongs to --how move; leave it out."),
    ],
)
def test_the_refusal_says_why(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    assert capsys.readouterr().err == f"autonovel: {said}\n"


def test_arguments_that_do_nothing_with_features_are_refused_in_python_too() -> None:
    known, pile = (np.eye(6)[:4], [0, 0, 1, 1]), np.eye(6)
    for name, value in {"method": "kmeans", "settings": {"joint.epochs": 3}, "keep": (1,)}.items():
        with pytest.raises(InputError, match=f"^{name} can do nothing here"):
            an.discover(known, pile, features=True, **{name: value})


def test_a_preset_without_another_setting_is_said() -> None:
    photos = Facts(840, 20, 12, 128, 3, False, "efficientnet-lite0")
    said = "preset='fast' has no effect: these settings are the same in it as in paper"
    assert said in resolve(Asked("folder", "fast"), photos).notes
    assert said not in resolve(Asked("folder", "paper"), photos).notes
    assert said not in resolve(Asked("digits", "fast"), photos).notes


def test_what_only_known_classes_give_a_meaning_is_said_where_there_are_none() -> None:
    photos = Facts(840, 0, 12, 128, 3, False, "efficientnet-lite0")
    notes = resolve(Asked("folder").with_values({"pile": "mixed"}), photos).notes
    assert "pile has no effect: nothing is labelled" in notes
