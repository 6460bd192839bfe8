"""The alternatives that the paper studies, on CIFAR-10: pair rules, pre-training and depth, one run each.

    python benchmarks/choices.py --root DATA --work RUNS --commit HASH pairs
    python benchmarks/choices.py --root DATA --work RUNS --commit HASH pretraining --rows simclr

Recipe cifar10, preset fast unless told otherwise. Runs of one table share the stages that they have in common. Adds a line for
each run to results/choices.jsonl.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

from common import Log, add_row, brief

from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.machine.device import Mode
from autonovel.pipeline import Pipeline
from autonovel.recipes import get_recipe
from autonovel.runs.folder import Run
from autonovel.settings import Recipe

PAPER = {
    "pairs": {
        "rank": 90.4, "soft-5": 62.2, "soft-15": 89.7, "cosine": 90.1, "nearest": 90.2, "kmeans-batch": 42.9,
        "kmeans-all": 62.2,
    },
    "pretraining": {"rotation": 90.4, "simclr": 89.0, "moco": 87.6, "moco-v2": 89.0},
    "depth": {"heads": 39.9, "layer4": 90.4, "layer3": 90.8, "layer2": 88.4, "layer1": 89.3, "all": 88.9},
}  # fmt: skip
"""ACC in the paper's tables."""


def recipe_of(table: str, row: str, recipe: Recipe) -> Recipe:
    """The recipe with one thing changed."""
    if table == "pairs":
        rule, _, k = row.partition("-") if row.startswith("soft") else (row, "", "")
        return replace(recipe, joint=replace(recipe.joint, pairs=rule, top_k=int(k or recipe.joint.top_k)))
    if table == "pretraining":
        return replace(recipe, pretrain=replace(recipe.pretrain, method=row))
    return replace(
        recipe,
        supervised=replace(recipe.supervised, train_from=row),
        joint=replace(recipe.joint, train_from=row),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(PAPER))
    parser.add_argument("--rows", nargs="+")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=Path, default=Path("results/choices.jsonl"))
    parser.add_argument("--short", action="store_true", help="one epoch per stage: to try the script")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    images, truth = load_benchmark("cifar10", args.root, unverified=args.unverified)
    n_new, start = len(truth.class_names) - images.n_known, None
    for row in args.rows or PAPER[args.table]:
        recipe = recipe_of(args.table, row, get_recipe("cifar10", args.preset))
        if args.short:
            recipe = replace(
                recipe,
                pretrain=replace(recipe.pretrain, epochs=1),
                supervised=replace(recipe.supervised, epochs=1),
                joint=replace(recipe.joint, epochs=1),
            )
        name = f"{args.table}-{row}-seed{args.seed}"
        started = time.perf_counter()
        job = Pipeline(images, recipe, n_new, args.seed, Mode.of(args.device), Log(name, 20))
        run = job.run(Run(args.work / name), truth=truth, start_from=start)
        start = start or run
        about = {"table": args.table, "row": row, "paper": PAPER[args.table].get(row), "commit": args.commit}
        about |= {"wall_seconds": round(time.perf_counter() - started, 1), "date": str(date.today())}
        add_row(args.results, about | brief(run.summary))
        print(
            f"RESULT {args.table} {row}: ACC {run.summary['acc_new']:.4f} (paper {PAPER[args.table].get(row)})",
            flush=True,
        )


if __name__ == "__main__":
    main()
