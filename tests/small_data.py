"""Small copies of the published data sets, in exactly their file formats, with generated images."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def class_images(labels: np.ndarray, size: int, seed: int = 0, n_classes: int = 10) -> np.ndarray:
    """Colour images whose classes differ plainly: a colour and the direction and width of stripes, plus noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    out = np.empty((len(labels), size, size, 3), np.uint8)
    for i, label in enumerate(labels):
        angle = np.pi * label / n_classes
        stripes = np.sin(2 * np.pi * (2 + label % 3) * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6.28))
        colour = 0.5 + 0.5 * np.cos(2 * np.pi * (label / n_classes + np.array([0, 1 / 3, 2 / 3])))
        noisy = 128 + 60 * stripes[..., None] * colour + 40 * (colour - 0.5) + rng.normal(0, 12, (size, size, 3))
        out[i] = noisy.clip(0, 255).astype(np.uint8)
    return out


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2 with the numpy of the time wrote: byte strings, protocol 2, numpy.core."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        value = value.encode("latin1") if isinstance(value, str) else value
        if len(value) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(value)]) + value)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_bytes

    def save_global(self, value, name=None):
        known = {"_reconstruct": "numpy.core.multiarray", "ndarray": "numpy", "dtype": "numpy"}
        if value.__name__ not in known:
            return super().save_global(value, name)
        self.write(pickle.GLOBAL + f"{known[value.__name__]}\n{value.__name__}\n".encode())
        self.memoize(value)

    dispatch[type] = dispatch[type(len)] = save_global  # numpy's _reconstruct is a built-in function


def write_python2_pickle(path: Path, value: object) -> None:
    with path.open("wb") as file:
        Python2Pickler(file, protocol=2).dump(value)


def _planes(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))


def write_small_cifar10(folder: Path, per_class: int = 20, test_per_class: int = 5, seed: int = 0) -> Path:
    """``folder/cifar-10-batches-py`` with five batches, a test batch and the names; returns ``folder``.

    ``per_class`` counts training images over all five batches. Read it with ``unverified=True``.
    """
    target = Path(folder) / "cifar-10-batches-py"
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(10), per_class))
    parts = [(f"data_batch_{i + 1}", part) for i, part in enumerate(np.array_split(labels, 5))]
    parts.append(("test_batch", rng.permutation(np.repeat(np.arange(10), test_per_class))))
    for number, (name, part) in enumerate(parts):
        record = {
            "batch_label": name.replace("_", " "),
            "labels": part.tolist(),
            "data": _planes(class_images(part, 32, seed * 100 + number)),
            "filenames": [f"{CIFAR10_NAMES[label]}_{i:06d}.png" for i, label in enumerate(part)],
        }
        write_python2_pickle(target / name, record)
    meta = {"num_cases_per_batch": len(parts[0][1]), "label_names": CIFAR10_NAMES, "num_vis": 3072}
    write_python2_pickle(target / "batches.meta", meta)
    return Path(folder)


def write_small_cifar100(folder: Path, per_class: int = 2, test_per_class: int = 1, seed: int = 0) -> Path:
    """``folder/cifar-100-python`` with train, test and meta; fine class f belongs to superclass f // 5."""
    target = Path(folder) / "cifar-100-python"
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for number, (name, count) in enumerate((("train", per_class), ("test", test_per_class))):
        fine = rng.permutation(np.repeat(np.arange(100), count))
        record = {
            "filenames": [f"fine{label}_{i:06d}.png" for i, label in enumerate(fine)],
            "batch_label": f"{name} batch 1 of 1",
            "fine_labels": fine.tolist(),
            "coarse_labels": (fine // 5).tolist(),
            "data": _planes(class_images(fine, 32, seed * 100 + number, n_classes=100)),
        }
        write_python2_pickle(target / name, record)
    meta = {
        "fine_label_names": [f"fine{i}" for i in range(100)],
        "coarse_label_names": [f"coarse{i}" for i in range(20)],
    }
    write_python2_pickle(target / "meta", meta)
    return Path(folder)


def write_small_svhn(folder: Path, per_class: int = 3, seed: int = 0) -> Path:
    """``folder/svhn`` with the two cropped-digit Matlab files; the digit 0 is written as class 10."""
    from scipy.io import savemat

    target = Path(folder) / "svhn"
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for number, name in enumerate(("train_32x32.mat", "test_32x32.mat")):
        digits = rng.permutation(np.repeat(np.arange(10), per_class))
        images = class_images(digits, 32, seed * 100 + number).transpose(1, 2, 3, 0)
        savemat(target / name, {"X": images, "y": np.where(digits == 0, 10, digits).astype(np.uint8)[:, None]})
    return Path(folder)


def write_small_stl10(folder: Path, per_class: int = 2, seed: int = 0) -> Path:
    """``folder/stl10_binary`` with the binary files; planes are stored column by column, classes count from 1."""
    target = Path(folder) / "stl10_binary"
    target.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(("train", "test")):
        labels = np.tile(np.arange(10), per_class)
        images = class_images(labels, 96, seed * 100 + number)
        (target / f"{split}_X.bin").write_bytes(np.ascontiguousarray(images.transpose(0, 3, 2, 1)).tobytes())
        (target / f"{split}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
    return Path(folder)


def write_small_omniglot(
    folder: Path, background: dict[str, int] | None = None, evaluation: dict[str, int] | None = None, drawings: int = 4
) -> Path:
    """``folder/omniglot-py`` with 1-bit drawings of 105 x 105, ink black; number of characters by alphabet."""
    rng = np.random.default_rng(0)
    parts = {
        "images_background": background or {"Latin": 2, "Greek": 3, "Cyrillic": 2},
        "images_evaluation": evaluation or {"Angelic": 2, "Tengwar": 3},
    }
    number = 0
    for part, alphabets in parts.items():
        for alphabet, n_characters in alphabets.items():
            for character in range(1, n_characters + 1):
                number += 1
                target = Path(folder) / "omniglot-py" / part / alphabet / f"character{character:02d}"
                target.mkdir(parents=True, exist_ok=True)
                stroke = np.random.default_rng(number).random((7, 7)) < 0.3
                for drawing in range(1, drawings + 1):
                    ink = np.kron(stroke, np.ones((15, 15), bool))
                    ink = np.roll(ink, rng.integers(-3, 4, 2), (0, 1))
                    Image.fromarray(~ink).save(target / f"{number:04d}_{drawing:02d}.png")
    return Path(folder)
