"""What `autonovel reproduce` is worth measuring first, in this order: about two hours of an H200.

    python lab/first_two_hours.py --root DATA --out runs/paper
    python lab/first_two_hours.py --root DATA --out runs/paper --budget 45      what fits, and the next call goes on

Further flags go to every command, as --device cuda or --try joint.epochs=1. Nothing is measured twice.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

DTC_KCL_MCL = ("kcl", "mcl", "dtc", "kcl-ss", "mcl-ss", "dtc-ss")

ORDER = (
    ("ablation", "--columns", "cifar10", "--seeds", "3"),
    ("comparison", "incremental", "--columns", "cifar10", "--rows", *DTC_KCL_MCL, "--seeds", "1"),
    ("figure-k", "figure-tau", "--data", "cifar10", "digits-split", "--seeds", "1", "--scale", "fast"),
    ("many-classes", "unknown-number", "--rows", "kcl", "mcl", "dtc", "kcl-100", "mcl-100",
     "--columns", "omniglot", "--seeds", "1", "--together", "10"),
    ("ablation", "--columns", "cifar100", "--seeds", "1"),
    ("clustering", "--columns", "cifar10-both", "--seeds", "1"),
    ("tsne", "curves", "tsne-incremental", "confusion", "confusion-clustering", "ranking", "--seeds", "1"),
)  # fmt: skip
"""The words of one command after the other."""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--budget", type=float, help="minutes for all of it")
    given, flags = asked.parse_known_args()
    deadline, worst = None if given.budget is None else time.monotonic() + 60 * given.budget, 0
    for words in ORDER:
        command = [
            sys.executable,
            "-m",
            "autonovel",
            "reproduce",
            *words,
            *flags,
        ]  # of a flag that comes twice the last counts
        if deadline is not None:
            left = (deadline - time.monotonic()) / 60
            if left <= 0:
                break
            command += ["--budget", f"{left:.2f}"]
        print("$", " ".join(command[2:]), flush=True)
        worst = max(worst, subprocess.run(command, check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
