"""Variants of swapped prediction on CIFAR-10 (or another benchmark), one after the other on one device, in one call.

    python benchmarks/swap.py --root DATA --out swap.jsonl --seeds 0 1 2 \\
        --variant "" "joint.swap.divergence=0.2 joint.ramp=10" "joint.swap.divergence=0.2 joint.swap.divergence_bound=-8"

Each variant is a text of dotted settings; an empty one is the recipe as it is. The stages before joint training are trained
once per seed and shared, or taken from ``--start-from RUN`` for all seeds. ``--sizes 5000,4000,3000,2000,500`` cuts the new
classes down to such sizes. With ``--hide 2,3`` these known classes are hidden too and they alone are scored, so that settings
can be compared without the labels of the classes to be discovered.

Adds a line of JSON for each run: ACC, k-means on the features of the same run beside it, the sizes of the clusters, the confusion
(rows: classes that are scored; columns: clusters, matched ones first), the last losses and the seconds of each stage.
A variant that fails is a line with its error.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Log, add_row, combinations, say, with_epochs
from tune_digits import hide

from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.errors import InputError, TrainingError
from autonovel.machine.device import Mode
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy, matched_confusion
from autonovel.pipeline import Pipeline
from autonovel.recipes import get_recipe, with_fields
from autonovel.runs.folder import Run


@dataclass(frozen=True)
class Pile:
    """A discovery task and what it is scored by.

    Attributes:
        data: the images.
        classes: int64 (unlabelled images,), the class of those that are scored, -1 for the others.
        n_new: how many classes the unlabelled images hold.
    """

    data: ImageSet
    classes: np.ndarray
    n_new: int


def make_pile(args: argparse.Namespace) -> Pile:
    """The task that the arguments ask for."""
    data, truth = load_benchmark(args.data, args.root, unverified=args.unverified)
    n_new = len(truth.class_names) - data.n_known
    if args.hide:
        task = hide(data, args.hide, n_new)
        classes = np.full(len(task.data), UNKNOWN)
        classes[task.probe] = task.classes
        return Pile(task.data, classes[~task.data.is_labelled], task.n_new)
    keep = np.ones(len(data), dtype=bool)
    for place, size in enumerate(args.sizes or ()):
        keep[np.flatnonzero(truth.labels == data.n_known + place)[size:]] = False
    data, labels = data.subset(keep), truth.labels[keep]
    return Pile(data, labels[~data.is_labelled], n_new)


def scores(run: Run, pile: Pile, seed: int, mode: Mode) -> dict[str, Any]:
    """How a finished run did."""
    clusters, scored = run.machine.group, pile.classes >= 0
    classes = np.unique(pile.classes[scored], return_inverse=True)[1]
    table, _ = matched_confusion(classes, clusters[scored])
    features = torch.from_numpy(np.array(run.features, dtype=np.float32)).to(mode.device)
    grouped = kmeans(features, pile.n_new, seed=seed).labels.cpu().numpy()
    present = classes.max() + 1
    return {
        "acc": cluster_accuracy(classes, clusters[scored]),
        "acc_kmeans": cluster_accuracy(classes, grouped[scored]),
        "kmeans_agrees": cluster_accuracy(clusters, grouped),
        "recall": [float(row[i] / row.sum()) for i, row in enumerate(table[:present])],
        "sizes": sorted(np.bincount(clusters, minlength=pile.n_new).tolist(), reverse=True),
        "confusion": table[:present].tolist(),
        "losses": run.metrics[-1]["losses"],
        "seconds": run.summary["seconds"],
    }


def attempt(
    args: argparse.Namespace, pile: Pile, variant: str, seed: int, name: str, base: Run | None
) -> dict[str, Any]:
    """Train and score a variant; its scores, or its error."""
    mode = Mode.of(args.device)
    try:
        [chosen] = combinations(variant.split())
        recipe = with_fields(with_epochs(get_recipe(args.recipe, args.preset), args.epochs), chosen)
        run = Run(args.work / name)
        Pipeline(pile.data, recipe, pile.n_new, seed, mode, Log(name, args.log_every)).run(run, start_from=base)
        return scores(run, pile, seed, mode)
    except (InputError, TrainingError) as error:
        return {"error": str(error)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all variants with all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--root", type=Path, help="where the files of the benchmark are")
    parser.add_argument("--out", type=Path, required=True, help="file to add a line of JSON to for every run")
    parser.add_argument("--work", type=Path, default=Path("swap-runs"), help="folder for the run folders")
    parser.add_argument("--variant", nargs="+", default=[""], metavar="'PATH=VALUE PATH=VALUE'")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--start-from", type=Path, metavar="RUN", help="take the first stages from this run")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--recipe", default="best")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--hide", type=numbers, help="known classes to hide and score instead of the new ones: 2,3")
    parser.add_argument("--sizes", type=numbers, help="images of each new class: 5000,4000,3000,2000,500")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, nargs=3, help="pretrain, supervised, joint: to try the script")
    parser.add_argument("--log-every", type=int, default=10, help="a line every so many epochs")
    parser.add_argument("--unverified", action="store_true", help="accept files other than the published ones")
    args = parser.parse_args(arguments)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pile = make_pile(args)
    given = None if args.start_from is None else Run(args.start_from)
    stamp = time.strftime("%H%M%S")
    first: dict[int, Run] = {}
    for number, (variant, seed) in enumerate(itertools.product(args.variant, args.seeds)):
        name = f"{stamp}-{number}"
        found = attempt(args, pile, variant, seed, name, given or first.get(seed))
        if "error" not in found:
            first.setdefault(seed, Run(args.work / name))
        about = {"data": args.data, "recipe": f"{args.recipe}:{args.preset}", "variant": variant, "seed": seed}
        about |= {"hidden": args.hide, "wanted_sizes": args.sizes, "run": str(args.work / name)}
        add_row(args.out, about | found)
        shown = {key: found[key] for key in ("error", "acc", "acc_kmeans", "sizes", "seconds") if key in found}
        say(f"'{variant}' seed {seed}: {shown}")


if __name__ == "__main__":
    main()
