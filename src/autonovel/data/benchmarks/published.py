"""The published files of the benchmarks: which they are, their checksums, and how to read each format safely.

Everything here is about bytes on disk; which classes are known and which are new is decided in ``splits``.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError
from autonovel.data.images import Pixels

Classes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Archive:
    """One file to download: where it is, its published md5, and what becomes of it in the root folder.

    It ends up in the folder ``into`` below the root: an archive (``.tar.gz``, ``.zip``) unpacked, any other file as it is.
    """

    url: str
    md5: str
    into: str = ""


@dataclass(frozen=True)
class Published:
    """A data set as its authors published it.

    Attributes:
        folder: the folder that holds the files, below the root.
        files: published md5 by file name, for sets whose unpacked files have one.
        archives: what to download to get the folder.
    """

    folder: str
    files: dict[str, str] = field(default_factory=dict)
    archives: tuple[Archive, ...] = ()

    def locate(self, name: str, root: Path | None) -> Path:
        """The folder of the data set; ``root`` may be the folder around it or the folder itself."""
        if root is None:
            raise InputError(
                f"The benchmark {name} is read from files; give the folder that holds them as root (--root DIR)."
            )
        root = Path(root)
        marker = next(iter(self.files), None) or "images_background"
        for folder in (root / self.folder, root):
            if (folder / marker).exists():
                return folder
        if not root.is_dir():
            raise InputError(
                f"There is no folder {root}; give the folder that holds {self.folder} as root (--root DIR)."
            )
        raise InputError(f"{root} does not hold {self.folder}/{marker}; {self.advice(name, root)}.")

    def advice(self, name: str, root: Path) -> str:
        """What to do when the files are not there."""
        return f"put the extracted folder {self.folder} into {root}, or run `autonovel data {name} --root {root}`"

    def read(self, folder: Path, file: str, *, unverified: bool) -> bytes:
        """The bytes of one file, checked against its published md5."""
        path = folder / file
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise InputError(f"{path} is missing; put the complete folder {self.folder} there.") from None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror or error}).") from None
        if not unverified and hashlib.md5(content, usedforsecurity=False).hexdigest() != self.files[file]:
            raise InputError(
                f"{path} is not the published file (its md5 differs); "
                "download it again, or use it as it is with unverified=True (--unverified)."
            )
        return content


CIFAR10 = Published(
    "cifar-10-batches-py",
    {
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    (Archive("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
)
CIFAR100 = Published(
    "cifar-100-python",
    {
        "meta": "7973b15100ade9c7d40fb424638fde48",
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
    (Archive("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
)
SVHN = Published(
    "svhn",
    {
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
    (
        Archive("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", "svhn"),
        Archive("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", "svhn"),
    ),
)
OMNIGLOT = Published(
    "omniglot-py",
    archives=(
        Archive(
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_background.zip",
            "68d2efa1b9178cc56df9314c21c6e718",
            "omniglot-py",
        ),
        Archive(
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_evaluation.zip",
            "6b91aef0f799c5bb55b94e3f2daec811",
            "omniglot-py",
        ),
    ),
)
STL10 = Published(
    "stl10_binary",
    {
        "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
        "train_y.bin": "5a34089d4802c674881badbb80307741",
        "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
    },
    (Archive("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb"),),
)


# ---- CIFAR: Python 2 pickles of a dictionary with one numpy array -------------------------------------------------


class _PickledArray:
    """Stands in for numpy's array while a file is unpickled, so that the file cannot call any code of numpy."""

    array: Pixels

    def __setstate__(self, state: Any) -> None:
        _, shape, _, _, data = state
        self.array = np.frombuffer(data, dtype=np.uint8).reshape(shape)


class _PickledType:
    """Stands in for numpy's dtype; the pixels are bytes whatever it says."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class _CifarUnpickler(pickle.Unpickler):
    """Allows only the few names that the published files contain, each replaced by something harmless."""

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"):
                return lambda *_: _PickledArray()
            case "numpy", "ndarray":
                return _PickledArray
            case "numpy", "dtype":
                return _PickledType
            case "_codecs", "encode":  # how Python 3 writes bytes into a pickle of protocol 2
                return lambda text, *_: text.encode("latin1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_cifar(content: bytes, path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file: images under ``data`` as (n, 32, 32, 3), lists under other keys."""
    try:
        record = _CifarUnpickler(io.BytesIO(content), encoding="bytes").load()
        return {_text(key): _cifar_value(value) for key, value in record.items()}
    except Exception as error:  # a damaged pickle can raise almost anything
        raise InputError(f"{path} cannot be read as a CIFAR file ({error}); download it again.") from None


def _cifar_value(value: Any) -> Any:
    if isinstance(value, _PickledArray):
        return np.ascontiguousarray(value.array.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return [_text(item) for item in value] if isinstance(value, list) else _text(value)


def _text(value: Any) -> Any:
    return value.decode("latin1") if isinstance(value, bytes) else value


def cifar_part(record: dict[str, Any], label_key: str, n_classes: int, path: Path) -> tuple[Pixels, Classes]:
    """Images and classes of one CIFAR file, checked to be equally many."""
    images, labels = record.get("data"), record.get(label_key)
    if not isinstance(images, np.ndarray) or not isinstance(labels, list) or len(images) != len(labels):
        raise InputError(f"{path} does not hold images under 'data' with as many '{label_key}'; download it again.")
    return images, _classes(np.array(labels), n_classes, path)


def _classes(values: npt.NDArray[Any], n_classes: int, path: Path) -> Classes:
    if values.dtype.kind not in "iu" or (values.size and not (values.min() >= 0 and values.max() < n_classes)):
        raise InputError(f"{path} holds labels outside the {n_classes} classes; download it again.")
    return values.astype(np.int64)


# ---- SVHN: Matlab files, and STL-10: raw bytes ----------------------------------------------------------------------


def read_svhn(content: bytes, path: Path) -> tuple[Pixels, Classes]:
    """Images and digits of an SVHN file; the file writes the digit 0 as class 10."""
    from scipy.io import loadmat

    try:
        record = loadmat(io.BytesIO(content), variable_names=["X", "y"])
        images = np.ascontiguousarray(record["X"].transpose(3, 0, 1, 2))
        digits = record["y"].reshape(-1).astype(np.int64)
        if images.dtype != np.uint8 or images.shape != (len(digits), 32, 32, 3):
            raise ValueError(f"its images are {images.dtype} {images.shape} for {len(digits)} labels")
    except Exception as error:  # a damaged file can raise almost anything
        raise InputError(f"{path} cannot be read as an SVHN file ({error}); download it again.") from None
    return images, _classes(np.where(digits == 10, 0, digits), 10, path)


def read_stl10(images: bytes, labels: bytes, path: Path) -> tuple[Pixels, Classes]:
    """Images and classes of STL-10: planes of 96 x 96 stored column by column, classes counted from 1."""
    if not images or len(images) != len(labels) * 3 * 96 * 96:
        raise InputError(f"{path} does not hold one 96 x 96 colour image per label; download it again.")
    pixels = np.frombuffer(images, dtype=np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
    return np.ascontiguousarray(pixels), _classes(np.frombuffer(labels, dtype=np.uint8).astype(np.int64) - 1, 10, path)


# ---- OmniGlot: one small picture per drawing ------------------------------------------------------------------------


@lru_cache(maxsize=64)  # all twenty tasks have the known characters in common
def read_alphabet(folder: Path, size: int) -> tuple[Pixels, Classes, tuple[str, ...]]:
    """The drawings of one alphabet as (n, size, size, 1), their characters, and the characters' names.

    Ink is bright on a dark ground, the reverse of the files, so that padding with zeros adds plain ground.
    """
    from PIL import Image

    drawings: list[Pixels] = []
    classes: list[int] = []
    names: list[str] = []
    for character in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(character.glob("*.png"))
        for file in files:
            try:
                with Image.open(file) as image:
                    small = image.convert("L").resize((size, size), Image.Resampling.BILINEAR)
            except Exception as error:
                raise InputError(f"{file} cannot be read as an image ({error}); download it again.") from None
            drawings.append(255 - np.asarray(small, dtype=np.uint8))
        classes += [len(names)] * len(files)
        names.append(f"{folder.name}/{character.name}")
    images = np.array(drawings, dtype=np.uint8).reshape(len(drawings), size, size, 1)
    return images, np.array(classes, dtype=np.int64), tuple(names)
