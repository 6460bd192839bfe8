"""Folders that are probably not what the user meant: named for what they are, with what to give instead."""

import os
import shutil
import sys

import pytest

from autonovel.base.errors import InputError
from tests.data.reading.place import Place

posix = pytest.mark.skipif(sys.platform == "win32", reason="links need a POSIX system")


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    place.usual()
    return place


def notes_with(loaded, words):
    return [note for note in loaded.notes if words in note]


# ---- the two folders and each other -------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["known", "known/", "known/a/.."])
def test_the_same_folder_twice(place, again):
    place.refuses(
        "known was given both for the labelled and for the unlabelled images; give the images to be sorted in a folder "
        "of their own",
        unlabelled=again,
    )


@posix
def test_the_same_folder_under_another_name(place):
    (place.root / "link").symlink_to(place.root / "known")
    place.refuses("known was given both for the labelled and for the unlabelled images", unlabelled="link")


def test_the_same_table_twice(place):
    (place.root / "table.csv").write_text("path,label\nknown/a/0.png,a\npile/00.png,\n")
    place.refuses(
        "given both .* give it once, for the labelled images: its rows without a class", "table.csv", "table.csv"
    )


def test_the_pile_beside_the_class_folders(place):
    shutil.move(place.root / "pile", place.root / "known" / "pile")
    place.refuses(
        r"The folder .*known/pile, given for the unlabelled images, lies inside .*known, given for the labelled ones, "
        r"where every sub-folder counts as a class; move .*known/pile out of .*known, or give a folder that holds the "
        r"class folders alone",
        unlabelled="known/pile",
    )


def test_the_pile_inside_a_class_folder(place):
    place.add("known/a/more/1.png")
    place.add("known/a/more/2.png")
    place.refuses(r"a/more, given for the unlabelled images, lies inside .*known", unlabelled="known/a/more")


def test_the_parent_of_both_for_the_labelled_images(place):
    place.refuses(
        r"pile, given for the unlabelled images, lies inside .*; give .*known for the labelled images", labelled="."
    )


def test_the_parent_of_both_for_the_unlabelled_images(place):
    loaded = place.load("known", ".")
    assert (loaded.images.labels >= 0).sum() == 8
    assert (loaded.images.labels == -1).sum() == 12
    [note] = notes_with(loaded, "contains")
    assert "known, given for the labelled ones, whose images are not sorted again" in note
    assert notes_with(loaded, "8 of 20 unlabelled images left out as copies of labelled ones")


def test_folders_whose_names_begin_alike_are_not_inside_each_other(place):
    shutil.copytree(place.root / "pile", place.root / "known-not")
    assert place.load("known", "known-not").notes == []


# ---- one folder by itself -----------------------------------------------------------------------------------------


def test_only_text_files(place):
    for number in range(5):
        place.write(f"texts/{number}.txt", b"text")
    place.write("texts/notes/readme.md", b"text")
    place.refuses(
        r"There are no images in .*texts, only text files \(5 \.txt, 1 \.md\); give the folder that holds the "
        r"unlabelled images",
        unlabelled="texts",
    )
    place.refuses("no images in .*texts, only text files", labelled=None, unlabelled="texts")
    place.write("spoken/a/1.txt", b"text")
    place.write("spoken/b/1.txt", b"text")
    place.refuses(r"no images in .*spoken, only text files \(2 \.txt\); .* the labelled images", labelled="spoken")


def test_only_files_of_other_kinds(place):
    place.write("others/film.mp4", b"\0\0\0 ftypisom")
    place.write("others/README", b"text")
    place.refuses(r"only other files \(1 without an ending, 1 \.mp4\)", unlabelled="others")


def test_only_a_run_folder(place):
    place.write("runs/one/config.json", b"{}")
    place.write("runs/one/state/x", b"x")
    place.add("runs/one/clusters.png")
    place.refuses("no images in .*runs, only a run folder", unlabelled="runs")


def test_images_that_cannot_be_used_are_not_taken_for_text(place):
    place.write("broken/1.jpg", b"")
    place.write("broken/2.txt", b"text")
    place.refuses(
        r"no usable images in .*broken \(.*1 empty file.*; give images that can be opened",
        labelled=None,
        unlabelled="broken",
    )


def test_class_folders_without_a_usable_image_are_not_taken_for_unlabelled_ones(place):
    for name in ("a", "b"):
        place.write(f"texts/{name}/1.jpg", b"text")
    for number in range(30):  # so many usable ones that two are not too many to leave out
        place.add(f"pile/more{number}.png")
    place.refuses("no usable images in .*texts; give images that can be opened", labelled="texts")


def test_a_table_whose_files_are_all_missing(place):
    (place.root / "table.csv").write_text("path,label\nnot there.png,a\n")
    place.refuses(r"no usable images in .*table.csv \(1 .*\); give images that can be opened", labelled="table.csv")


def test_a_path_that_there_is_not(place):
    place.refuses("no file or folder .*; give the folder or table of the labelled images.$", labelled="knwon")
    place.refuses("no file or folder .*; give the folder or table of the unlabelled images.$", unlabelled="pil")


def test_no_unlabelled_images_given(place):
    place.refuses("Every image in .*known has a class, so there is nothing to discover", unlabelled=None)
    shutil.copytree(place.root / "pile", place.root / "known" / "Unlabelled")
    place.refuses(
        "Every image in .*known has a class, .*; the sub-folder 'Unlabelled' counts as a class: move it",
        unlabelled=None,
    )


def test_a_class_named_as_a_pile_is(place):
    place.add("known/unknown/1.png")
    place.add("known/unknown/2.png")
    loaded = place.load()
    assert loaded.images.class_names == ("a", "b", "unknown")
    assert notes_with(loaded, "The sub-folder 'unknown' of ")


def test_classes_that_may_lie_one_folder_deeper(place):
    for name in ("Greek/alpha", "Greek/beta", "Latin/a"):
        for number in range(2):
            place.add(f"families/{name}/{number}.png")
    [note] = place.load(labelled="families").notes
    assert note == (
        f"The known classes are the 2 folders in {place.root / 'families'}; their sub-folders ('Greek/alpha', 'Greek/beta', "
        "'Latin/a') are not classes of their own. If they are, give a table of the labelled images with the columns path and "
        "label."
    )
    place.add("families/Latin/beside.png")  # so the folders below belong to the class
    assert place.load(labelled="families").notes == []


def test_class_folders_with_one_folder_each_are_what_they_seem(place):
    for name in ("a", "b"):
        for number in range(2):
            place.add(f"wrapped/{name}/images/{number}.png")
    assert place.load(labelled="wrapped").notes == []


def test_class_folders_among_the_unlabelled_images(place):
    for name in "wxyz":
        for number in range(3):
            place.add(f"sorted/{name}/{number}.png")
    [note] = place.load(unlabelled="sorted").notes
    assert note == (
        f"The 4 sub-folders of {place.root / 'sorted'} ('w', 'x', 'y', ...) are not used as classes: all images in it "
        "are unlabelled."
    )
    place.add("sorted/beside.png")
    assert place.load(unlabelled="sorted").notes == []


def test_one_folder_below_the_unlabelled_one_is_no_class(place):
    place.add("outer/inner/1.png")
    place.add("outer/inner/2.png")
    assert place.load(unlabelled="outer").notes == []


# ---- copies -------------------------------------------------------------------------------------------------------


@posix
def test_copies_of_labelled_images_are_counted(place):
    for number in range(3):  # the same pictures in files of their own, one listed again by a link
        place.add(f"pile/copy{number}.png", seed=1 + 2 * number)
    (place.root / "pile/link.png").symlink_to(place.root / "known/b/0.png")
    place.add("pile/twin.png", seed=9)  # the same as pile/00.png, which is unlabelled too
    for settings in ({}, {"cache": place.root / "cache"}, {"cache": place.root / "cache"}):
        loaded = place.load(**settings)
        assert (loaded.images.labels == -1).sum() == 13
        assert notes_with(loaded, "4 of 17 unlabelled images left out as copies of labelled ones")
        assert sum(problem.copy for problem in loaded.problems) == 4
        assert not notes_with(loaded, " left out: ")
        assert notes_with(loaded, "1 image is a copy of another one")


def test_a_pile_of_nothing_but_copies(place):
    shutil.copytree(place.root / "known", place.root / "same")
    place.refuses("There is no unlabelled image in .*same besides 8 copies of labelled ones", unlabelled="same")


def test_messages_name_arguments_and_not_flags(place):
    """The same sentences serve the command line and Python: neither flags nor capitals of the usage line."""
    for labelled, unlabelled in (
        ("known", "known"),
        (".", "pile"),
        ("known", None),
        ("nowhere", "pile"),
        ("pile", "known"),
    ):
        with pytest.raises(InputError, match="images") as refused:
            place.load(labelled, unlabelled)
        assert "--" not in str(refused.value)
        assert "LABELLED" not in str(refused.value).replace(os.fspath(place.root), "")
