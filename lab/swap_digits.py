"""Variants of swapped prediction on small grey digits: piles of even and of uneven classes, scored on known digits alone.

    python lab/swap_digits.py --out swap-digits.jsonl --hide 1,2,3 2,3,4 --variant "" "joint.swap.regroups=0"

The hidden digits are known ones whose labels are taken away (probe classes); their sizes are cut down with ``--uneven``. With
``--pile`` the digits 5-9, whose labels nobody looks at, lie among them. Beside the answer stand k-means on the pixels and on
the features of the same run, groups in the space that known classes teach, every single head, and what can be told without
labels: how far the heads agree with each other and with k-means. With ``--keep`` the arrays of each run are kept, to try rules
for choosing an answer on them.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import add_row, combinations
from tune_digits import agreement

from autonovel.answers.network import restore, said_by_heads
from autonovel.answers.space import answer_from_features
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.discovery.prepare import Pipeline
from autonovel.machine.device import Mode
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy, matched_confusion
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields
from autonovel.tuning.tasks import ProbeTask, hide


def cut_down(task: ProbeTask, uneven: str) -> ProbeTask:
    """The task with fewer images of its hidden digits.

    "10": all of the first digit, a tenth of the last, geometric steps between; "5:4:1": sizes in these proportions.
    """
    order = sorted(set(task.classes.tolist()))
    keep = np.ones(len(task.data), dtype=bool)
    rows = np.flatnonzero(task.probe)
    if ":" in uneven:
        shares = [float(part) for part in uneven.split(":")]
    else:
        shares = [float(uneven) ** (-place / max(1, len(order) - 1)) for place in range(len(order))]
    for share, digit in zip(shares, order, strict=True):
        mine = rows[task.classes == digit]
        keep[mine[round(len(mine) * share / max(shares)) :]] = False
    return replace(task, data=task.data.subset(keep), probe=task.probe[keep], classes=task.classes[keep[rows]])


def attempt(task: ProbeTask, recipe: Recipe, asked: int, seed: int, mode: Mode, keep: Path | None) -> dict[str, Any]:
    """Run a variant, with so many clusters asked for: the accuracy of its answer, of k-means, and signs that need no labels."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Pipeline(task.data, recipe, asked, seed, mode).run(Run(Path(folder) / "run"))
        seconds = time.perf_counter() - started
        net = restore(run, mode).net
        last = [m["losses"] for m in run.metrics if m["epoch"] == recipe.joint.epochs - 1 and "new" in m["losses"]]
        number, merged = (
            run.summary.get("n_new_by_heads"),
            (run.merge_suggested() if run.suggested else run).state.group,
        )
        answers = run.machine.group
        features, labelled = (torch.from_numpy(np.array(f, np.float32)) for f in (run.features, run.labelled_features))
    unlabelled, probe = ~task.data.is_labelled, task.probe[~task.data.is_labelled]
    said = {kind: torch.stack([*said_by_heads(net, kind, features, mode)]).numpy() for kind in ("new", "over")}
    pixels = torch.from_numpy(task.data.images[unlabelled].reshape(len(answers), -1)).float()
    unit = torch.nn.functional.normalize(features, dim=1)
    labels = torch.from_numpy(task.data.labels[task.data.is_labelled])
    groups = answer_from_features(
        labelled, labels, features, asked, pile_kind="new", check_number=False, trained=True, seed=seed
    )
    grouped = {
        "groups": (groups.labels - groups.model.n_known).numpy(),
        "features": kmeans(features, asked, seed=seed).labels.numpy(),
        "unit_features": kmeans(unit, asked, seed=seed).labels.numpy(),
        "pixels": kmeans(pixels, asked, seed=seed).labels.numpy(),
    }
    table, _ = matched_confusion(np.unique(task.classes, return_inverse=True)[1], answers[probe])
    if keep is not None:
        np.savez_compressed(
            keep,
            by_head=said["new"],
            over=said["over"],
            losses=np.concatenate([losses["new"] for losses in last]),
            features=features,
            probe=probe,
            classes=task.classes,
            answers=answers,
            n_new=task.n_new,
        )
    alone = said["new"].argmax(2)
    return {
        "acc": cluster_accuracy(task.classes, answers[probe]),
        "acc_merged": cluster_accuracy(task.classes, merged[probe]),
        "n_new_by_heads": number,
        "kmeans": {name: cluster_accuracy(task.classes, labels[probe]) for name, labels in grouped.items()},
        "acc_by_head": [cluster_accuracy(task.classes, labels[probe]) for labels in alone],
        "recall": [row[i] / max(1, sum(row)) for i, row in enumerate(table.tolist())][
            : len(set(task.classes.tolist()))
        ],
        "sizes": sorted(np.bincount(answers, minlength=asked).tolist(), reverse=True),
        "agreement_of_heads": float(np.mean(agreement(alone))),
        "kmeans_agrees": float(np.mean([cluster_accuracy(labels, grouped["features"]) for labels in alone])),
        "answer_agrees_with_kmeans": cluster_accuracy(answers, grouped["features"]),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--variant", nargs="+", default=[""], metavar="'PATH=V PATH=V'", help="settings of each variant"
    )
    parser.add_argument("--hide", nargs="+", default=["1,2,3"], help="hidden digits of each task")
    parser.add_argument(
        "--uneven", nargs="+", default=["1"], help="largest to smallest hidden class, or sizes as 5:4:1"
    )
    parser.add_argument(
        "--asked", type=float, default=1.0, help="clusters to ask for, as a multiple of the right number"
    )
    parser.add_argument("--pile", type=int, default=0, help="5 keeps the unlabelled digits 5-9, which are never scored")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--networks", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="a line of JSON is added for every run")
    parser.add_argument("--keep", type=Path, help="folder for the arrays of every run")
    args = parser.parse_args()
    data, _ = load_benchmark("digits", None)  # the truth of the unlabelled images is dropped here
    mode = Mode.of("cpu")
    base = get_recipe("digits", "fast")
    base = replace(base, model=replace(base.model, networks=args.networks))
    for text, ratio, variant, seed in itertools.product(args.hide, args.uneven, args.variant, args.seeds):
        task = cut_down(hide(data, [int(c) for c in text.split(",")], args.pile), ratio)
        [chosen] = combinations(variant.split())
        asked = round(args.asked * task.n_new)
        about = {"variant": variant, "hidden": text, "uneven": ratio, "pile": args.pile, "asked": asked, "seed": seed}
        name = "-".join(str(value).replace(" ", "_") for value in about.values())
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
        kept = None if args.keep is None else args.keep / f"{name}.npz"
        found = attempt(task, with_fields(base, chosen), asked, seed, mode, kept)
        add_row(args.out, about | found)
        brief = {
            key: found[key]
            for key in ("acc", "acc_merged", "n_new_by_heads", "kmeans", "recall", "sizes", "agreement_of_heads")
        }
        print(about, brief, f"{found['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
