"""Arrays, lists, datasets: every kind of source gives the same ImageSet as the same images in a folder."""

import numpy as np
import pytest
from PIL import Image

from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.data.reading.inputs import load_images, open_input
from tests.hostile import encoded, picture


@pytest.fixture
def pixels():
    return np.stack([np.asarray(picture(24, 24, seed=i)) for i in range(10)])


LABELS = ["cat", "cat", "dog", "dog", "dog", None, None, None, None, None]


@pytest.fixture
def files(tmp_path, pixels):
    paths = []
    for number, image in enumerate(pixels):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(image).save(paths[-1])
    return paths


def check(loaded, pixels):
    np.testing.assert_array_equal(loaded.images.images, pixels)
    assert loaded.images.labels.tolist() == [0, 0, 1, 1, 1, -1, -1, -1, -1, -1]
    assert loaded.images.class_names == ("cat", "dog")
    assert len(set(loaded.images.ids)) == 10
    assert not [problem for problem in loaded.problems if problem.left_out]


def test_lists_of_files(files, pixels):
    check(load_images((files[:5], LABELS[:5]), files[5:]), pixels)
    check(load_images((files, LABELS)), pixels)


def test_arrays(pixels):
    check(load_images((pixels[:5], LABELS[:5]), pixels[5:]), pixels)
    check(load_images((pixels, LABELS)), pixels)
    numbers = np.array([0, 0, 7, 7, 7, -1, -1, -1, -1, -1])
    loaded = load_images((pixels, numbers))
    assert loaded.images.class_names == ("0", "7")
    assert loaded.images.labels.tolist() == [0, 0, 1, 1, 1, -1, -1, -1, -1, -1]
    assert load_images((pixels.astype(float) / 255, numbers)).images.images.dtype == np.uint8


@pytest.mark.parametrize("kind", [np.asarray, Image.fromarray])
def test_lists_of_pictures_of_different_sizes(kind):
    pictures = [kind(np.asarray(picture(20 + number, 24, seed=number))) for number in range(10)]
    loaded = load_images((pictures[:6], [0, 0, 0, 1, 1, 1]), pictures[6:], size=16)
    assert loaded.images.images.shape == (10, 16, 16, 3)
    assert loaded.images.labels.tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1, -1]


def test_images_that_are_not_square_stay_so_in_arrays():
    wide = np.random.default_rng(0).integers(0, 256, (6, 8, 12), np.uint8)
    assert load_images((wide, ["a", "a", "b", "", "", ""])).images.images.shape == (6, 8, 12, 1)
    assert load_images((wide, ["a", "a", "b", "", "", ""]), size=8).images.images.shape == (6, 8, 8, 1)


def test_image_sets(pixels):
    whole = ImageSet.from_arrays(pixels, [name or "" for name in LABELS])
    check(load_images(whole), pixels)
    assert load_images(whole).images.images is whole.images
    first, second = whole.subset(np.arange(5)), whole.subset(np.arange(5, 10))
    check(load_images(first, second), pixels)


def test_the_order_of_classes_stays(pixels):
    """Truth counts classes as the image set does, so they must not be put into another order."""
    given = ImageSet(
        pixels, np.array([0, 0, 1, 1, 2, -1, -1, -1, -1, -1]), tuple("abcdefghij"), ("z", "m", "a", "none")
    )
    loaded = load_images(given).images
    assert loaded.class_names == given.class_names
    np.testing.assert_array_equal(loaded.labels, given.labels)
    nothing_known = ImageSet(pixels, np.full(10, -1), given.ids, ())
    assert load_images(nothing_known).images.n_known == 0


def test_mixed_kinds(files, pixels):
    check(load_images((files[:5], LABELS[:5]), pixels[5:], size=24, channels=3), pixels)
    check(load_images((list(map(Image.fromarray, pixels[:5])), LABELS[:5]), files[5:]), pixels)


def test_torch_tensors_with_channels_first(pixels):
    import torch

    tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    check(load_images((tensor[:5], LABELS[:5]), tensor[5:]), pixels)


class Items:
    def __init__(self, pairs, **attributes):
        self.pairs = pairs
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, position):
        return self.pairs[position]


def torch_dataset(pairs, **attributes):
    from torch.utils.data import Dataset

    return type("Pairs", (Items, Dataset), {})(pairs, **attributes)


@pytest.mark.parametrize("form", ["pil", "array", "tensor", "float_tensor"])
def test_torch_datasets(pixels, form):
    import torch

    make = {
        "pil": Image.fromarray,
        "array": lambda p: p,
        "tensor": lambda p: torch.from_numpy(p).permute(2, 0, 1),
        "float_tensor": lambda p: torch.from_numpy(p).permute(2, 0, 1) / 255,
    }[form]
    labelled = torch_dataset(
        [(make(p), i) for p, i in zip(pixels[:5], [0, 0, 1, 1, 1], strict=True)], classes=["cat", "dog"]
    )
    unlabelled = torch_dataset([make(p) for p in pixels[5:]])
    check(load_images(labelled, unlabelled), pixels)


def test_torch_dataset_with_a_broken_item(pixels):
    class Broken(list):
        def __getitem__(self, position):
            if position == 7:
                raise OSError("disk on fire")
            return super().__getitem__(position)

    many = [np.asarray(picture(24, 24, seed=100 + i)) for i in range(20)]
    loaded = load_images((pixels[:5], LABELS[:5]), torch_dataset(Broken(many)), size=24, channels=3)
    assert len(loaded.images) == 24
    assert loaded.problems[0].reason == "cannot be read (OSError: disk on fire)"


def test_hugging_face_datasets(pixels, tmp_path):
    datasets = pytest.importorskip("datasets")
    contents = [encoded("PNG", Image.fromarray(p)) for p in pixels]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    column = [{"bytes": content, "path": None} for content in contents]
    labelled = datasets.Dataset.from_dict({"image": column[:5], "label": [0, 0, 1, 1, 1]}, features=features)
    unlabelled = datasets.Dataset.from_dict({"image": column[5:], "label": [0] * 5}, features=features)
    loaded = load_images(labelled, unlabelled, cache=tmp_path / "cache")
    check(loaded, pixels)
    assert any("are not used" in note for note in loaded.notes)
    again = load_images(labelled, unlabelled, cache=tmp_path / "cache")
    check(again, pixels)
    assert any("taken from" in note for note in again.notes)
    pile = datasets.Dataset.from_dict({"image": column, "label": [0, 0, 1, 1, 1] + [-1] * 5}, features=features)
    check(load_images(pile), pixels)
    with pytest.raises(InputError, match="has the splits 'train'"):
        load_images(datasets.DatasetDict({"train": pile}))
    with pytest.raises(InputError, match="no column of images"):
        load_images(datasets.Dataset.from_dict({"x": [1]}))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (3, "given as int"),
        ((np.zeros((4, 8, 8)), [1, 2]), "4 labelled images but 2 labels"),
        ((np.zeros((4, 8, 8)), [0.5, 1, 1, 1]), "whole numbers or names"),
        ((np.zeros((4, 8, 8)), [[1], [2], [1], [2]]), "whole numbers or names"),
        (np.zeros((4, 8, 8, 2)), "must have shape|no usable|cannot be used"),
        (np.full((4, 8, 8), np.nan), "finite"),
        (np.array([["a"]] * 4), "must have shape|cannot be used|no usable"),
        (["a.png", 3], "something other than paths|cannot be used|no usable"),
        ([], "no usable images"),
    ],
)
def test_bad_values_are_refused(source, sentence):
    with pytest.raises(InputError, match=sentence):
        load_images(source)


def test_size_and_channels(tmp_path, files):
    for size, channels in ((8, 1), (32, 3)):
        images = load_images((files, LABELS), size=size, channels=channels).images
        assert images.images.shape == (10, size, size, channels)
    for bad in ({"size": 2}, {"size": 5000}, {"channels": 4}):
        with pytest.raises(InputError):
            load_images((files, LABELS), **bad)


def test_grey_only_when_every_image_is(tmp_path):
    for number in range(8):
        picture(20, 20, "L", seed=number).save(tmp_path / f"{number}.png")
    assert load_images(None, tmp_path).images.channels == 1
    picture(20, 20, "RGB").save(tmp_path / "colour.png")
    assert load_images(None, tmp_path).images.channels == 3


def test_survey(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "known" / name).mkdir(parents=True)
        for number in range(3):
            picture(120 + number, 90).save(tmp_path / "known" / name / f"{number}.jpg")
    (tmp_path / "pile").mkdir()
    for number in range(4):
        picture(100, 300).save(tmp_path / "pile" / f"{number}.jpg")
    (tmp_path / "pile" / "bad.jpg").write_bytes(b"bad")
    (tmp_path / "pile" / "empty.jpg").write_bytes(b"")
    seen = open_input(tmp_path / "known", tmp_path / "pile").survey
    assert (seen.n_labelled, seen.n_unlabelled) == (6, 5)
    assert seen.classes == {"a": 3, "b": 3}
    assert (seen.side, seen.smallest, seen.largest, seen.size) == (90, 90, 300, 96)
    assert not seen.grey
    assert not seen.one_size
    assert {problem.reason for problem in seen.problems} == {"not an image", "empty file"}


def test_survey_of_arrays():
    seen = open_input((np.zeros((6, 28, 28), np.uint8), [1, 1, 2, 2, -1, -1])).survey
    assert (seen.size, seen.channels, seen.n_unlabelled) == (28, 1, 2)


def test_images_of_one_square_size_stay_as_they_are(files, pixels):
    assert load_images((files, LABELS)).images.images.shape == (10, 24, 24, 3)
