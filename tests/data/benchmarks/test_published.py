"""Benchmarks read from files in exactly the published formats, and from the real files where they are at hand."""

import hashlib
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.data.benchmarks import published, splits
from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS, classes_by_alphabet
from autonovel.data.benchmarks.splits import BENCHMARKS, benchmark_names, load_benchmark
from autonovel.settings.recipes import PROBE_ALPHABETS
from tests.small_data import (
    CIFAR10_NAMES,
    class_images,
    write_python2_pickle,
    write_small_cifar10,
    write_small_cifar100,
    write_small_omniglot,
    write_small_stl10,
    write_small_svhn,
)


def check_split(images, truth, n_known):
    known = truth.labels < n_known
    assert images.n_known == n_known
    assert images.class_names == truth.class_names[:n_known]
    np.testing.assert_array_equal(images.labels[known], truth.labels[known])
    assert (images.labels[~known] == -1).all()
    assert len(set(images.ids)) == len(images)


def test_digits():
    images, truth = load_benchmark("digits", None)
    assert images.images.shape == (1797, 8, 8, 1)
    assert images.images.max() == 255
    assert truth.test_images is None
    check_split(images, truth, 5)
    assert (images.labels == -1).sum() == (truth.labels >= 5).sum() == 896


@pytest.mark.parametrize("at_the_folder_itself", [False, True])
def test_cifar10(tmp_path, at_the_folder_itself):
    root = write_small_cifar10(tmp_path, per_class=7, test_per_class=2)
    images, truth = load_benchmark(
        "cifar10", root / "cifar-10-batches-py" if at_the_folder_itself else root, unverified=True
    )
    assert images.images.shape == (70, 32, 32, 3)
    assert truth.test_images.shape == (20, 32, 32, 3)
    assert truth.class_names == tuple(CIFAR10_NAMES)
    assert np.bincount(truth.labels).tolist() == [7] * 10
    check_split(images, truth, 5)
    first = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 7))[:14]
    np.testing.assert_array_equal(images.images[:14], class_images(first, 32, 0))  # channels in their place


def test_cifar10_without_labels(tmp_path):
    images, truth = load_benchmark("cifar10-all", write_small_cifar10(tmp_path, 2), unverified=True)
    check_split(images, truth, 0)
    assert len(truth.class_names) == 10


def test_ids_do_not_tell_the_class(tmp_path):
    images, _ = load_benchmark("cifar10", write_small_cifar10(tmp_path, 2), unverified=True)
    assert not any(name in identifier for identifier in images.ids for name in CIFAR10_NAMES)


def test_wrong_checksum_is_refused_without_the_flag(tmp_path):
    root = write_small_cifar10(tmp_path, 2)
    with pytest.raises(InputError, match=r"batches\.meta is not the published file.*unverified=True \(--unverified\)"):
        load_benchmark("cifar10", root)


def test_right_checksum_is_accepted(tmp_path, monkeypatch):
    folder = write_small_cifar10(tmp_path, 2) / "cifar-10-batches-py"
    files = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in published.CIFAR10.files}
    monkeypatch.setattr(published, "CIFAR10", replace(published.CIFAR10, files=files))
    assert len(load_benchmark("cifar10", tmp_path)[0]) == 20
    (folder / "data_batch_3").write_bytes((folder / "data_batch_3").read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="data_batch_3 is not the published file"):
        load_benchmark("cifar10", tmp_path)


def test_a_pickle_that_wants_to_run_something_does_not(tmp_path):
    write_small_cifar10(tmp_path, 2)
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {ran}",)

    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(pickle.dumps({b"label_names": Evil()}, protocol=2))
    with pytest.raises(InputError, match="cannot be read as a CIFAR file"):
        load_benchmark("cifar10", tmp_path, unverified=True)
    assert not ran.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80\x02", b"not a pickle", b"\x80\x02}q\x01.", b"\x80\x02]q\x01.", b"cbuiltins\neval\n(S'1'\ntR.",
        b"\x80\x04\x95" + b"\xff" * 20,
    ],
)  # fmt: skip
def test_damaged_pickles_are_refused_with_a_sentence(tmp_path, content):
    write_small_cifar10(tmp_path, 2)
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(content)
    with pytest.raises(InputError, match="data_batch_2"):
        load_benchmark("cifar10", tmp_path, unverified=True)


@pytest.mark.parametrize(
    "change", [{"labels": [0]}, {"labels": [11] * 4}, {"data": [1]}, {"data": np.zeros((4, 5), np.uint8)}]
)
def test_inconsistent_content_is_refused(tmp_path, change):
    write_small_cifar10(tmp_path, 2)
    record = {"labels": [0, 1, 2, 3], "data": np.zeros((4, 3072), np.uint8)} | change
    write_python2_pickle(tmp_path / "cifar-10-batches-py" / "data_batch_1", record)
    with pytest.raises(InputError, match="data_batch_1"):
        load_benchmark("cifar10", tmp_path, unverified=True)


def test_pickles_written_by_python_3_are_read_too(tmp_path):
    write_small_cifar10(tmp_path, 2)
    record = {b"labels": [1, 2], b"data": np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072)}
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(record, protocol=2))
    images, truth = load_benchmark("cifar10", tmp_path, unverified=True)
    assert truth.labels[:2].tolist() == [1, 2]
    assert images.images[0, 0, :3, 0].tolist() == [0, 1, 2]


def test_cifar100(tmp_path):
    root = write_small_cifar100(tmp_path)
    images, truth = load_benchmark("cifar100", root, unverified=True)
    assert images.images.shape == (200, 32, 32, 3)
    assert len(truth.test_labels) == 100
    check_split(images, truth, 80)
    images, truth = load_benchmark("cifar100-50", root, unverified=True)
    check_split(images, truth, 50)
    coarse, coarse_truth = load_benchmark("cifar100-20", root, unverified=True)
    check_split(coarse, coarse_truth, 0)
    np.testing.assert_array_equal(coarse_truth.labels, truth.labels // 5)
    assert coarse_truth.class_names[3] == "coarse3"
    both, both_truth = load_benchmark("cifar100-20-both", root, unverified=True)
    check_split(both, both_truth, 0)
    assert (len(both), both_truth.test_images) == (300, None)
    np.testing.assert_array_equal(both_truth.labels[200:], coarse_truth.test_labels)


def test_cifar10_may_come_with_its_test_split(tmp_path):
    root = write_small_cifar10(tmp_path, 2, 1)
    (images, truth), (both, both_truth) = (
        load_benchmark(n, root, unverified=True) for n in ("cifar10-all", "cifar10-both")
    )
    check_split(both, both_truth, 0)
    assert (len(images), len(both), both_truth.test_images) == (20, 30, None)
    np.testing.assert_array_equal(both.images[20:], truth.test_images)
    np.testing.assert_array_equal(both_truth.labels[20:], truth.test_labels)


def test_digits_may_come_with_a_test_split():
    (images, truth), (part, part_truth) = (load_benchmark(name, None) for name in ("digits", "digits-split"))
    check_split(part, part_truth, 5)
    assert (len(part), len(part_truth.test_labels), truth.test_images) == (1438, 359, None)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([part_truth.labels, part_truth.test_labels])), np.sort(truth.labels)
    )


def test_svhn(tmp_path):
    images, truth = load_benchmark("svhn", write_small_svhn(tmp_path), unverified=True)
    assert images.images.shape == (30, 32, 32, 3)
    check_split(images, truth, 5)
    digits = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 3))
    np.testing.assert_array_equal(truth.labels, digits)  # '10' came back as 0
    np.testing.assert_array_equal(images.images, class_images(digits, 32, 0))


def test_damaged_matlab_file(tmp_path):
    write_small_svhn(tmp_path)
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file" + b"\0" * 200)
    with pytest.raises(InputError, match=r"train_32x32\.mat cannot be read as an SVHN file"):
        load_benchmark("svhn", tmp_path, unverified=True)


def test_stl10(tmp_path):
    root = write_small_stl10(tmp_path)
    images, truth = load_benchmark("stl10", root, unverified=True)
    assert images.images.shape == (20, 96, 96, 3)
    check_split(images, truth, 0)
    np.testing.assert_array_equal(images.images, class_images(truth.labels, 96, 0))
    both, both_truth = load_benchmark("stl10-both", root, unverified=True)
    assert len(both) == len(both_truth.labels) == 40
    assert both_truth.test_images is None
    (tmp_path / "stl10_binary" / "train_y.bin").write_bytes(b"\x01")
    with pytest.raises(InputError, match="one 96 x 96 colour image per label"):
        load_benchmark("stl10", root, unverified=True)


def test_omniglot(tmp_path):
    root = write_small_omniglot(tmp_path)
    images, truth = load_benchmark("omniglot:Tengwar", root, unverified=True)
    assert images.images.shape == ((7 + 3) * 4, 32, 32, 1)
    check_split(images, truth, 7)
    assert truth.class_names[:2] == ("Cyrillic/character01", "Cyrillic/character02")
    assert truth.class_names[-1] == "Tengwar/character03"
    assert np.median(images.images) == 0  # ink is bright, the ground dark
    assert images.images.max() > 200
    part, part_truth = splits.one_alphabet(*load_benchmark("omniglot", root, unverified=True), "Tengwar")
    for field in ("images", "labels", "ids", "class_names"):
        np.testing.assert_array_equal(getattr(part, field), getattr(images, field))
    np.testing.assert_array_equal(part_truth.labels, truth.labels)
    assert part_truth.class_names == truth.class_names
    everything, _ = load_benchmark("omniglot", root, unverified=True, size=28)
    assert everything.images.shape == (12 * 4, 28, 28, 1)
    with pytest.raises(InputError, match="holds 7 characters instead of the published 964"):
        load_benchmark("omniglot", root)


def test_imagenet_folders(tmp_path):
    from PIL import Image

    lists = splits.json.loads((Path(splits.__file__).parent / "imagenet_classes.json").read_text())
    assert len(lists["held_out"]) == 118
    assert all(len(new) == 30 and set(new) <= set(lists["held_out"]) for new in lists["subsets"].values())
    for split, count in (("train", 3), ("val", 1)):
        for name in ["n00000001", "n00000002", *lists["held_out"]]:
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40, 30), (number * 40, 0, 0)).save(tmp_path / split / name / f"{number}.JPEG")
    with pytest.raises(InputError, match="2 known classes instead of 882"):
        load_benchmark("imagenet:B", tmp_path)
    images, truth = load_benchmark("imagenet:B", tmp_path, unverified=True, size=16)
    assert images.images.shape == (32 * 3, 16, 16, 3)
    check_split(images, truth, 2)
    assert truth.class_names[2:] == tuple(lists["subsets"]["B"])
    assert len(truth.test_labels) == 32
    with pytest.raises(InputError, match="imagenet:A, imagenet:B or imagenet:C"):
        load_benchmark("imagenet", tmp_path)
    (tmp_path / "train" / lists["subsets"]["B"][0]).rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="lacks 1 of the new classes"):
        load_benchmark("imagenet:B", tmp_path, unverified=True)


@pytest.mark.parametrize("name", ["cifar10", "cifar100-20", "svhn", "stl10", "omniglot:Angelic", "imagenet:A"])
def test_missing_files_say_what_to_do(tmp_path, name):
    with pytest.raises(InputError, match="root"):
        load_benchmark(name, None)
    with pytest.raises(InputError, match="does not hold"):
        load_benchmark(name, tmp_path)
    with pytest.raises(InputError, match=r"no folder|does not hold"):
        load_benchmark(name, tmp_path / "nowhere")


def test_one_missing_file_is_named(tmp_path):
    write_small_cifar10(tmp_path, 2)
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(InputError, match="data_batch_4 is missing"):
        load_benchmark("cifar10", tmp_path, unverified=True)


@pytest.mark.parametrize("name", ["cifar", "", "cifar10:A", "omniglot:Latin", "mnist"])
def test_unknown_names_list_the_known_ones(tmp_path, name):
    with pytest.raises(InputError, match="choose one of"):
        load_benchmark(name, tmp_path)


def test_names():
    assert set(BENCHMARKS) >= {
        "digits",
        "cifar10",
        "cifar100",
        "cifar100-50",
        "cifar100-20",
        "svhn",
        "omniglot",
        "stl10",
    }
    assert len(EVALUATION_ALPHABETS) == 20
    assert len(benchmark_names()) == len(BENCHMARKS) - 1 + 20 + 3


REAL = os.environ.get("AUTONOVEL_DATA")
needs_real_data = pytest.mark.skipif(not REAL, reason="AUTONOVEL_DATA names no folder with the published files")


@needs_real_data
def test_real_cifar10():
    images, truth = load_benchmark("cifar10", Path(REAL))
    assert images.images.shape == (50_000, 32, 32, 3)
    assert truth.test_images.shape == (10_000, 32, 32, 3)
    assert np.bincount(truth.labels).tolist() == [5000] * 10
    assert images.class_names == ("airplane", "automobile", "bird", "cat", "deer")
    assert truth.class_names[5:] == ("dog", "frog", "horse", "ship", "truck")
    check_split(images, truth, 5)
    assert images.images.mean((0, 1, 2)).round(1).tolist() == [125.3, 123.0, 113.9]  # the well-known channel means


@needs_real_data
def test_real_cifar100():
    images, truth = load_benchmark("cifar100", Path(REAL))
    assert np.bincount(truth.labels).tolist() == [500] * 100
    assert np.bincount(truth.test_labels).tolist() == [100] * 100
    assert (truth.class_names[0], truth.class_names[79], truth.class_names[80], truth.class_names[99]) == (
        "apple", "spider", "squirrel", "worm",
    )  # fmt: skip
    check_split(images, truth, 80)
    _, coarse = load_benchmark("cifar100-20", Path(REAL))
    assert np.bincount(coarse.labels).tolist() == [2500] * 20
    assert coarse.class_names[0] == "aquatic_mammals"
    belongs = {(fine, group) for fine, group in zip(truth.labels.tolist(), coarse.labels.tolist(), strict=True)}
    assert len(belongs) == 100  # every fine class lies in one superclass


@needs_real_data
def test_real_omniglot():
    images, truth = load_benchmark("omniglot", Path(REAL))
    assert images.n_known == 964
    assert len(truth.class_names) == 964 + 659
    assert np.bincount(truth.labels).tolist() == [20] * 1623
    groups = classes_by_alphabet(truth.class_names)
    assert len(groups) == 50
    assert tuple(name for name in groups if groups[name][0] >= 964) == EVALUATION_ALPHABETS
    assert sum(len(groups[name]) for name in PROBE_ALPHABETS) == 169
    assert all(groups[name][-1] < 964 for name in PROBE_ALPHABETS)
    one, one_truth = load_benchmark("omniglot:Angelic", Path(REAL))
    assert (one.labels == -1).sum() == 20 * 20
    check_split(one, one_truth, 964)
