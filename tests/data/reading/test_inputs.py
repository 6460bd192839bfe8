"""Input is opened once: folders listed once, headers read at most once, and each image knows its file."""

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, Source
from autonovel.data.reading import survey
from autonovel.data.reading.inputs import load_images, open_input
from tests.hostile import encoded, picture

_watching: list[Counter[tuple[str, str]]] = []


def _notice(event: str, arguments: tuple) -> None:
    if _watching and event in ("open", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
        _watching[-1][event, os.path.abspath(arguments[0])] += 1


sys.addaudithook(_notice)  # sees every way to open a file, unlike a wrapper around one of them


@pytest.fixture
def opened():
    """How often each file was opened and each folder listed, by (event, path)."""
    _watching.append(Counter())
    yield _watching[-1]
    _watching.pop()


def write(root: Path, mode: str, count: int = 6) -> list[str]:
    paths = []
    for number, folder in enumerate(("known/a", "known/b", "pile")):
        (root / folder).mkdir(parents=True)
        for i in range(count):
            paths.append(str(root / folder / f"{i}.png"))
            Path(paths[-1]).write_bytes(encoded("PNG", picture(20, 20, mode, seed=100 * number + i)))
    return paths


def counts(opened, paths):
    return {opened["open", path] for path in paths}


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_survey_and_loading_open_a_file_twice_in_all(tmp_path, opened, mode):
    paths = write(tmp_path, mode)
    opened.clear()
    given = open_input(tmp_path / "known", tmp_path / "pile")
    assert counts(opened, paths) == {0}
    assert given.survey.channels == {"L": 1, "RGB": 3}[mode]
    assert counts(opened, paths) == {1}
    assert given.load(size=given.survey.size).images.channels == given.survey.channels
    assert counts(opened, paths) == {2}
    for folder in ("known", "known/a", "known/b", "pile"):
        assert opened["os.scandir", str(tmp_path / folder)] == 1


def test_headers_beyond_the_sample_are_read_once_and_only_when_needed(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(survey, "_SAMPLE", 3)
    paths = write(tmp_path, "L")
    opened.clear()
    given = open_input(tmp_path / "known", tmp_path / "pile")
    assert given.survey.size == 20
    assert sum(opened["open", path] for path in paths) == 6  # a sample of three from each part
    assert given.survey.grey
    assert given.survey.grey
    assert counts(opened, paths) == {1}
    assert given.load().images.channels == 1
    assert counts(opened, paths) == {2}


def test_one_coloured_image_ends_the_search_for_colour(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(survey, "_SAMPLE", 1)
    paths = write(tmp_path, "L")
    Path(paths[1]).write_bytes(encoded("PNG", picture(20, 20, "RGB")))
    opened.clear()
    assert not open_input(tmp_path / "known", tmp_path / "pile").survey.grey
    assert sum(opened["open", path] for path in paths) == 3


def test_known_size_and_colour_need_no_headers(tmp_path, opened):
    paths = write(tmp_path, "L")
    opened.clear()
    open_input(tmp_path / "known", tmp_path / "pile").load(size=16, channels=1)
    assert counts(opened, paths) == {1}


def test_a_cache_needs_no_file_to_be_opened(tmp_path, opened):
    paths = write(tmp_path, "L")
    first = load_images(tmp_path / "known", tmp_path / "pile", cache=tmp_path / "cache")
    opened.clear()
    second = load_images(tmp_path / "known", tmp_path / "pile", cache=tmp_path / "cache")
    assert counts(opened, paths) == {0}
    np.testing.assert_array_equal(first.images.images, second.images.images)
    assert first.images.sources == second.images.sources


def test_an_input_may_be_loaded_again(tmp_path):
    write(tmp_path, "RGB")
    (tmp_path / "pile" / "bad.jpg").write_bytes(b"bad")
    given = open_input(tmp_path / "known", tmp_path / "pile")
    first, second = given.load(size=8), given.load(size=8)
    np.testing.assert_array_equal(first.images.images, second.images.images)
    assert first.problems == second.problems
    assert first.notes == second.notes
    assert given.load(size=16, channels=1).images.images.shape == (18, 16, 16, 1)


def test_one_image_is_enough_where_nothing_is_to_be_discovered(tmp_path):
    path = tmp_path / "one.png"
    picture(20, 20).save(path)
    for one in (path, [path], np.asarray(picture(20, 20))[None]):
        assert len(open_input(None, one).load(size=8, channels=3, least=1).images) == 1
        with pytest.raises(InputError, match="only one unlabelled image"):
            open_input(None, one).load(size=8, channels=3)


# ---- where each image came from -----------------------------------------------------------------------------------


def without_digests(sources):
    return tuple(source._replace(digest="") for source in sources)


def test_sources_in_folders(tmp_path, monkeypatch):
    paths = write(tmp_path, "RGB")
    (tmp_path / "pile" / "bad.jpg").write_bytes(b"bad")  # left out: the others keep their own sources
    relative = [os.path.relpath(path, tmp_path / "known") for path in paths[:12]] + [f"{i}.png" for i in range(6)]
    expected = tuple(map(Source, paths, relative))
    found = load_images(tmp_path / "known", tmp_path / "pile").images.sources
    assert without_digests(found) == expected
    assert len({source.digest for source in found} - {""}) == len(found)
    monkeypatch.chdir(tmp_path)
    images = load_images("known", "./pile/").images
    assert without_digests(images.sources) == expected
    assert images.ids[0] == os.path.join("known", "a", "0.png")  # ids stay as the user wrote the path


def test_sources_in_tables(tmp_path):
    paths = write(tmp_path / "data", "RGB")
    table = tmp_path / "data" / "lists" / "table.csv"
    table.parent.mkdir()
    rows = [f"../known/{name}/{i}.png,{name}" for name in "ab" for i in range(6)]
    (table.parent / "own.png").write_bytes(encoded("PNG"))
    rows += [f"{paths[12]},", "own.png,", "./../pile/1.png,"]
    table.write_text("path,label\n" + "\n".join(rows))
    sources = without_digests(load_images(table).images.sources)
    assert sources[0] == Source(paths[0], os.path.join("..", "known", "a", "0.png"))
    assert sources[12:] == (
        Source(paths[12], os.path.join("..", "pile", "0.png")),
        Source(str(table.parent / "own.png"), "own.png"),
        Source(paths[13], os.path.join("..", "pile", "1.png")),
    )


def test_sources_in_lists(tmp_path, monkeypatch):
    paths = write(tmp_path, "RGB")
    monkeypatch.chdir(tmp_path)
    given = [os.path.relpath(path) for path in paths]
    sources = without_digests(load_images((given[:12], ["a"] * 6 + ["b"] * 6), paths[12:]).images.sources)
    assert sources == tuple(map(Source, paths, given[:12] + paths[12:]))


def test_source_of_a_single_file(tmp_path):
    picture(20, 20).save(tmp_path / "one.png")
    [source] = open_input(None, tmp_path / "one.png").load(least=1).images.sources
    assert without_digests([source]) == (Source(str(tmp_path / "one.png"), "one.png"),)


def test_sources_of_other_images(tmp_path):
    paths = write(tmp_path, "RGB")
    pixels = np.stack([np.asarray(picture(20, 20, seed=900 + i)) for i in range(4)])
    labelled = (paths[:12], ["a"] * 6 + ["b"] * 6)
    mixed = load_images(labelled, pixels, size=20, channels=3).images
    assert without_digests(mixed.sources)[11:] == (Source(paths[11], paths[11]), *[Source("", "")] * 4)
    assert load_images((pixels, [0, 0, 1, 1]), pixels[::-1].copy()).images.sources == ()
    # an image set keeps its own
    again = load_images(mixed, None).images
    assert again.sources == mixed.sources


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_sources_that_are_not_text(tmp_path):
    write(tmp_path, "RGB")
    odd = os.path.join(os.fsencode(tmp_path), b"pile", b"caf\xe9.png")
    with open(odd, "wb") as file:
        file.write(encoded("PNG"))
    sources = load_images(tmp_path / "known", tmp_path / "pile").images.sources
    assert sources[-1].relative == "caf\\xe9.png"
    assert "".join(source.absolute for source in sources).encode("utf-8")


def test_image_sets_check_and_keep_sources():
    pixels = np.zeros((3, 8, 8, 1), np.uint8)
    sources = tuple(Source(f"/x/{i}.png", f"{i}.png") for i in range(3))
    whole = ImageSet(pixels, np.array([0, 0, -1]), ("a", "b", "c"), ("one",), sources)
    assert whole.subset(np.array([2, 0])).sources == (sources[2], sources[0])
    assert whole.subset(np.array([False, True, False])).sources == (sources[1],)
    assert ImageSet(pixels, whole.labels, whole.ids, ("one",)).subset(np.array([1])).sources == ()
    with pytest.raises(InputError, match="3 images and 2 sources"):
        ImageSet(pixels, whole.labels, whole.ids, ("one",), sources[:2])
