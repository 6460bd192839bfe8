"""From raw pixels to discovered classes, timed from outside: the command itself, one process per seed.

    python lab/fast.py --root DATA --work RUNS --commit HASH --seeds 0 1 2 3 4

Everything counts: start of Python, reading the files, compiling or reading what was compiled, all stages, scoring and
writing the run folder. ``start_seconds`` is the part of it before the first step. With ``--warm`` an untimed run of one
epoch per stage comes first and fills the compile cache. ``--set joint.epochs=100`` changes settings of the recipe; what was
changed stands in the line.
Adds a line per seed to lab/rows/cifar.jsonl and prints mean and spread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import add_row, brief


def time_of_first_line(metrics: Path, process: subprocess.Popen[str]) -> float:
    """When the first epoch began: it is written down, with its length, when it is over."""
    while process.poll() is None:
        if metrics.exists() and (lines := metrics.read_text().splitlines(keepends=True)) and lines[0].endswith("\n"):
            return time.perf_counter() - float(json.loads(lines[0])["seconds"])
        time.sleep(0.02)
    return float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--recipe", default="best")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--results", type=Path, default=Path("lab/rows/cifar.jsonl"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of the recipe")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--short", action="store_true", help="one epoch per stage everywhere: to try the script")
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    once = [f"--{stage}.epochs=1" for stage in ("pretrain", "supervised", "joint")]

    def discover(name: str, seed: int, more: list[str]) -> tuple[dict[str, Any], float, float]:
        command = [sys.executable, "-m", "autonovel", "discover", "--data", args.data, "--root", str(args.root)]
        command += ["--n-new", "true", "--recipe", args.recipe, "--preset", args.preset, "--seed", str(seed)]
        command += [
            "--out",
            str(args.work / name),
            "--json",
            "--no-report",
            *(f"--{field}" for field in args.set),
            *more,
        ]
        # the run that fills the cache is too short to be compiled by itself
        environment = os.environ | ({"AUTONOVEL_STEP": "compiled"} if more and not args.short else {})
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            first_epoch = time_of_first_line(args.work / name / "metrics.jsonl", process)
            printed, _ = process.communicate()
        wall = time.perf_counter() - started
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with status {process.returncode}.")
        return json.loads(printed), wall, first_epoch - started

    if args.warm:
        discover(f"{args.recipe}-{args.preset}-warm", 0, once)
    scores, times = [], []
    for seed in args.seeds:
        name = f"{args.recipe}-{args.preset}-{args.data}-wall-seed{seed}"
        summary, wall, start = discover(name, seed, once if args.short else [])
        about = {"benchmark": args.data, "run": name, "wall_seconds": round(wall, 1), "start_seconds": round(start, 1)}
        about |= {"date": str(date.today()), "commit": args.commit} | ({"changed": args.set} if args.set else {})
        add_row(args.results, about | brief(summary))
        scores.append(float(summary["acc_new"]))
        times.append(wall)
        print(f"seed {seed}: ACC {scores[-1]:.4f}, {wall:.1f} s, {start:.1f} s before the first step", flush=True)
    print(f"ACC {np.mean(scores):.4f} +- {np.std(scores):.4f}, {np.mean(times):.1f} s on average over {len(scores)}")


if __name__ == "__main__":
    main()
