"""Run folders to look at: a small discovery, and folders of any size written as a run writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autonovel.api.run import Run, load
from autonovel.data.images import ImageSet, Source
from autonovel.data.reading.workers import fingerprint
from autonovel.runs.answers import Answer, ImageRecord
from autonovel.runs.files import FORMAT
from autonovel.runs.geometry import reduced
from autonovel.runs.likely import imagenet_names
from autonovel.settings.recipes import get_recipe, with_fields

HOSTILE = "<script>alert(1)</script>\"'&.png"


def digits_run(path: Path, *, n: int = 300, sources: Path | None = None) -> Run:
    """A discovery of handwritten digits, with 0 to 4 known, in seconds. The first image of the pile has a hostile name.

    The images are 2 n of scikit-learn's digits; with ``sources`` each has a file there.
    """
    from sklearn.datasets import load_digits

    from autonovel.api.discover import discover

    digits = load_digits()
    images = (digits.images[: 2 * n] * (255 / 16)).astype(np.uint8)[..., None]
    truth = digits.target[: 2 * n].astype(np.int64)
    names = [f"digit {row:04d}.png" for row in range(2 * n)]
    names[int(np.flatnonzero(truth >= 5)[0])] = HOSTILE
    files: list[Source] = []
    if sources is not None:
        from PIL import Image

        sources.mkdir(parents=True, exist_ok=True)
        for row, name in enumerate(names):
            file = sources / f"{row}.png"
            Image.fromarray(images[row, ..., 0]).resize((160, 160)).save(file)
            files.append(Source(str(file), name, f"{fingerprint(file.read_bytes()):014x}"))
    data = ImageSet(images, np.where(truth < 5, truth, -1), tuple(names), tuple("01234"), tuple(files))
    small = {"model.networks": 1, "model.width": 8, "joint.epochs": 6, "joint.heads": 2}
    recipe = with_fields(get_recipe("digits", "fast"), small)
    run = discover(data, n_new=5, out=path, recipe=recipe, device="cpu", report=False)
    run.write_array("map.npy", reduced(run.features, 2))  # t-SNE takes longer than the rest
    likely = np.zeros((2 * n, 1, 2), np.uint16)  # cluster 2 shows juncos, to a network that knows such things
    likely[run.unlabelled[run.machine.group == 2]] = imagenet_names().index("junco"), round(0.8 * 65535)
    run.write_array("imagenet.npy", likely)
    return load(path)


def large_run(path: Path, n: int, *, k: int = 20, pictures: int = 2_000, noise: bool = False, width: int = 8) -> Run:
    """A run of n unlabelled images with random features, and few pictures; ``noise`` makes those as large as can be."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, k, n)
    run = start_run(path, ["known"], k, seed=0)
    run.write_images(ImageRecord(f"photos/{row:07d}.jpg", "", f"photos/{row:07d}.jpg", None) for row in range(n))
    sure = rng.uniform(0.4, 1, n)
    run.write_predictions(
        Answer(f"photos/{row:07d}.jpg", int(group[row]), f"new {group[row]}", float(sure[row]), False)
        for row in range(n)
    )
    features = rng.normal(size=(n, width)) + 8 * rng.normal(size=(k, width))[group]
    run.write_array("features.npy", features.astype(np.float16))
    run.write_array("map.npy", features[:, :2].astype(np.float32))
    shape = (64, 64, 3) if noise else (4, 4, 1)
    images = rng.integers(0, 256, (pictures, *shape), dtype=np.uint8)
    finish_run(run, _Repeated(images, n), n, k, at_most=pictures)
    return load(path)


class _Repeated:
    """An array of n images of which only some are kept, over and over."""

    def __init__(self, images: np.ndarray, n: int) -> None:
        self._images, self._n = images, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self._images[rows % len(self._images)]


def start_run(path: Path, known: list[str], n_new: int, seed: int) -> Run:
    """A folder with a config.json."""
    path.mkdir(parents=True)
    run = Run(path)
    data = {"images": 0, "shape": [8, 8, 1], "class_names": known}
    run.write_json(
        "config.json",
        {
            "format": FORMAT,
            "run": {"recipe": {"name": "digits"}, "n_new": n_new, "seed": seed, "data": data},
            "versions": {"autonovel": "0", "torch": "2"},
        },
    )
    return run


def finish_run(run: Run, images: Any, unlabelled: int, n_new: int, *, at_most: int = 10**6) -> None:
    """The rest of the folder: metrics, the result and thumbnails."""
    from autonovel.runs.thumbnails import write_thumbnails

    for epoch in range(5):
        for stage in ("joint", "joint-2"):
            run.append_metrics({"stage": stage, "epoch": epoch, "losses": {"new": [1 / (1 + epoch), 2.0], "over": 0.5}})
    run.write_json(
        "summary.json",
        {
            "n_known": 5,
            "n_new": n_new,
            "n_new_estimated": None,
            "n_new_interval": None,
            "images": {"known": len(images) - unlabelled, "unlabelled": unlabelled},
            "seconds": {"total": 61.0},
            "recipe": "digits",
            "preset": "paper",
            "device": "cpu",
            "seed": 0,
        },
    )
    write_thumbnails(run, images, at_most=at_most)
