"""How far the probabilities of finished runs can be trusted: the expected calibration error and its curve.

    python lab/reliability.py RUN ...                      runs that were scored when they were made
    python lab/reliability.py RUN ... --truth TRUTH.csv    others: a table of file name and class

A file of the table is found by its name without the folder; known classes by their names in the run.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from autonovel import load
from autonovel.maths.confidence import reliability
from autonovel.maths.metrics import right_answers


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--truth", type=Path)
    args = parser.parse_args(arguments)
    for path in args.runs:
        run = load(path)
        found = run.summary["reliability"] if args.truth is None else against(run, args.truth)
        print(f"{path}: expected calibration error {found['calibration_error']:.3f} on {found['images']:,} images")
        for point in found["curve"]:
            bar = "#" * round(40 * point["right"])
            print(
                f"  said {point['probability']:.2f}  right {point['right']:.2f} {bar:<40} {point['images']:>6,} images"
            )


def against(run: Any, table: Path) -> dict[str, Any]:
    """The reliability of a run's own answers, before any edit, against a table of file names and classes."""
    with table.open(newline="", encoding="utf-8") as file:
        classes = {PurePath(row[0]).name: row[1] for row in csv.reader(file) if len(row) > 1}
    machine = run.machine
    names = [classes[PurePath(p.image).name] for p in run.predictions]
    numbers = {name: number for number, name in enumerate(machine.known)}
    for name in sorted(set(names) - numbers.keys()):
        numbers[name] = len(numbers)
    truth = np.array([numbers[name] for name in names])
    right = right_answers(truth, np.asarray(run.labels), len(machine.known))
    return reliability(torch.from_numpy(machine.probability), torch.from_numpy(right), f"against {table}")


if __name__ == "__main__":
    main()
