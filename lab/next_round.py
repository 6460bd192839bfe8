"""Does the next round help? The digits 5-9 are discovered, two of the five clusters are named, and the rest is sorted again.

    python lab/next_round.py --work RUNS --seeds 0 1 2

A person who looks at whole clusters is played by the truth: she names the two clusters with the fewest wrong images (or, with
``--named``, those given by number) after the digit most of their images show, and mends nothing inside them. Accuracy before
and after is that of the same images, all that were left in the three other clusters, each under its own best matching.
Adds a line to lab/rows/next_round.jsonl for each seed.
"""

from __future__ import annotations

import argparse
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import Log, add_row

from autonovel.api import discover
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import ImageSet, Truth
from autonovel.maths.metrics import cluster_accuracy
from autonovel.runs.folder import Run


def name_clusters(run: Run, classes: np.ndarray, truth: Truth, numbers: list[int]) -> dict[int, float]:
    """Name clusters after the digit that most of their images show; cluster -> the share of such images."""
    new = [cluster for cluster in run.clusters if cluster.number >= 0 and len(cluster.members)]
    counts = {cluster.number: np.bincount(classes[cluster.members]) for cluster in new}
    share = {number: float(count.max() / count.sum()) for number, count in counts.items()}
    taken: set[int] = set()
    named: dict[int, float] = {}
    for number in numbers or sorted(share, key=lambda number: -share[number]):
        digit = int(counts[number].argmax())
        if digit not in taken and len(named) < 2:  # two clusters of one digit would have one name
            run.name(number, f"digit {truth.class_names[digit]}")
            taken.add(digit)
            named[number] = share[number]
    return named


def attempt(data: ImageSet, truth: Truth, work: Path, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Both rounds of a seed."""
    common: dict[str, Any] = {"seed": seed, "device": args.device, "report": False}
    n_new = len(truth.class_names) - data.n_known
    first = discover(
        data, out=work / f"first-{seed}", n_new=n_new, recipe="digits", preset=args.preset, truth=truth,
        reporter=Log(f"first {seed}", 20), **common,
    )  # fmt: skip
    classes = truth.labels[~data.is_labelled]
    named = name_clusters(first, classes, truth, args.named)
    rest = ~np.isin(first.state.group, list(named))
    started = time.perf_counter()
    second = discover(
        data, continue_from=first, out=work / f"second-{seed}", n_new=n_new - len(named), reporter=Log(f"second {seed}", 20),
        **common,
    )  # fmt: skip
    assert [first.machine.images[row] for row in np.flatnonzero(rest)] == list(second.machine.images)
    left = classes[rest]
    # images of the named digits that lie among the rest count as wrong before; the second round may find them out
    of_rest = ~np.isin(left, [np.bincount(classes[first.state.group == number]).argmax() for number in named])
    answers = {"before": first.machine.group[rest], "after": second.machine.group}
    return {
        "seed": seed,
        "named": named,
        "acc_first_round": first.summary["acc_new"],
        "rest": int(rest.sum()),
        **{f"acc_{when}": cluster_accuracy(left, found) for when, found in answers.items()},
        **{
            f"acc_rest_digits_{when}": cluster_accuracy(left[of_rest], found[of_rest])
            for when, found in answers.items()
        },
        "seconds_second_round": round(time.perf_counter() - started, 1),
        "device": second.summary["device"],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--preset", default="fast")
    parser.add_argument(
        "--named", type=int, nargs=2, default=[], help="the clusters to name; the two purest when left out"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=Path, default=Path("lab/rows/next_round.jsonl"))
    args = parser.parse_args(arguments)
    data, truth = load_benchmark("digits", None)
    rows = []
    for seed in args.seeds:
        row = attempt(data, truth, args.work, seed, args)
        rows.append(row)
        about = {"preset": args.preset, "commit": args.commit, "date": str(date.today())}
        add_row(args.results, about | row)
        print(f"RESULT seed {seed}: {row}", flush=True)
    for name in ("acc_before", "acc_after", "acc_rest_digits_before", "acc_rest_digits_after"):
        values = [row[name] for row in rows]
        print(f"{name}: {np.mean(values):.4f} ± {np.std(values):.4f} ({len(values)} seeds)", flush=True)


if __name__ == "__main__":
    main()
