"""Names for folders and files: whatever comes in, what comes out is harmless, different and short."""

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autonovel.export.names import LONGEST, Namer, safe_name

HOSTILE = ["..", ".", "", " ", "a/b", "../../etc/passwd", "C:\\x", "con", "NUL.txt", "a\0b", "a\nb", "x" * 300, "é" * 200,
           "trailing. ", ".hidden", "~", "a\u202eb", "|<>?*", "-rf"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_become_one_part_of_a_path(name: str, tmp_path: Path) -> None:
    safe = safe_name(name)
    (tmp_path / safe).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [safe]
    assert len(PurePosixPath(safe).parts) == len(PureWindowsPath(safe).parts) == 1
    assert not PureWindowsPath(safe).is_reserved()
    assert safe not in (".", "..")
    assert not safe.startswith(".")
    assert not safe.endswith((".", " "))
    assert safe.isprintable()


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_any_name(name: str) -> None:
    safe = safe_name(name)
    assert 0 < len(safe.encode()) <= LONGEST
    assert not set(safe) & set('\\/:*?"<>|\0\n')
    assert safe_name(safe) == safe


@pytest.mark.parametrize("name", ["heron", "grey heron", "Möwe", "鷺", "v1.2", "a-b_c (d)"])
def test_good_names_stay(name: str) -> None:
    assert safe_name(name) == name


def test_long_names_stay_different() -> None:
    assert safe_name("x" * 300) != safe_name("x" * 299 + "y")


@given(st.lists(st.sampled_from(["a.jpg", "A.JPG", "a (2).jpg", "b", "B", "é.png", "e\u0301.png", "y" * 250 + ".png"])))
def test_names_are_given_once(names: list[str]) -> None:
    namer = Namer(["taken.jpg"])
    assert namer.give("Taken.jpg") == "Taken (2).jpg"
    given = [namer.give(name) for name in names]
    folded = [name.casefold() for name in given]
    assert len(set(folded)) == len(folded)
    assert all(len(name.encode()) <= 255 for name in given)
    assert given[:1] == names[:1]
    assert [Path(name).suffix.lower() for name in given] == [Path(name).suffix.lower() for name in names]
