"""The paper's CIFAR experiments, several runs on one GPU at once; adds a line per run to results/cifar.jsonl.

    python benchmarks/cifar.py --root DATA --work RUNS --commit HASH paper-cifar10 best-cifar10,best-cifar100

Plans run at the same time; those joined by a comma run one after the other. paper-*: stages 1 and 2 once, then stage 3
for every seed, with and without the incremental head. best-*: swapped prediction, one seed.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import traceback
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from autonovel.data.benchmarks import load_benchmark
from autonovel.engine import Mode
from autonovel.parallel import side_by_side
from autonovel.pipeline import Pipeline
from autonovel.progress import Silent
from autonovel.recipes import get_recipe
from autonovel.runs import Run

_writing = threading.Lock()


class Log(Silent):
    """One line every tenth epoch, with the name of the run."""

    def __init__(self, name: str) -> None:
        self.name, self.stage = name, ""

    def message(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", flush=True)

    def start(self, stage: str, epochs: int, done: int) -> None:
        self.stage = stage
        self.message(f"{stage} starts, {epochs} epochs")

    def epoch(self, number: int, losses: dict[str, float | list[float]], seconds: float) -> None:
        if number % 10 == 9 or number == 0:
            self.message(f"{self.stage} {number + 1}: {json.dumps(losses)} {seconds:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+", help="PRESET-BENCHMARK or best-BENCHMARK")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("results/cifar.jsonl"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, nargs=3, help="pretrain, supervised, joint: to try the script")
    parser.add_argument("--images", type=int, help="only this many images: to try the script")
    args = parser.parse_args()

    def work(plan: str) -> None:
        preset, _, benchmark = plan.partition("-")
        images, truth = load_benchmark(benchmark, args.root)
        if args.images:
            images = images.subset(np.arange(args.images))
            truth = replace(truth, labels=truth.labels[: args.images], test_images=None)
        recipe = get_recipe("best") if preset == "best" else get_recipe(benchmark, preset)
        if args.epochs:
            recipe = replace(
                recipe,
                pretrain=replace(recipe.pretrain, epochs=args.epochs[0]),
                supervised=replace(recipe.supervised, epochs=args.epochs[1]),
                joint=replace(recipe.joint, epochs=args.epochs[2]),
            )
        n_new = len(truth.class_names) - images.n_known

        def one(seed: int, incremental: bool, start: Run | None, until: str | None = None, together: int = 1) -> Run:
            name = f"{plan}-{'il-' if incremental else ''}{'start' if until else f'seed{seed}'}"
            settings = replace(recipe, joint=replace(recipe.joint, incremental=incremental))
            pipeline = Pipeline(images, settings, n_new, seed, Mode.of(args.device), Log(name))
            run = pipeline.run(Run(args.work / name), truth=truth, start_from=start, until=until)
            if until is None:
                row = {
                    "benchmark": benchmark,
                    "incremental": incremental,
                    "together": together,
                    "date": str(date.today()),
                }
                row |= {"commit": args.commit} | {
                    k: v for k, v in run.summary.items() if k not in ("confusion", "matched")
                }
                with _writing, args.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"RESULT {name} acc {run.summary['acc_new']:.4f} {json.dumps(run.summary['kmeans'])}", flush=True)
            return run

        if preset == "best":
            one(0, True, None)
            return
        start = one(0, False, None, until="supervised")
        cells = [(seed, incremental) for seed in range(args.seeds) for incremental in (False, True)]
        side_by_side([lambda c=cell: one(*c, start, together=len(cells)) for cell in cells])

    def chain(plans: str) -> None:
        for plan in plans.split(","):
            try:
                work(plan)
            except Exception:
                print(f"FAILED {plan}\n{traceback.format_exc()}", flush=True)

    args.results.parent.mkdir(parents=True, exist_ok=True)
    side_by_side([lambda p=plans: chain(p) for plans in args.plans])
    print("ALL DONE", flush=True)


if __name__ == "__main__":
    main()
