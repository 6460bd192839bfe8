"""The benchmarks by name, with the known and new classes that the literature uses.

Only the training split is handed to the method. Test images and every true label go into :class:`Truth`, which
nothing but scoring reads. Images are named by their position, never by the file names inside the published
archives: those often tell the class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from autonovel.base.errors import InputError, unknown
from autonovel.data.benchmarks import published
from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS, classes_by_alphabet
from autonovel.data.benchmarks.published import Classes, Published
from autonovel.data.images import UNKNOWN, ImageSet, Pixels, Truth
from autonovel.data.reading.workers import Progress

BENCHMARKS: dict[str, str] = {
    "digits": "scikit-learn's 1,797 digits, 8 x 8 grey; 0-4 known, 5-9 new; no download",
    "digits-split": "the same digits, every fifth of them held out as a test split",
    "cifar10": "CIFAR-10, 32 x 32; first 5 classes known, last 5 new",
    "cifar10-all": "CIFAR-10; all 10 classes to be discovered, nothing labelled",
    "cifar10-both": "CIFAR-10, training and test split together, as clustering papers use it; nothing labelled",
    "cifar100": "CIFAR-100, 32 x 32; first 80 classes known, last 20 new",
    "cifar100-50": "CIFAR-100; first 50 classes known, last 50 new",
    "cifar100-20": "CIFAR-100 in its 20 superclasses; all to be discovered, nothing labelled",
    "cifar100-20-both": "CIFAR-100 in its 20 superclasses, training and test split together; nothing labelled",
    "svhn": "street view house numbers, 32 x 32; 0-4 known, 5-9 new",
    "omniglot": "handwritten characters, grey; 964 known, 659 of 20 alphabets new; omniglot:Angelic for one alphabet",
    "stl10": "STL-10 training split, 96 x 96; all 10 classes to be discovered, nothing labelled",
    "stl10-both": "STL-10 training and test split together, as clustering papers use it; nothing labelled",
    "imagenet": "ImageNet folders train/nXXXXXXXX; 882 known, 30 new: imagenet:A, imagenet:B or imagenet:C",
}
"""Every benchmark by name, with a line about it."""


def load_benchmark(
    name: str, root: Path | None, *, unverified: bool = False, size: int | None = None
) -> tuple[ImageSet, Truth]:
    """A benchmark by name: the images with the labels that the method may see, and the truth for scoring.

    Args:
        name: one of :data:`BENCHMARKS`; ``omniglot:ALPHABET`` and ``imagenet:A`` (B, C) choose a task within one.
        root: the folder that holds the published files, or the folder around it; not needed for ``digits``.
        unverified: accept files whose checksum or number differs from the published ones.
        size: side of the square images, where the benchmark leaves it open (32 for OmniGlot and 224 for ImageNet when
            left out).

    >>> images, truth = load_benchmark("digits", None)
    >>> images.images.shape, images.n_known, len(truth.class_names)
    ((1797, 8, 8, 1), 5, 10)
    """
    family, _, task = name.partition(":")
    loader = _LOADERS.get(family)
    if loader is None or (task and family not in ("omniglot", "imagenet")):
        raise unknown("benchmark", name, BENCHMARKS)
    settings = (None if root is None else Path(root), unverified, size)
    return loader(task, *settings) if family in ("omniglot", "imagenet") else loader(*settings)


def benchmark_names() -> list[str]:
    """Every name that :func:`load_benchmark` takes, tasks within a benchmark included."""
    tasks = [f"omniglot:{alphabet}" for alphabet in EVALUATION_ALPHABETS]
    return [*(name for name in BENCHMARKS if name != "imagenet"), *tasks, *(f"imagenet:{s}" for s in "ABC")]


def published_files(name: str) -> Published | None:
    """The published files of a benchmark; None for one that cannot be downloaded or need not be."""
    family = name.partition(":")[0]
    if family not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return _FILES.get(family.split("-")[0])


def fetch_benchmark(name: str, root: Path, *, progress: Progress | None = None) -> str:
    """Verify the files of a benchmark below ``root``, downloading them first if need be; returns what is there now."""
    family, root = name.partition(":")[0], Path(root)
    source = published_files(name)
    if family in ("digits", "digits-split"):
        return "digits: comes with scikit-learn, nothing to fetch"
    if family == "imagenet":
        known, new = _imagenet_classes(name.partition(":")[2] or "A", root, unverified=False)
        return f"{name}: {len(known)} known and {len(new)} new classes in {root / 'train'}"
    assert source is not None
    try:
        images, truth = load_benchmark(name, root)
    except InputError:
        from autonovel.data.benchmarks.download import fetch_archive

        for archive in source.archives:
            fetch_archive(archive, root, progress)
        images, truth = load_benchmark(name, root)
    n_test = 0 if truth.test_labels is None else len(truth.test_labels)
    return f"{name}: verified in {root}, {len(images):,} training and {n_test:,} test images"


def hide_new_classes(
    images: Pixels,
    classes: Classes,
    class_names: Sequence[str],
    n_known: int,
    test: tuple[Pixels, Classes] | None = None,
) -> tuple[ImageSet, Truth]:
    """Split a labelled set: the first ``n_known`` classes keep their labels, those of the others go to the truth alone."""
    visible = np.where(classes < n_known, classes, UNKNOWN)
    width = len(str(max(len(images) - 1, 0)))
    ids = tuple(f"{position:0{width}d}" for position in range(len(images)))
    shown = ImageSet(images, visible, ids, tuple(class_names[:n_known]))
    return shown, Truth(classes, tuple(class_names), *(test or (None, None)))


def one_alphabet(images: ImageSet, truth: Truth, alphabet: str) -> tuple[ImageSet, Truth]:
    """Of the whole of OmniGlot what ``omniglot:ALPHABET`` is: all known characters, and those of one alphabet to discover."""
    own = classes_by_alphabet(truth.class_names).get(alphabet, [])
    chosen = [c for c in own if c >= images.n_known]
    if not chosen:
        raise InputError(
            f"There is no alphabet {alphabet!r} to discover; choose one of {', '.join(EVALUATION_ALPHABETS)}."
        )
    keep = images.is_labelled | np.isin(truth.labels, chosen)
    number = np.arange(len(truth.class_names))
    number[chosen] = images.n_known + np.arange(len(chosen))
    names = [*truth.class_names[: images.n_known], *(truth.class_names[c] for c in chosen)]
    return hide_new_classes(images.images[keep], number[truth.labels[keep]], names, images.n_known)


# ---- one function per benchmark -------------------------------------------------------------------------------------


def _digits(split: bool, root: Path | None, unverified: bool, size: int | None) -> tuple[ImageSet, Truth]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    classes, names = digits.target.astype(np.int64), [str(digit) for digit in range(10)]
    if not split:
        return hide_new_classes(images, classes, names, 5)
    held_out = np.arange(len(images)) % 5 == 4
    test = images[held_out], classes[held_out]
    return hide_new_classes(images[~held_out], classes[~held_out], names, 5, test)


def _cifar10(n_known: int, both: bool, root: Path | None, unverified: bool, size: int | None) -> tuple[ImageSet, Truth]:
    folder = published.CIFAR10.locate("cifar10", root)
    read = partial(_cifar_record, published.CIFAR10, folder, unverified)
    names = _class_names(read("batches.meta").get("label_names"), 10, folder / "batches.meta")
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    with ThreadPoolExecutor() as pool:  # checksums and copying release Python's lock
        parts = list(
            pool.map(lambda f: published.cifar_part(read(f), "labels", 10, folder / f), [*batches, "test_batch"])
        )
    if both:
        return hide_new_classes(*_together(parts), names, n_known)
    return hide_new_classes(*_together(parts[:-1]), names, n_known, parts[-1])


def _cifar100(
    level: str, known: int, both: bool, root: Path | None, unverified: bool, size: int | None
) -> tuple[ImageSet, Truth]:
    folder = published.CIFAR100.locate("cifar100", root)
    read = partial(_cifar_record, published.CIFAR100, folder, unverified)
    n = {"fine": 100, "coarse": 20}[level]
    names = _class_names(read("meta").get(f"{level}_label_names"), n, folder / "meta")
    train, test = (published.cifar_part(read(file), f"{level}_labels", n, folder / file) for file in ("train", "test"))
    if both:
        return hide_new_classes(*_together([train, test]), names, known)
    return hide_new_classes(*train, names, known, test)


def _cifar_record(source: Published, folder: Path, unverified: bool, file: str) -> dict[str, object]:
    return published.read_cifar(source.read(folder, file, unverified=unverified), folder / file)


def _together(parts: Sequence[tuple[Pixels, Classes]]) -> tuple[Pixels, Classes]:
    return np.concatenate([images for images, _ in parts]), np.concatenate([classes for _, classes in parts])


def _class_names(names: object, n_classes: int, path: Path) -> list[str]:
    if not isinstance(names, list) or len(names) != n_classes:
        raise InputError(f"{path} does not hold the names of {n_classes} classes; download it again.")
    return [str(name) for name in names]


def _svhn(root: Path | None, unverified: bool, size: int | None) -> tuple[ImageSet, Truth]:
    folder = published.SVHN.locate("svhn", root)
    train, test = (
        published.read_svhn(published.SVHN.read(folder, file, unverified=unverified), folder / file)
        for file in published.SVHN.files
    )
    return hide_new_classes(*train, [str(digit) for digit in range(10)], 5, test)


def _stl10(both: bool, root: Path | None, unverified: bool, size: int | None) -> tuple[ImageSet, Truth]:
    def part(split: str) -> tuple[Pixels, Classes]:
        files = f"{split}_X.bin", f"{split}_y.bin"
        images, labels = (published.STL10.read(folder, file, unverified=unverified) for file in files)
        return published.read_stl10(images, labels, folder / files[0])

    folder = published.STL10.locate("stl10", root)
    names = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
    train, test = part("train"), part("test")
    if both:
        return hide_new_classes(*_together([train, test]), names, 0)
    return hide_new_classes(*train, names, 0, test)


def _omniglot(task: str, root: Path | None, unverified: bool, size: int | None) -> tuple[ImageSet, Truth]:
    if task and task not in EVALUATION_ALPHABETS:
        raise InputError(f"There is no alphabet {task!r} to discover; choose one of {', '.join(EVALUATION_ALPHABETS)}.")
    folder = published.OMNIGLOT.locate("omniglot", root)
    advice = published.OMNIGLOT.advice("omniglot", folder.parent)
    alphabets: dict[str, list[Path]] = {}
    for part, n_characters in (("images_background", 964), ("images_evaluation", 659)):
        if not (folder / part).is_dir():
            raise InputError(f"{folder / part} is missing; {advice}.")
        alphabets[part] = sorted(path for path in (folder / part).iterdir() if path.is_dir())
        counted = sum(character.is_dir() for alphabet in alphabets[part] for character in alphabet.iterdir())
        if counted != n_characters and not unverified:
            raise InputError(
                f"{folder / part} holds {counted} characters instead of the published {n_characters}; "
                "download it again, or use it as it is with unverified=True (--unverified)."
            )
    chosen = [path for path in alphabets["images_evaluation"] if not task or path.name == task]
    if not chosen:
        raise InputError(f"{folder / 'images_evaluation' / task} is missing; {advice}.")
    known = [published.read_alphabet(path, size or 32) for path in alphabets["images_background"]]
    parts = known + [published.read_alphabet(path, size or 32) for path in chosen]
    names = [name for _, _, own_names in parts for name in own_names]
    first_class = np.cumsum([0, *(len(own_names) for _, _, own_names in parts)])
    images = np.concatenate([own_images for own_images, _, _ in parts])
    classes = np.concatenate([own + first for (_, own, _), first in zip(parts, first_class[:-1], strict=True)])
    drawings = 20
    if len(images) != drawings * len(names) and not unverified:
        raise InputError(
            f"{folder} does not hold {drawings} drawings of each character; "
            "download it again, or use it as it is with unverified=True (--unverified)."
        )
    return hide_new_classes(images, classes, names, sum(len(own_names) for _, _, own_names in known))


def _imagenet(task: str, root: Path | None, unverified: bool, size: int | None) -> tuple[ImageSet, Truth]:
    known, new = _imagenet_classes(task, root, unverified)
    assert root is not None
    images, classes = _class_folders(root, "train", [*known, *new], size or 224)
    test = _class_folders(root, "val", [*known, *new], size or 224) if (root / "val").is_dir() else None
    return hide_new_classes(images, classes, [*known, *new], len(known), test)


def _imagenet_classes(task: str, root: Path | None, unverified: bool) -> tuple[list[str], list[str]]:
    """Names of the known and the new classes, checked to be there."""
    lists = json.loads((Path(__file__).parent / "imagenet_classes.json").read_text())
    if task not in lists["subsets"]:
        raise InputError("Say which 30 classes of ImageNet are new: imagenet:A, imagenet:B or imagenet:C.")
    if root is None or not (root / "train").is_dir():
        raise InputError(
            f"{root or 'The root'} does not hold ImageNet; give as root (--root DIR) a folder with train/nXXXXXXXX/*.JPEG "
            "(and val/nXXXXXXXX/*.JPEG for the test images)."
        )
    there = {path.name for path in (root / "train").iterdir() if path.is_dir()}
    known, new = sorted(there - set(lists["held_out"])), lists["subsets"][task]
    if missing := sorted(set(new) - there):
        raise InputError(f"{root / 'train'} lacks {len(missing)} of the new classes, for example {missing[0]}.")
    if len(known) != 882 and not unverified:
        raise InputError(
            f"{root / 'train'} holds {len(known)} known classes instead of 882; complete it, or use it as it is with "
            "unverified=True (--unverified)."
        )
    return known, new


def _class_folders(root: Path, split: str, names: Sequence[str], size: int) -> tuple[Pixels, Classes]:
    """The images of these class folders, decoded into a cache in the root, and the number of each image's class."""
    from autonovel.data.reading.fill import read_class_folders
    from autonovel.data.reading.problems import refuse_if_too_many

    images, classes, problems = read_class_folders(
        [root / split / name for name in names], size, root / "autonovel-cache"
    )
    refuse_if_too_many(problems, len(images))
    return images, classes


_LOADERS: dict[str, Callable[..., tuple[ImageSet, Truth]]] = {
    "digits": partial(_digits, False),
    "digits-split": partial(_digits, True),
    "cifar10": partial(_cifar10, 5, False),
    "cifar10-all": partial(_cifar10, 0, False),
    "cifar10-both": partial(_cifar10, 0, True),
    "cifar100": partial(_cifar100, "fine", 80, False),
    "cifar100-50": partial(_cifar100, "fine", 50, False),
    "cifar100-20": partial(_cifar100, "coarse", 0, False),
    "cifar100-20-both": partial(_cifar100, "coarse", 0, True),
    "svhn": _svhn,
    "omniglot": _omniglot,
    "stl10": partial(_stl10, False),
    "stl10-both": partial(_stl10, True),
    "imagenet": _imagenet,
}

_FILES: dict[str, Published] = {
    "cifar10": published.CIFAR10,
    "cifar100": published.CIFAR100,
    "svhn": published.SVHN,
    "omniglot": published.OMNIGLOT,
    "stl10": published.STL10,
}
