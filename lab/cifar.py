"""The paper's CIFAR experiments, several runs on one GPU at once; adds a line per run to lab/rows/cifar.jsonl.

    python lab/cifar.py --root DATA --work RUNS --commit HASH paper-cifar10 cluster-cifar10,best-cifar100

Plans run at the same time; those joined by a comma run one after the other.
paper-*, fast-*: stages 1 and 2 once, then stage 3 for every seed, with and without the incremental head.
best-*: swapped prediction, one seed.
cluster-*: no labels at all; as it is, without consistency, without self-supervision, with balanced clusters instead of
pairs. Takes rotation over from paper-*. The rows of CONTRAST, one after the other as --rows names them, start from SimCLR,
trained once.
With --together 1 the runs of a plan go one after the other.
estimate-*: the number of new classes by every estimator, from features of known classes that are not probes.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import traceback
from collections import defaultdict
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import Log, add_row, brief, combinations, with_epochs

from autonovel.answers.network import answer
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import UNKNOWN, ImageSet, Truth
from autonovel.data.loader import put_on
from autonovel.discovery.prepare import Pipeline
from autonovel.discovery.probes import estimate_from, plan_probes
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.models.net import build
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields

CONTRAST: dict[str, tuple[str, dict[str, Any]]] = {
    "contrast-kmeans": ("cluster-neighbours", {"method": "kmeans"}),
    "neighbours": ("cluster-neighbours", {}),
}
"""Rows that start from SimCLR: recipe and what differs from it."""

ROWS = ("full", "no-consistency", "no-rotation", "swap", *CONTRAST)
"""Of the table without labels."""

_rotated: dict[str, threading.Event] = defaultdict(threading.Event)
"""Plans whose first stage is done, or has failed."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+", help="KIND-BENCHMARK, for example paper-cifar10")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("lab/rows/cifar.jsonl"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--incremental-seeds", type=int, default=2)
    parser.add_argument("--rows", nargs="+", choices=ROWS, help="only these of cluster-*")
    parser.add_argument("--together", type=int, help="runs of a plan at the same time, all when left out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, nargs=3, help="pretrain, supervised, joint: to try the script")
    parser.add_argument("--images", type=int, help="only this many images: to try the script")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of every recipe: to try the script"
    )
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    args.results.parent.mkdir(parents=True, exist_ok=True)

    def chain(plans: str) -> None:
        for plan in plans.split(","):
            try:
                Plan(plan, args).work()
            except Exception:
                print(f"FAILED {plan}\n{traceback.format_exc()}", flush=True)
            finally:  # also where it failed before its first stage
                _rotated[plan].set()

    for plans in args.plans:
        for plan in plans.split(","):
            _rotated[plan].clear()
    side_by_side([lambda p=plans: chain(p) for plans in args.plans])
    print("ALL DONE", flush=True)


class Plan:
    """The runs of one kind on one benchmark."""

    def __init__(self, plan: str, args: argparse.Namespace) -> None:
        self.plan, self.args = plan, args
        self.kind, _, self.benchmark = plan.partition("-")
        self.images, self.truth = self._load()
        self.mode = Mode.of(args.device)

    def work(self) -> None:
        {"best": self.best, "cluster": self.cluster, "estimate": self.estimate}.get(self.kind, self.paper)()

    def paper(self) -> None:
        recipe = self._recipe(self.benchmark, self.kind)
        self._run("start", recipe, until="pretrain")
        _rotated[self.plan].set()
        start = self._run("start", recipe, until="supervised")
        cells = [(seed, False) for seed in range(self.args.seeds)]
        cells += [(seed, True) for seed in range(self.args.incremental_seeds)]
        jobs = [
            lambda s=seed, i=incremental: self._run(
                f"{'il-' if i else ''}seed{s}",
                replace(recipe, joint=replace(recipe.joint, incremental=i)),
                seed=s,
                start_from=start,
            )
            for seed, incremental in cells
        ]
        side_by_side(jobs, at_once=self.args.together)

    def best(self) -> None:
        self._run("seed0", self._recipe("best"))

    def cluster(self) -> None:
        """The table of the unsupervised mode. What the others train on top of rotation waits for it."""
        self.images = replace(self.images, labels=np.full_like(self.images.labels, UNKNOWN), class_names=())
        self.truth = replace(self.truth, test_images=None)
        recipe = self._recipe("cluster")
        paper = f"paper-{self.benchmark}"
        start = Run(self.args.work / f"{paper}-start")

        def with_rotation(name: str, settings: Recipe) -> None:
            if any(paper in plans.split(",") and self.plan not in plans.split(",") for plans in self.args.plans):
                _rotated[paper].wait()
            self._run(name, settings, start_from=start if start.has("pretrain.safetensors") else None)

        def from_nothing() -> None:
            self._run("no-rotation", replace(recipe, pretrain=replace(recipe.pretrain, method="none")))

        inconsistent = replace(recipe, joint=replace(recipe.joint, consistency=0.0))
        jobs = {
            "full": lambda: with_rotation("full", recipe),
            "no-consistency": lambda: with_rotation("no-consistency", inconsistent),
            "no-rotation": from_nothing,
            "swap": lambda: with_rotation("swap", replace(recipe, joint=replace(recipe.joint, objective="swap"))),
        }
        chosen = self.args.rows or ROWS

        def with_contrast() -> None:
            before: Run | None = None
            for name in (name for name in chosen if name in CONTRAST):
                recipe, changes = CONTRAST[name]
                settings = self._tried(with_fields(get_recipe(recipe), changes))
                before = self._run(name, settings, start_from=before)

        side_by_side([*(jobs[name] for name in jobs if name in chosen), with_contrast], at_once=self.args.together)

    def estimate(self) -> None:
        recipe = self._recipe("best")
        pipeline = Pipeline(self.images, recipe, None, 0, self.mode, Log(self.plan, 10))
        run = pipeline.run(Run(self.args.work / self.plan), until="estimate")
        recipe = pipeline.recipe
        plan = plan_probes(self.images, recipe.estimate, 0, None)
        net = build(recipe.model, channels=3, size=32).to(self.mode.device)
        state = run.read_tensors("supervised-probe.safetensors")[0]
        net.load_state_dict({name: value for name, value in state.items() if not name.startswith("heads.")})
        index = np.concatenate([plan.index, np.flatnonzero(~self.images.is_labelled)])
        features = answer(net, put_on(self.mode.device, self.images).chunks(index), self.mode).features
        np.savez(run.path / "points.npz", features=features.numpy().astype(np.float16), labels=self.truth.labels[index])
        found = {}
        for method in ("calibrated", "paper", "silhouette"):
            started = time.perf_counter()
            settings = replace(recipe.estimate, method=method)
            result = estimate_from(features, plan, self.images, settings, 0, self.mode)
            seconds = round(time.perf_counter() - started, 2)
            found[method] = {"n_new": result.n_new, "interval": result.interval, "seconds": seconds}
        n_probes = self.images.n_known - plan.n_train
        self._write({"estimates": found, "n_true": self._n_new, "n_probes": n_probes, "seed": 0, "recipe": "best"})

    def _load(self) -> tuple[ImageSet, Truth]:
        images, truth = load_benchmark(self.benchmark, self.args.root, unverified=self.args.unverified)
        if self.args.images:
            images = images.subset(np.arange(self.args.images))
            truth = replace(truth, labels=truth.labels[: self.args.images], test_images=None)
        return images, truth

    def _recipe(self, name: str, preset: str = "paper") -> Recipe:
        return self._tried(get_recipe(name, preset))

    def _tried(self, recipe: Recipe) -> Recipe:
        """The recipe with what --epochs and --set say."""
        return with_fields(with_epochs(recipe, self.args.epochs), combinations(self.args.set)[0])

    @property
    def _n_new(self) -> int:
        return len(self.truth.class_names) - self.images.n_known

    def _run(
        self, name: str, recipe: Recipe, seed: int = 0, start_from: Run | None = None, until: str | None = None
    ) -> Run:
        name = f"{self.plan}-{name}"
        pipeline = Pipeline(self.images, recipe, self._n_new, seed, self.mode, Log(name, 10))
        run = pipeline.run(Run(self.args.work / name), truth=self.truth, start_from=start_from, until=until)
        if until is None:
            self._write({"run": name, "incremental": recipe.joint.incremental} | brief(run.summary))
            print(f"RESULT {name} acc {run.summary['acc_new']:.4f} {json.dumps(run.summary['kmeans'])}", flush=True)
        return run

    def _write(self, row: dict[str, Any]) -> None:
        about = {"plans": self.args.plans, "date": str(date.today()), "commit": self.args.commit}
        add_row(self.args.results, {"benchmark": self.benchmark} | about | row)


if __name__ == "__main__":
    main()
