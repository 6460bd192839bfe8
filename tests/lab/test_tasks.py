"""The piles of the laboratory are what their words say."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tasks import STUDIES, make_task, read

from autonovel.base.errors import InputError
from autonovel.data.benchmarks.splits import benchmark_names, load_benchmark
from autonovel.settings.recipes import get_recipe, with_fields
from tests.small_data import class_images, write_small_omniglot

LABELS = np.repeat([7, 2, 9, 4], 8)


@pytest.fixture
def few(tmp_path: Path) -> str:
    """Four classes of eight images, of which 7 and 9 are known."""
    known = np.isin(LABELS, (7, 9))
    np.savez(tmp_path / "few.npz", images=class_images(LABELS % 5, 8), labels=LABELS, known=known)
    return str(tmp_path / "few.npz")


def named(data, truth) -> list[str]:
    return [truth.class_names[c] for c in truth.labels]


def test_a_benchmark_is_as_it_is(small_cifar: Path) -> None:
    data, truth = make_task("cifar10", small_cifar, unverified=True)
    as_it_is, known = load_benchmark("cifar10", small_cifar, unverified=True)
    assert np.array_equal(data.labels, as_it_is.labels)
    assert np.array_equal(data.images, as_it_is.images)
    assert (data.class_names, truth.class_names) == (as_it_is.class_names, known.class_names)
    assert np.array_equal(truth.labels, known.labels)
    assert len(truth.test_labels) == len(known.test_labels)


def test_known_classes_come_first_and_nothing_new_is_shown(few: str) -> None:
    data, truth = make_task(few, None)
    assert (data.class_names, truth.class_names) == (("7", "9"), ("7", "9", "2", "4"))
    assert sorted(named(data, truth)) == sorted(map(str, LABELS))
    assert np.array_equal(data.is_labelled, truth.labels < 2)
    assert np.array_equal(data.labels[data.is_labelled], truth.labels[data.is_labelled])


def test_known_and_new_are_exchanged(few: str) -> None:
    data, truth = make_task(f"{few} exchanged", None)
    assert (data.class_names, truth.class_names) == (("2", "4"), ("2", "4", "7", "9"))
    was = make_task(few, None)
    assert sorted(map(bytes, data.images[data.is_labelled])) == sorted(map(bytes, was[0].images[~was[0].is_labelled]))


def test_hidden_classes_are_the_new_ones_and_no_others_are_there(small_cifar: Path) -> None:
    read.cache_clear()
    data, truth = make_task("cifar10 hide=4,2", small_cifar, unverified=True)
    assert truth.class_names == ("airplane", "automobile", "cat", "deer", "bird")
    assert (len(data), data.n_known, truth.test_labels) == (50, 3, None)
    original = load_benchmark("cifar10", small_cifar, unverified=True)[0]
    shown = {
        bytes(image): data.class_names[label]
        for image, label in zip(data.images, data.labels, strict=True)
        if label >= 0
    }
    for image, label in zip(original.images, original.labels, strict=True):
        if label in (0, 1, 3):
            assert shown.pop(bytes(image)) == original.class_names[label]
    assert not shown


def test_draws_differ_and_say_how_many_stay_known(small_cifar: Path) -> None:
    drawn = [make_task(f"cifar10 hide=2 left=2 draw={d}", small_cifar, unverified=True)[1] for d in (0, 0, 1, 2, 3)]
    assert all(len(truth.class_names) == 4 for truth in drawn)
    assert drawn[0].class_names == drawn[1].class_names
    assert len({truth.class_names for truth in drawn}) > 2
    with pytest.raises(InputError, match="5 known classes cannot give 4 new ones and 2 that stay known"):
        make_task("cifar10 hide=4", small_cifar, unverified=True)


def test_sizes_are_those_of_the_new_classes(small_cifar: Path, few: str) -> None:
    _, truth = make_task("cifar10 sizes=10,8,6,4,2", small_cifar, unverified=True)
    assert np.bincount(truth.labels).tolist() == [10] * 5 + [10, 8, 6, 4, 2]
    _, truth = make_task("cifar10 uneven=10", small_cifar, unverified=True)
    assert np.bincount(truth.labels).tolist() == [10] * 5 + [10, 6, 3, 3, 3]  # a tenth would be a single one
    assert np.bincount(make_task(f"{few} each=3", None)[1].labels).tolist() == [3] * 4
    with pytest.raises(InputError, match="sizes=3,4 has 2 sizes for 5 new classes"):
        make_task("cifar10 sizes=3,4", small_cifar, unverified=True)


def test_known_images_join_the_pile_and_keep_their_true_class(small_cifar: Path) -> None:
    data, truth = make_task("cifar10 mixed=0.3", small_cifar, unverified=True)
    whole = make_task("cifar10", small_cifar, unverified=True)[1]
    assert np.array_equal(truth.labels, whole.labels)
    assert data.is_labelled.sum() == 35
    assert (truth.labels[data.is_labelled] == data.labels[data.is_labelled]).all()


def test_without_labels_nothing_is_known_and_there_is_no_test_split(small_cifar: Path) -> None:
    data, truth = make_task("cifar10 unlabelled", small_cifar, unverified=True)
    assert (data.n_known, data.is_labelled.any(), len(truth.class_names), truth.test_labels) == (0, False, 10, None)


def test_an_alphabet_and_a_folder(tmp_path: Path) -> None:
    root = write_small_omniglot(tmp_path)
    data, truth = make_task("omniglot:Tengwar", root, unverified=True)
    assert len(truth.class_names) - data.n_known == 3
    for name in "abcd":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for place, image in enumerate(class_images(np.zeros(3, int), 12, seed=ord(name))):
            Image.fromarray(image).save(tmp_path / "photos" / name / f"{place}.png")
    data, truth = make_task(f"{tmp_path / 'photos'} hide=2", None)
    assert (len(data), data.n_known, len(truth.class_names)) == (12, 2, 4)
    assert data.images.shape[1:] == (12, 12, 3)


def test_a_word_that_there_is_not_is_refused(few: str) -> None:
    with pytest.raises(InputError, match="There is no step of a task 'mix'"):
        make_task(f"{few} mix=0.3", None)
    with pytest.raises(InputError, match="There is no benchmark, folder or .npz file 'cifar11'"):
        make_task("cifar11", None)


def test_studies_name_what_there_is() -> None:
    for study in STUDIES.values():
        recipe = get_recipe(*study.recipe.split(":"))
        assert all(with_fields(recipe, fields) for fields in study.rows.values())
        assert all(task.split()[0] in (*benchmark_names(), "example") for task in study.tasks)
