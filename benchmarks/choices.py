"""The alternatives that the paper studies, on CIFAR-10: pair rules, pre-training and depth, one run each.

    python benchmarks/choices.py pairs --root DATA --work RUNS --commit HASH
    python benchmarks/choices.py pretraining depth --root DATA --work RUNS --commit HASH --only simclr layer4

Recipe cifar10, preset fast unless told otherwise; each row changes one thing. A line for each run is added to
results/choices.jsonl, from which benchmarks/choosing_page.py makes the tables of docs/choosing.md.

Stages that rows have in common are trained once, in RUNS/start-METHOD-PRESET-seedN. Several processes may work in the same
folders at once, on other rows: who needs a first stage that another one trains waits for it. The same command again
continues: rows that are in the results are left out, what was begun is taken up, and a row that fails leaves the others alone.
The recipe itself is a row of several tables: it is trained for one of them, and the others get the same line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from choosing_page import PAPER, PAPER_RAW
from common import Log, add_row, brief, combinations, say

from autonovel.answers.network import answer
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import put_on
from autonovel.discovery.prepare import Pipeline
from autonovel.machine.capture import not_captured
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy
from autonovel.models.net import build
from autonovel.runs.files import lock
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields, with_pretraining

RAW = ("paper_raw", "acc_raw", "images_per_second")
"""What rows of pre-training have besides."""


def recipe_of(table: str, row: str, recipe: Recipe) -> Recipe:
    """The recipe with one thing changed."""
    if table == "pairs":
        rule, _, k = row.partition("-") if row.startswith("soft") else (row, "", "")
        return with_fields(recipe, {"joint.pairs": rule, "joint.top_k": int(k or recipe.joint.top_k)})
    if table == "pretraining":
        return with_pretraining(recipe, row)
    method = table.partition("-")[2] or "rotation"
    return with_fields(with_pretraining(recipe, method), {"supervised.train_from+joint.train_from": row})


class Bench:
    """What all rows share."""

    def __init__(self, args: argparse.Namespace, images: ImageSet, truth: Truth) -> None:
        self.args, self.images, self.truth = args, images, truth
        self.mode, self.n_new = Mode.of(args.device), len(truth.class_names) - images.n_known
        self.base = with_fields(get_recipe("cifar10", args.preset), _values(args.set))

    def recipe(self, table: str, row: str) -> Recipe:
        """Of a row; what --set says counts, whatever the row brings."""
        return with_fields(recipe_of(table, row, self.base), _values(self.args.set))

    def start(self, table: str, recipe: Recipe) -> Run:
        """The run whose first stages a row starts from, trained now if nobody has done so."""
        method, shared = recipe.pretrain.method, "supervised" if table == "pairs" else "pretrain"
        name = f"start-{method}-{self.args.preset}-seed{self.args.seed}"
        plain = replace(recipe, joint=self.base.joint, supervised=self.base.supervised)
        self.args.work.mkdir(parents=True, exist_ok=True)
        with (self.args.work / f"{name}.lock").open("w") as file:
            if not lock(file, wait=False):
                say(f"{name}: another process trains it; waiting")
                lock(file, wait=True)
            run = Run(self.args.work / name)
            if run.has(f"{shared}.safetensors"):
                return run
            job = Pipeline(self.images, plain, self.n_new, self.args.seed, self.mode, Log(name, 10))
            return job.run(run, until=shared)

    def row(self, table: str, row: str) -> None:
        """Train it, score it, add its line."""
        began = time.perf_counter()
        recipe = self.recipe(table, row)
        line = self.twin(table, row, recipe) or self.train(table, row, recipe)
        if table == "pretraining":
            start = self.start(table, recipe)
            line |= {"paper_raw": PAPER_RAW.get(row), "acc_raw": self.raw_accuracy(start, recipe)}
            line |= {"images_per_second": self.speed(start)}
        add_row(self.args.results, line)
        raw = f", k-means on raw features {line['acc_raw']:.4f}" if "acc_raw" in line else ""
        took = f"{time.perf_counter() - began:.0f} s"
        say(f"RESULT {table} {row}: ACC {line['acc_new']:.4f} (paper {line['paper']}){raw}, {took}")

    def train(self, table: str, row: str, recipe: Recipe) -> dict[str, Any]:
        """The line of a row that is trained now."""
        start = self.start(table, recipe)
        name, started = f"{table}-{row}-{self.args.preset}-seed{self.args.seed}", time.perf_counter()
        say(f"{name} starts")
        job = Pipeline(self.images, recipe, self.n_new, self.args.seed, self.mode, Log(name, 20))
        run = job.run(Run(self.args.work / name), truth=self.truth, start_from=start)
        when = {"commit": self.args.commit, "date": str(date.today())}
        when |= {"wall_seconds": round(time.perf_counter() - started, 1)}
        return self.about(table, row) | when | brief(run.summary)

    def twin(self, table: str, row: str, recipe: Recipe) -> dict[str, Any] | None:
        """The line of a row of another table that has the same recipe, as a line of this one."""
        for line in self.lines():
            other = line["table"], line["row"]
            if other != (table, row) and "same_run_as" not in line and self.recipe(*other) == recipe:
                own = {name: value for name, value in line.items() if name not in RAW}
                return own | self.about(table, row) | {"same_run_as": line["run"]}
        return None

    def about(self, table: str, row: str) -> dict[str, Any]:
        """What tells the line from others."""
        return {
            "benchmark": "cifar10",
            "run": f"{table} {row}",
            "table": table,
            "row": row,
            "paper": PAPER[table].get(row),
        }

    def lines(self) -> list[dict[str, Any]]:
        """The results that there are with this preset and seed."""
        if not self.args.results.exists():
            return []
        lines = [json.loads(line) for line in self.args.results.read_text().splitlines() if line.strip()]
        return [line for line in lines if (line["preset"], line["seed"]) == (self.args.preset, self.args.seed)]

    def is_done(self, table: str, row: str) -> bool:
        """Whether the results have the line already: of this commit, or of a run that another table has."""
        own = [line for line in self.lines() if (line["table"], line["row"]) == (table, row)]
        return any("same_run_as" in line or line["commit"] == self.args.commit for line in own)

    def raw_accuracy(self, start: Run, recipe: Recipe) -> float:
        """ACC of k-means on what the first stage alone says of the unlabelled images."""
        net = build(recipe.model, channels=self.images.channels, size=recipe.model.size or self.images.images.shape[1])
        state = start.read_tensors("pretrain.safetensors")[0]
        net.load_state_dict({name: value for name, value in state.items() if not name.startswith("heads.")})
        hidden = np.flatnonzero(~self.images.is_labelled)
        with not_captured(self.mode.device):
            shown = put_on(self.mode.device, self.images, size=recipe.model.size)
            features = answer(net.to(self.mode.device), shown.chunks(hidden), self.mode).features
            found = kmeans(features.to(self.mode.device), self.n_new, seed=self.args.seed).labels.cpu().numpy()
        return cluster_accuracy(self.truth.labels[hidden], found)

    def speed(self, start: Run) -> int:
        """Images a second of the first stage, in the epoch in the middle: the first ones compile and capture."""
        seconds = [entry["seconds"] for entry in start.metrics if entry["stage"] == "pretrain"]
        return round(len(self.images) / statistics.median(seconds))


def _values(settings: list[str]) -> dict[str, Any]:
    """FIELD=VALUE ... as the fields of a recipe."""
    return combinations(settings)[0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=list(PAPER))
    parser.add_argument("--only", nargs="+", help="of the rows of these tables")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=Path, default=Path("results/choices.jsonl"))
    parser.add_argument("--together", type=int, default=1, help="rows at the same time in this process")
    parser.add_argument("--prepare", action="store_true", help="only train the stages that the rows share")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of every row, to try the script")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    rows = [(table, row) for table in args.tables for row in PAPER[table] if not args.only or row in args.only]
    if unknown := set(args.only or ()) - {row for _, row in rows}:
        parser.error(f"no row {', '.join(sorted(unknown))} in {', '.join(args.tables)}")
    bench = Bench(args, *load_benchmark("cifar10", args.root, unverified=args.unverified))
    failed: list[str] = []

    def attempt(table: str, row: str) -> None:
        try:
            if args.prepare:
                bench.start(table, bench.recipe(table, row))
            elif bench.is_done(table, row):
                say(f"{table} {row}: in {args.results} already")
            else:
                bench.row(table, row)
        except Exception:
            failed.append(f"{table} {row}")
            say(f"FAILED {table} {row}\n{traceback.format_exc()}")

    side_by_side([lambda t=table, r=row: attempt(t, r) for table, row in rows], at_once=args.together)
    say(f"ALL DONE{', failed: ' + ', '.join(failed) if failed else ''}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
