"""Settings of recipe `folder` without a pre-trained network, compared on classes whose answer may be looked at; JSON lines.

    python lab/scratch.py example                              the example folder with known and new classes exchanged
    python lab/scratch.py IMAGES.npz --change joint.epochs=40  the same with a file, and a setting changed
    python lab/scratch.py IMAGES.npz --as-given                the hidden classes themselves, scored

An .npz file holds `images` uint8 (n, h, w, c), `labels` (n,) and `known` (n,), the mask of the labelled images. Exchanged, the
classes that are scored are the known ones, and the others lend their labels: settings are chosen without a look at the pile.
The example is drawn anew, with another seed than the folder of the tutorial.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import autonovel as an
from autonovel.data.images import ImageSet
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import unit
from autonovel.maths.metrics import cluster_accuracy
from autonovel.settings.recipe import Recipe, from_dict
from autonovel.settings.recipes import get_recipe

SIDE = 64


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="'example', or an .npz file")
    parser.add_argument("--as-given", action="store_true", help="do not exchange known and new classes")
    parser.add_argument("--change", nargs="*", default=[], metavar="SETTING=VALUE", help="settings, values as JSON")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(arguments)
    recipe = changed(get_recipe("folder"), ["method=scratch", "pile=new", *args.change])
    for seed in args.seeds:
        images, labels, known = draw_example(1000 + seed) if args.data == "example" else read(Path(args.data))
        data, truth = as_problem(images, labels, known if args.as_given else ~known)
        print(json.dumps({"seed": seed, "change": args.change} | measure(data, truth, recipe, seed, args.device)))


def changed(recipe: Recipe, changes: list[str]) -> Recipe:
    """The recipe with 'PART.SETTING=VALUE' applied; a value that is not JSON is text."""
    values = recipe.to_dict()
    for change in changes:
        path, _, text = change.partition("=")
        *parts, name = path.split(".")
        place = values
        for part in parts:
            place = place[part]
        if name not in place:
            sys.exit(f"A recipe has no setting '{path}'.")
        try:
            place[name] = json.loads(text)
        except json.JSONDecodeError:
            place[name] = text
    return from_dict(Recipe, values)


def draw_example(seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Sixty pictures of every class of the example folder, squeezed into squares."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import make_folder

    rng = random.Random(seed)
    kinds = [kind for kind in (*make_folder.KNOWN, *make_folder.NEW) for _ in range(60)]
    images = np.stack([np.asarray(make_folder.make_picture(kind, rng).resize((SIDE, SIDE))) for kind in kinds])
    labels = np.repeat(np.arange(len(kinds) // 60), 60)
    return images, labels, labels < len(make_folder.KNOWN)


def read(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    with np.load(path) as file:
        return file["images"], file["labels"].astype(np.int64), file["known"].astype(bool)


def as_problem(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]
) -> tuple[ImageSet, npt.NDArray[np.int64]]:
    """The images with labels on the known ones, numbered from 0, and the true classes of the rest."""
    numbers = np.unique(labels[known], return_inverse=True)[1]
    shown = np.full(len(labels), -1)
    shown[known] = numbers
    return ImageSet.from_arrays(images, shown), np.unique(labels[~known], return_inverse=True)[1]


def measure(data: ImageSet, truth: npt.NDArray[np.int64], recipe: Recipe, seed: int, device: str) -> dict[str, Any]:
    """Accuracy of a run, and of k-means on the features of the same run."""
    n_new, started, spent = int(truth.max()) + 1, time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = an.discover(
            data, out=Path(folder) / "run", n_new=n_new, recipe=recipe, seed=seed, device=device, report=False
        )
        features = unit(torch.from_numpy(run.features.astype(np.float32)))
        found = run.machine.group
    beside = kmeans(features, n_new, restarts=10, seed=seed).labels.numpy()
    return {
        "acc": round(cluster_accuracy(truth, found), 4),
        "kmeans_on_its_features": round(cluster_accuracy(truth, beside), 4),
        "seconds": round(time.perf_counter() - started),
        "cpu_seconds": round(time.process_time() - spent),
    }


if __name__ == "__main__":
    main()
