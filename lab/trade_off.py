"""Old against new classes at the joint classifier of finished runs, for every price of a new class.

    python lab/trade_off.py RUN RUN ... --root DATA --commit HASH

A number is added to the scores of all new classes before the largest is taken, on the test split: one run gives a whole
curve of (old, new) accuracies, on which the run itself is the point where nothing is added. A run that lies beside another
one's curve differs in where it stands between old and new; one that lies below it is worse. Adds a line per run to
lab/rows/trade_off.jsonl.
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import numpy as np
import torch
from common import add_row, say
from torch import Tensor

from autonovel.answers.network import restore
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.machine.device import Mode
from autonovel.maths.metrics import joint_scores
from autonovel.runs.folder import Run

SHIFTS = [round(float(shift), 2) for shift in np.arange(-4, 12.01, 0.25)]
"""What is added to the scores of new classes."""


def curve(scores: Tensor, truth: np.ndarray, n_known: int) -> list[dict[str, float]]:
    """Old, new and all, each matched on its own as in the paper's table, at every shift."""
    points = []
    for shift in SHIFTS:
        moved = scores.clone()
        moved[:, n_known:] += shift
        three = joint_scores(truth, moved.argmax(1).numpy(), n_known)["separate"]
        points.append({"shift": shift} | {name: round(value, 4) for name, value in three.items()})
    return points


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--benchmark", default="cifar10")
    parser.add_argument("--results", type=Path, default=Path("lab/rows/trade_off.jsonl"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    images, truth = load_benchmark(args.benchmark, args.root, unverified=args.unverified)
    if truth.test_images is None or truth.test_labels is None:
        parser.error(f"{args.benchmark} has no test split")
    mode = Mode.of(args.device)
    for path in args.runs:
        run = Run(path)
        parts = np.array_split(truth.test_images, max(1, len(truth.test_images) // 1000))
        scores = torch.cat([part.joint.float().cpu() for part in restore(run, mode).scores(parts)])
        points = curve(scores, truth.test_labels, images.n_known)
        told = {name: run.summary[name] for name in ("seed", "recipe", "preset", "acc_new", "device")}
        about = {"benchmark": args.benchmark, "run": path.name, "commit": args.commit, "date": str(date.today())}
        add_row(args.results, about | told | {"curve": points})
        here, best = (next(p for p in points if p["shift"] == 0), max(points, key=lambda p: p["all"]))
        say(f"{path.name}: {here}; best for all {best}")


if __name__ == "__main__":
    main()
