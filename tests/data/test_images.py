"""Images in memory: which labels count, and what is refused."""

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, Truth, says_a_class

PIXELS = np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["cat", "", "dog", "-1"]),
        np.array([b"cat", b"", b"dog", b"-1"]),
        np.array(["cat", None, "dog", -1], dtype=object),
        np.array(["cat", np.nan, "dog", float("nan")], dtype=object),  # what pandas has where a cell is empty
        ["cat", np.float32("nan"), "dog", None],
    ],
    ids=["text", "bytes", "objects", "not a number", "list"],
)
def test_every_usual_way_to_say_that_an_image_has_no_label(labels: object) -> None:
    labels = np.array(labels, dtype=object) if isinstance(labels, list) else labels
    found = ImageSet.from_arrays(PIXELS, labels)
    assert found.class_names == ("cat", "dog")
    assert found.labels.tolist() == [0, -1, 1, -1]
    assert says_a_class(labels).tolist() == [True, False, True, False]


def test_labels_in_bytes_may_be_in_any_alphabet() -> None:
    labels = np.array(["häher".encode(), b"\xff", b"", b""])
    assert ImageSet.from_arrays(PIXELS, labels).class_names == ("\\xff", "häher")


def test_black_and_white_images_are_black_and_white() -> None:
    found = ImageSet.from_arrays(PIXELS > 100).images
    np.testing.assert_array_equal(found[..., 0], np.where(PIXELS > 100, 255, 0))


def test_two_classes_or_two_images_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="Two known classes are called 'cat'; give each a name of its own."):
        ImageSet.from_arrays(PIXELS, [0, 1, 0, 1], class_names=["cat", "cat"])
    with pytest.raises(InputError, match="Two known classes are called 'cat'"):
        ImageSet(PIXELS[..., None], np.array([0, 1, -1, -1]), tuple("abcd"), ("cat", "cat"))
    with pytest.raises(InputError, match="Two images have the id 'a'; give each an id of its own."):
        ImageSet.from_arrays(PIXELS, ids=["a", "b", "a", "c"])


def test_a_truth_names_a_class_for_every_image() -> None:
    for labels in ([0, 1, 2], [0, 1, -1]):
        with pytest.raises(
            InputError, match=r"True classes run from -?\d to \d, but 2 classes are named; give every image one."
        ):
            Truth(np.array(labels), ("cat", "dog"))
    with pytest.raises(InputError, match=r"True classes run from 0 to 2"):
        Truth(np.array([0, 1]), ("cat", "dog"), PIXELS[..., None], np.array([0, 1, 2, 0]))
    with pytest.raises(InputError, match="4 test images and 3 test labels; give one label per image"):
        Truth(np.array([0, 1]), ("cat", "dog"), PIXELS[..., None], np.array([0, 1, 0]))


def test_ids_may_come_in_an_array() -> None:
    ids = np.array(["a", "b", "c"])
    assert ImageSet.from_arrays(np.zeros((3, 4, 4), np.uint8), ids=ids).ids == ("a", "b", "c")
    with pytest.raises(InputError, match="Two images have the id 'a'"):
        ImageSet.from_arrays(np.zeros((3, 4, 4), np.uint8), ids=np.array(["a", "b", "a"]))
