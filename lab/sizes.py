"""How long a pile of 1,000, 10,000 or more images takes, from an array to a finished run, heads on packaged features.

    python lab/sizes.py --work WORK --sizes 1000 10000                 images made on the spot
    python lab/sizes.py --work WORK --images IMAGES.npz --sizes 1000 10000 50000 [--device cuda]

An .npz file holds `images` (n, h, w[, 3]) uint8 and `labels` (n,). Half of the classes are known and labelled; the number of new
classes is given. Every size starts with an empty cache, so features are computed anew. `seconds` is a whole `discover` with its
pictures and report, `cpu_seconds` the time of all cores together, which says more on a machine that others use too. A line of
JSON for each size; with `--results FILE` it is added to that file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import add_row

from autonovel.api import discover
from autonovel.data.images import ImageSet, Truth
from autonovel.settings.recipes import get_recipe


def made_images(count: int, side: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Colour images whose classes differ by the direction, width and colour of stripes, with noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % classes
    y, x = (np.mgrid[:side, :side] / side).astype(np.float32)
    images = np.empty((count, side, side, 3), np.uint8)
    for i, label in enumerate(labels):
        angle = np.pi * label / classes
        wave = np.sin(2 * np.pi * (2 + label % 3) * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6.28))
        colour = 0.5 + 0.5 * np.cos(2 * np.pi * (label / classes + np.array([0, 1 / 3, 2 / 3])))
        noise = rng.normal(0, 12, (side, side, 1))
        images[i] = (128 + 60 * wave[..., None] * colour + 40 * (colour - 0.5) + noise).clip(0, 255).astype(np.uint8)
    return images, labels


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def attempt(images: np.ndarray, labels: np.ndarray, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One size."""
    shutil.rmtree(work, ignore_errors=True)
    classes = np.unique(labels)
    n_known = len(classes) // 2
    known = np.isin(labels, classes[:n_known])
    data = ImageSet.from_arrays(images, np.where(known, labels, -1))
    names = tuple(map(str, classes))
    truth = Truth(np.searchsorted(classes, labels), names)
    started, cpu = time.perf_counter(), cpu_seconds()
    run = discover(
        data, out=work / "run", cache=work / "cache", n_new=len(classes) - n_known, recipe=get_recipe("folder"),
        device=args.device, truth=truth,
    )  # fmt: skip
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
    summary = run.summary
    shutil.rmtree(work, ignore_errors=True)
    return {
        "images": len(images),
        "side": int(images.shape[1]),
        "method": summary["method"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "cpu_ms_an_image": round(1000 * cpu / len(images), 2),
        "stages": {name: round(value, 1) for name, value in summary["seconds"].items()},
        "acc_new": summary.get("acc_new"),
        "device": summary["device"],
        "cores": len(os.sched_getaffinity(0)),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for runs, which is emptied")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--images", type=Path, help=".npz with images and labels; made on the spot when left out")
    parser.add_argument("--side", type=int, default=64, help="of images made on the spot")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", default="")
    parser.add_argument("--note", default="")
    parser.add_argument("--results", type=Path)
    args = parser.parse_args(arguments)
    if args.images is not None:
        with np.load(args.images, allow_pickle=False) as kept:
            images, labels = kept["images"], kept["labels"]
    else:
        images, labels = made_images(max(args.sizes), args.side)
    chosen = np.random.default_rng(0).permutation(len(images))
    for size in args.sizes:
        rows = np.sort(chosen[:size])
        row = attempt(images[rows], labels[rows], args.work / f"size-{size}", args)
        row |= {"commit": args.commit, "date": str(date.today()), "note": args.note}
        print(json.dumps(row), flush=True)
        if args.results is not None:
            add_row(args.results, row)


if __name__ == "__main__":
    main()
