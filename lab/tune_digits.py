"""Search the settings of a recipe on known classes alone.

    python lab/tune_digits.py --set joint.epochs=40,80 --set joint.lr=0.1,0.2 --hide 0,1 2,3 --seeds 0 1

Labels of the classes to be discovered may choose nothing. So some of the *known* classes play that part: their labels are
taken away (the probe classes), the whole method runs, and the accuracy on them is the score of the settings. With
``--pile`` the truly unlabelled images stay in the pile; nobody looks at what they are, but they take up clusters and can be
confused with the probe classes, which makes the task as hard as the real one.

Signals that need no labels at all are reported beside it: how far the heads agree with each other on the whole pile, and
the training loss of the head that answers. docs/digits.md holds what was found with it.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import add_row, combinations

from autonovel.answers.network import restore
from autonovel.data.augment import to_float
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.loader import resize
from autonovel.discovery.prepare import Pipeline
from autonovel.machine.device import Mode
from autonovel.maths.metrics import cluster_accuracy
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields
from autonovel.tuning.tasks import ProbeTask, hide


def attempt(task: ProbeTask, recipe: Recipe, seed: int, mode: Mode) -> dict[str, Any]:
    """Run the method on a task: accuracy on the probe images, of every head too, and what needs no labels."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Pipeline(task.data, recipe, task.n_new, seed, mode).run(Run(Path(folder) / "run"))
        seconds = time.perf_counter() - started
        net = restore(run, mode).net
        last = [
            m["losses"] for m in run.metrics if m["stage"].startswith("joint") and m["epoch"] == recipe.joint.epochs - 1
        ]
        losses = np.concatenate([np.atleast_1d(loss.get("new", 0.0)) for loss in last])
        answers = run.machine.group
    unlabelled = ~task.data.is_labelled
    images = resize(torch.from_numpy(task.data.images[unlabelled]), recipe.model.size)
    by_head = answers_by_head(net, images.to(mode.device))
    probe = task.probe[unlabelled]
    accuracy = [cluster_accuracy(task.classes, clusters[probe]) for clusters in by_head]
    with_others = agreement(by_head)
    return {
        "acc": cluster_accuracy(task.classes, answers[probe]),
        "acc_by_head": accuracy,
        "acc_lowest_loss": accuracy[int(losses.argmin())],
        "acc_most_agreeing": accuracy[int(np.argmax(with_others))],
        "agreement": float(np.mean(with_others)),
        "loss": float(losses.min()) * recipe.joint.swap.heads,
        "seconds": seconds,
    }


@torch.no_grad()
def answers_by_head(net: Net | Consensus, images: torch.Tensor) -> np.ndarray:
    """The cluster of every image according to each head of each network, (heads, n)."""
    nets = net.nets if isinstance(net, Consensus) else [net]
    found = [one.head("new", one.features(to_float(images))).argmax(2) for one in nets]
    return torch.cat(found).cpu().numpy()


def agreement(by_head: np.ndarray) -> list[float]:
    """For each head, the mean share of images on which it agrees with another head, clusters matched."""
    n = len(by_head)
    if n == 1:
        return [1.0]
    pairs = {(a, b): cluster_accuracy(by_head[a], by_head[b]) for a, b in itertools.combinations(range(n), 2)}
    return [float(np.mean([v for pair, v in pairs.items() if head in pair])) for head in range(n)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the settings of a recipe on known classes alone.")
    parser.add_argument("--recipe", default="digits", help="the recipe to start from")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=V,V", help="a field and its values (A+B=V)")
    parser.add_argument("--hide", nargs="+", default=["0,1", "2,3", "1,4"], help="probe classes of each task")
    parser.add_argument("--pile", type=int, default=0, help="keep the unlabelled images, which hold this many classes")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="append every run as a line of JSON to this file")
    options = parser.parse_args()
    data, _ = load_benchmark("digits", None)  # the truth of the unlabelled images is dropped here
    tasks = {text: hide(data, [int(c) for c in text.split(",")], options.pile) for text in options.hide}
    mode = Mode.of(options.device)
    for chosen in combinations(options.set):
        recipe = with_fields(get_recipe(options.recipe), chosen)
        runs = []
        for (text, task), seed in itertools.product(tasks.items(), options.seeds):
            found = attempt(task, recipe, seed, mode)
            runs.append(found)
            entry = {"settings": chosen, "hidden": text, "pile": options.pile, "seed": seed} | found
            if options.out:
                add_row(options.out, entry)
        print(f"{chosen or 'the recipe as it is'}: {_line(runs)}", flush=True)


def _line(runs: Sequence[dict[str, Any]]) -> str:
    acc = np.array([run["acc"] for run in runs])
    mean = {
        name: np.mean([run[name] for run in runs])
        for name in ("acc_lowest_loss", "acc_most_agreeing", "agreement", "loss", "seconds")
    }
    return (
        f"ACC mean {acc.mean():.3f} worst {acc.min():.3f} ({' '.join(f'{a:.3f}' for a in acc)}), head of lowest loss "
        f"{mean['acc_lowest_loss']:.3f}, most agreeing head {mean['acc_most_agreeing']:.3f}, agreement "
        f"{mean['agreement']:.3f}, loss {mean['loss']:.3f}, "
        f"{mean['seconds']:.0f} s a run"
    )


if __name__ == "__main__":
    main()
