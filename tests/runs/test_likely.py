"""Names that are offered for clusters."""

from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.runs.likely import APART, LEAST, imagenet_names, likely_names
from tests.runs.made import make_run

GOLDFINCH, BRAMBLING, JUNCO = (imagenet_names().index(name) for name in ("goldfinch", "brambling", "junco"))


def of(*said: tuple[int, float]) -> list[tuple[int, int]]:
    return [(place, round(65535 * share)) for place, share in said]


def test_the_names_are_those_of_imagenet_in_their_order() -> None:
    names = imagenet_names()
    assert len(names) == 1000
    assert [names[place] for place in (0, 11, 13, 207, 999)] == [
        "tench",
        "goldfinch",
        "junco",
        "golden retriever",
        "toilet tissue",
    ]


def test_a_name_is_offered_where_it_is_likely_and_nowhere_else_as_likely(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 0, 1, 1, 2, 2], labelled=2)
    said = [
        of((JUNCO, 0.2), (BRAMBLING, 0.1)),  # two labelled images, of one known class each
        of((BRAMBLING, 0.5), (JUNCO, 0.1)),
        of((GOLDFINCH, 0.9), (JUNCO, 0.05)),  # cluster 0
        of((GOLDFINCH, 0.7), (JUNCO, 0.15)),
        of((BRAMBLING, 0.9), (JUNCO, 0.0)),  # cluster 1, which looks like a known class too
        of((BRAMBLING, 0.8), (JUNCO, 0.0)),
        of((JUNCO, 0.4), (BRAMBLING, 0.1)),  # cluster 2, not far enough above a known class
        of((JUNCO, 0.4), (BRAMBLING, 0.1)),
    ]
    run.write_array("imagenet.npy", np.array(said, dtype=np.uint16))
    clusters = {number: np.flatnonzero(run.machine.group == number) for number in range(3)}
    # every mean by hand
    means = {name: [0.0] * 5 for name in (GOLDFINCH, BRAMBLING, JUNCO)}
    for place, rows in enumerate([[2, 3], [4, 5], [6, 7], [0], [1]]):
        for row in rows:
            for name, share in said[row]:
                means[name][place] += share / 65535 / len(rows)
    expected = set()
    for place in range(3):
        first = max(means, key=lambda name: means[name][place])
        others = max(share for at, share in enumerate(means[first]) if at != place)
        if means[first][place] >= LEAST and means[first][place] >= APART * others:
            expected.add((place, imagenet_names()[first]))
    found = likely_names(run, clusters)
    assert {(number, names[0].name) for number, names in found.items()} == expected == {(0, "goldfinch")}
    assert [name for name, _ in found[0]] == ["goldfinch", "junco"]
    assert found[0][0].probability == pytest.approx(0.8, abs=1e-4)


def test_a_run_of_another_network_offers_nothing_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 0, 1, 1], labelled=2)
    rows = {0: np.array([0, 1])}
    assert likely_names(run, rows) == {}
    for wrong in (np.zeros((5, 5, 2), np.uint16), np.full((6, 5, 2), 1000, np.uint16)):
        run.write_array("imagenet.npy", wrong)
        with pytest.raises(InputError, match="imagenet.npy is damaged"):
            likely_names(run, rows)
