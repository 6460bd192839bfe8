"""Hostile layouts of folders and tables: used as far as possible, or refused with a sentence that names the cause."""

import os
import sys

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.data.reading.inputs import load_images
from tests.data.reading.place import Place
from tests.hostile import encoded


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


posix = pytest.mark.skipif(sys.platform == "win32", reason="links and such names need a POSIX system")

# ---- used ---------------------------------------------------------------------------------------------------------


def test_the_usual_layout(place):
    place.usual()
    loaded = place.load()
    assert loaded.problems == []
    assert loaded.images.class_names == ("a", "b")
    assert np.bincount(loaded.images.labels + 1).tolist() == [12, 4, 4]
    assert loaded.images.ids[0] == str(place.root / "known/a/0.png")


def test_nested_folders_belong_to_their_class(place):
    place.usual()
    place.add("known/a/2019/may/deep.png")
    place.add("pile/x/y/z/deep.png")
    loaded = place.load()
    assert loaded.images.class_names == ("a", "b")
    assert (loaded.images.labels == 0).sum() == 5
    assert (loaded.images.labels == -1).sum() == 13


@pytest.mark.parametrize("depth", [60])
def test_very_deep_folders(place, depth):
    place.usual()
    place.add("pile/" + "/".join("d" * 20 for _ in range(depth)) + "/deep.png")
    assert len(place.load().images) == 21


@posix
def test_links_in_circles(place):
    place.usual()
    (place.root / "pile/again").symlink_to(place.root / "pile")
    (place.root / "pile/up").symlink_to(place.root)
    (place.root / "known/a/self").symlink_to(place.root / "known/a")
    loaded = place.load()
    assert len(loaded.images) == 20
    assert {os.path.basename(p.path) for p in loaded.problems if "the same folder as" in p.reason} >= {"again", "self"}
    assert not any(p.counts for p in loaded.problems)


@posix
def test_linked_folders_are_followed(place):
    place.usual()
    place.add("elsewhere/linked.png")
    (place.root / "known/c").symlink_to(place.root / "elsewhere")
    assert place.load().images.class_names == ("a", "b", "c")


@posix
def test_one_folder_as_two_classes(place):
    place.usual()
    (place.root / "known/c").symlink_to(place.root / "known/a")
    loaded = place.load()
    assert loaded.images.class_names == ("a", "b")
    assert [p.reason for p in loaded.problems] == [f"the same folder as {place.root / 'known/a'}"]


@posix
@pytest.mark.parametrize(
    "name",
    [
        "grüße 犬 🐕.png", "two\nlines.png", 'comma, "quote".png', "-rf.png", " leading.png", "percent%20.png",
        "a" * 250 + ".png", "tab\t.png",
    ],
)  # fmt: skip
def test_odd_names(place, name):
    place.usual()
    path = place.add(f"pile/{name}")
    loaded = place.load()
    assert loaded.problems == []
    assert str(path) in loaded.images.ids


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_not_text(place):
    place.usual()
    place.add(b"pile/caf\xe9.png")
    place.add(b"known/na\xefve/1.png")
    loaded = place.load(cache=place.root / "cache")
    assert loaded.problems == []
    assert "\n".join(loaded.images.ids).encode("utf-8")
    assert any(identifier.endswith("caf\\xe9.png") for identifier in loaded.images.ids)
    assert "na\\xefve" in loaded.images.class_names
    assert place.load(cache=place.root / "cache").images.ids == loaded.images.ids


def test_hidden_files_and_litter_are_passed_over(place):
    place.usual()
    place.add("pile/.hidden.png")
    place.add("pile/.git/picture.png")
    place.add("pile/__MACOSX/picture.png")
    place.add("known/.ipynb_checkpoints/picture.png")
    loaded = place.load()
    assert len(loaded.images) == 20
    assert loaded.images.class_names == ("a", "b")


def test_the_labelled_folder_inside_the_pile(place):
    place.usual()
    for number in range(3):
        place.add(f"more{number}.png")
    loaded = place.load("known", ".")
    assert (loaded.images.labels >= 0).sum() == 8
    assert (loaded.images.labels == -1).sum() == 12 + 3
    assert sum("also among the labelled images" in p.reason for p in loaded.problems) == 8


@posix
def test_the_same_file_on_both_sides(place):
    place.usual()
    (place.root / "pile/linked.png").symlink_to(place.root / "known/a/0.png")
    os.link(place.root / "known/b/0.png", place.root / "pile/hard.png")
    loaded = place.load()
    assert len(loaded.images) == 20
    assert sorted(p.reason for p in loaded.problems) == [
        f"also among the labelled images, as {place.root / 'known/a/0.png'}",
        f"also among the labelled images, as {place.root / 'known/b/0.png'}",
    ]


def test_copies(place):
    place.usual()
    place.add("pile/copy_of_known.png", seed=1)  # the same picture as known/a/0.png
    place.add("pile/once.png", seed=900)
    place.add("pile/twice.png", seed=900)
    place.add("known/a/contradiction.png", seed=901)
    place.add("known/b/contradiction.png", seed=901)
    loaded = place.load()
    reasons = {os.path.relpath(p.path, place.root): p for p in loaded.problems}
    assert reasons["pile/copy_of_known.png"].left_out
    assert "which is labelled 'a'" in reasons["pile/copy_of_known.png"].reason
    assert not reasons["pile/twice.png"].left_out
    assert "pile/once.png" not in reasons
    for side in "ab":
        assert "labelled both 'a' and 'b'" in reasons[f"known/{side}/contradiction.png"].reason
    assert len(loaded.images) == 20 + 2
    assert any("1 image is a copy of another one" in note for note in loaded.notes)


def test_a_class_with_one_image(place):
    place.usual()
    place.add("known/c/only.png")
    loaded = place.load()
    assert loaded.images.n_known == 3
    assert any("single image: 'c'" in note for note in loaded.notes)


def test_an_empty_class_folder(place):
    place.usual()
    (place.root / "known/empty").mkdir()
    loaded = place.load()
    assert loaded.images.class_names == ("a", "b")
    assert [p.reason for p in loaded.problems] == ["no images for this class"]


def test_images_beside_the_class_folders(place):
    place.usual()
    place.add("known/stray.png")
    loaded = place.load()
    assert [p.reason for p in loaded.problems] == ["not in the folder of a class"]
    assert len(loaded.images) == 20


def test_numbered_classes_are_in_order(place):
    place.usual()
    for number in (10, 9, 1):
        place.add(f"numbers/{number}/x.png")
        place.add(f"numbers/{number}/y.png")
    assert place.load("numbers").images.class_names == ("1", "9", "10")


def test_folder_that_looks_like_an_image(place):
    place.usual()
    place.add("pile/folder.jpg/inside.png")
    assert len(place.load().images) == 21


def test_a_folder_that_cannot_be_opened(place, monkeypatch):
    place.usual()
    place.add("pile/secret/x.png")
    plain = os.scandir

    def guarded(folder):
        if str(folder).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return plain(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    assert [p.reason for p in place.load().problems] == ["folder cannot be opened (Permission denied)"]


# ---- refused ------------------------------------------------------------------------------------------------------


def test_missing_folder(place):
    place.usual()
    place.refuses("There is no file or folder .*nowhere", unlabelled="nowhere")


def test_empty_folders(place):
    place.usual()
    (place.root / "empty").mkdir()
    place.refuses("no images in .*empty, nor any other visible files; .* the unlabelled images", unlabelled="empty")
    place.refuses("has no sub-folders", labelled="empty")
    place.refuses("no images in .*empty, nor any other", labelled=None, unlabelled="empty")
    (place.root / "hollow/a").mkdir(parents=True)
    (place.root / "hollow/b").mkdir()
    place.refuses("no images in .*hollow, nor any other visible files; .* the labelled images", labelled="hollow")


def test_images_without_class_folders(place):
    place.usual()
    place.add("photos/x.png")
    place.refuses("has no sub-folders; put the images of each known class", labelled="photos")


def test_one_class_only(place):
    place.usual()
    place.add("single/cat/1.png")
    place.add("single/cat/2.png")
    place.refuses("are of one class, 'cat'; at least two", labelled="single")


def test_as_many_classes_as_images(place):
    place.usual()
    for number in range(5):
        place.add(f"each/c{number}/x.png")
    place.refuses("Each of the 5 labelled images .* has a class of its own", labelled="each")


def test_one_level_too_high(place):
    place.usual()
    for split in ("train", "val"):
        for name in "ab":
            place.add(f"data/{split}/{name}/1.png")
    place.refuses("holds 'train' and 'val' instead of classes; give .*data/train", labelled="data")


def test_a_single_unlabelled_image(place):
    place.usual()
    place.add("one/x.png")
    place.refuses("only one unlabelled image", unlabelled="one")


@pytest.mark.parametrize("name", ["images.zip", "images.tar.gz", "notes.md", "picture.png"])
def test_files_that_are_no_source(place, name):
    place.usual()
    (place.root / name).write_bytes(encoded("PNG"))
    place.refuses("is an archive|is neither a folder|is a single image", labelled=name)


def test_null_byte_in_a_path(place):
    place.usual()
    with pytest.raises(InputError, match=r"cannot be read|no file or folder"):
        load_images("a\0b", place.root / "pile")


def test_nothing_given():
    with pytest.raises(InputError, match="No images were given"):
        load_images(None)


# ---- tables -------------------------------------------------------------------------------------------------------


def write_table(place, text: str | bytes, name: str = "table.csv") -> str:
    (place.root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


ROWS = "known/a/0.png,a\nknown/a/1.png,a\nknown/b/0.png,b\nknown/b/1.png,b\n"


@pytest.mark.parametrize(
    "text",
    [
        "path,label\n" + ROWS,
        ROWS,
        "\ufeffpath,label\n" + ROWS,
        "Path ; Label\n" + ROWS.replace(",", ";"),
        "label\timage\n" + "".join(f"{r.split(',')[1]}\t{r.split(',')[0]}\n" for r in ROWS.split()),
        "path,label\r\n" + ROWS.replace("\n", "\r\n"),
        "id,filename,note,class\n" + "".join('7,{},"x, y",{}\n'.format(*row.split(",")) for row in ROWS.split()),
        "path,label\n\n" + ROWS.replace("\n", "\n\n"),
        "path,label\n" + ROWS.replace("/", "\\"),
        ("path,label\n" + ROWS).encode("utf-16"),
    ],
    ids=[
        "plain", "no_header", "bom", "semicolons", "tabs", "crlf", "more_columns", "blank_lines", "backslash", "utf16",
    ],
)  # fmt: skip
def test_tables_of_many_kinds(place, text):
    place.usual()
    loaded = place.load(write_table(place, text))
    assert loaded.problems == []
    assert loaded.images.class_names == ("a", "b")
    assert (loaded.images.labels >= 0).sum() == 4


def test_one_pile_with_some_labels(place):
    place.usual()
    table = "path,label\n" + ROWS + "pile/00.png,\npile/01.png,-1\npile/02.png\n"
    loaded = place.load(write_table(place, table), None)
    assert loaded.images.labels.tolist() == [0, 0, 1, 1, -1, -1, -1]


def test_a_few_kilobytes_of_parquet_that_hold_gigabytes(place, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = place.root / "t.parquet"
    parquet.write_table(pa.table({"path": ["x" * 5_000_000] * 3}), table, compression="zstd")
    place.refuses("texts that are too long for paths", labelled="t.parquet")
    parquet.write_table(pa.table({"path": ["a.jpg"] * 100_000}), table)
    monkeypatch.setattr("autonovel.machine.memory.free_memory", lambda device: 90 * 2**20)
    place.refuses("holds 100,000 rows, which take about .* of memory, and .* are free; divide it", labelled="t.parquet")


def test_parquet(place):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    place.usual()
    paths = [row.split(",")[0] for row in ROWS.split()] + ["pile/00.png", "pile/01.png"]
    parquet.write_table(pa.table({"path": paths, "label": [3.0, 3.0, 7.0, 7.0, None, -1.0]}), place.root / "t.parquet")
    loaded = place.load("t.parquet", None)
    assert loaded.images.labels.tolist() == [0, 0, 1, 1, -1, -1]
    assert loaded.images.class_names == ("3", "7")
    parquet.write_table(pa.table({"x": paths}), place.root / "t.parquet")
    place.refuses("has no column 'path', but .*; give a .* table with the columns path,label", labelled="t.parquet")
    parquet.write_table(pa.table({"path": [1, 2]}), place.root / "t.parquet")
    place.refuses("does not hold paths", labelled="t.parquet")
    (place.root / "t.parquet").write_bytes(b"PAR1 nothing PAR1")
    place.refuses("cannot be read as Parquet .*; give a .* table with the columns path,label", labelled="t.parquet")


def test_labels_of_an_unlabelled_table_are_not_used(place):
    place.usual()
    loaded = place.load("known", write_table(place, "path,label\npile/00.png,secret\npile/01.png,secret\n"))
    assert loaded.images.class_names == ("a", "b")
    assert any("are not used" in note for note in loaded.notes)


def test_bad_rows_are_listed(place):
    place.usual()
    many = "".join(f"pile/{number:02d}.png,\n" for number in range(12))
    table = "path,label\n" + ROWS + many + "nowhere.png,a\n"
    [problem] = place.load(write_table(place, table), None).problems
    assert (problem.path, problem.reason) == ("nowhere.png", "no such file")
    for row, reason in {
        ",a": "no path",
        "known/a/2.png,a,extra": "3 cells where the table has 2 columns",
        "https://example.org/x.png,a": "a web address",
        "known,a": "not a file (a folder)",
        "known/a/0.png,a": "listed twice",
    }.items():
        [problem] = place.load(write_table(place, "path,label\n" + ROWS + many + row + "\n"), None).problems
        assert reason in problem.reason


def test_two_labels_for_one_file(place):
    place.usual(unlabelled=20)
    many = "".join(f"pile/{number:02d}.png,\n" for number in range(20))
    loaded = place.load(write_table(place, f"path,label\n{ROWS}{many}known/a/2.png,a\nknown/a/2.png,b\n"), None)
    assert {p.reason for p in loaded.problems} == {"labelled both 'a' and 'b'"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("path,label\n", "names no images"),
        (
            "name,kind\nx,y\n",
            "has no column 'path', its first line is 'name, kind'; give a .* table with the columns path,label",
        ),
        (b"path,label\n\xff\xfe\xfa.png,a\n", "not a text table in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\xff", "not a text table"),
        ("path,label\n" + "x" * 200_000 + ",a\n", "cannot be read|cannot be used|no usable"),
        ("path,label\n" + ROWS.replace(",b", ",a"), "one class, 'a'"),
        ("path\n" + "\n".join(row.split(",")[0] for row in ROWS.split()), "has a class"),
    ],
)
def test_tables_that_are_refused(place, text, sentence):
    place.usual()
    place.refuses(sentence, labelled=write_table(place, text))


def test_all_labelled_leaves_nothing_to_discover(place):
    place.usual()
    place.refuses("nothing to discover", labelled=write_table(place, "path,label\n" + ROWS), unlabelled=None)
