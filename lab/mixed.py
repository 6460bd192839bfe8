"""A pile that holds known classes too: some of the known images of a benchmark lose their labels and join the pile.

    python lab/mixed.py --data cifar100 --root DATA --work RUNS --share 0.5
    python lab/mixed.py --data digits --recipe digits --preset fast --share 0.3 --work RUNS --seeds 0 1 2

Share 0 is the unmixed run to compare with. Recipe folder takes the features of a pre-trained network, and says so where it is
not installed instead of training one for hours; --backbone auto leaves that to the recipe.

With half of the known images this is the protocol of generalised category discovery (GCD, SimGCD): accuracy on all, old and
new images of the pile under one matching. Adds a line to lab/rows/mixed.jsonl.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from common import Log, add_row, brief

from autonovel.api import discover
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import UNKNOWN, ImageSet, Truth
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import PACKAGED


def few(images: ImageSet, truth: Truth, per_class: int) -> tuple[ImageSet, Truth]:
    """At most so many images of each class; all where it is 0."""
    if not per_class:
        return images, truth
    classes = range(len(truth.class_names))
    index = np.concatenate([np.flatnonzero(truth.labels == c)[:per_class] for c in classes])
    return images.subset(index), replace(truth, labels=truth.labels[index])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.5, help="of the known images that lose their label")
    parser.add_argument("--pile", default="auto", choices=["new", "mixed", "auto"])
    parser.add_argument("--recipe", default="folder")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--backbone", default=PACKAGED, help="of recipe folder")
    parser.add_argument("--per-class", type=int, default=0, help="take so many images of each class, to try the script")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=Path, default=Path("lab/rows/mixed.jsonl"))
    args = parser.parse_args(arguments)
    images, truth = few(*load_benchmark(args.data, args.root), args.per_class)
    recipe = replace(get_recipe(args.recipe, args.preset), pile=args.pile)
    if args.recipe == "folder" and args.backbone != "auto":
        recipe = replace(recipe, method="features", model=replace(recipe.model, backbone=args.backbone))
    for seed in args.seeds:
        known = np.flatnonzero(images.is_labelled)
        hidden = np.random.default_rng(seed).permutation(known)[: round(args.share * len(known))]
        labels = images.labels.copy()
        labels[hidden] = UNKNOWN
        name = f"mixed-{args.data}-{args.recipe}-{args.share}-{args.pile}-seed{seed}"
        started = time.perf_counter()
        run = discover(
            replace(images, labels=labels),
            out=args.work / name,
            n_new=len(truth.class_names) - images.n_known,
            recipe=recipe,
            seed=seed,
            device=args.device,
            truth=truth,
            report=False,
            reporter=Log(name, 20),
        )
        summary = run.summary
        about = {"run": name, "share": args.share, "commit": args.commit, "date": str(date.today())}
        add_row(args.results, about | {"wall_seconds": round(time.perf_counter() - started, 1)} | brief(summary))
        one = summary["pile"]["single"] if "pile" in summary else {"new": summary["acc_new"]}
        shown = "  ".join(f"{part} {one[part]:.3f}" for part in ("all", "old", "new") if part in one)
        print(f"RESULT {name}: {shown}  calibration error {summary['calibration_error']:.3f}", flush=True)


if __name__ == "__main__":
    main()
