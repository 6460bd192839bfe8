"""Compare settings of the unsupervised mode on known classes of CIFAR-100.

    python lab/tune_cluster.py --root DATA --start RUNS/paper-cifar100-start --set joint.objective=pairs,swap
    python lab/tune_cluster.py --root DATA --starts STARTS --recipe cluster-neighbours --set joint.neighbours.nearest=5,20

CIFAR-10 has no known classes here, so its labels may choose nothing. A task is a draw of known classes of CIFAR-100,
clustered without their labels and scored with them; all tasks start from the first stage of the run in ``--start``, which has
seen no label, or from their own, which is trained once and kept in ``--starts``. Draws have a tenth of the images of CIFAR-10:
``--stretch 10`` gives joint training as many steps as it has there. ``--fresh layer4`` forgets what that block learned in the
first stage. ``--set method=kmeans`` is k-means on the first stage.
docs/cluster.md holds what was found.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Log, add_row, brief, combinations

from autonovel.base.chance import make_key, seeded
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import UNKNOWN, ImageSet, Truth
from autonovel.discovery.prepare import Pipeline
from autonovel.discovery.resume import config_of
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.models.net import build
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields


def draw_classes(data: ImageSet, classes: int, draw: int) -> tuple[ImageSet, Truth]:
    """The images of some known classes without their labels, and the labels apart."""
    chosen = np.sort(np.random.default_rng(draw).permutation(data.n_known)[:classes])
    part = data.subset(np.isin(data.labels, chosen))
    truth = Truth(np.searchsorted(chosen, part.labels), tuple(data.class_names[c] for c in chosen))
    return replace(part, labels=np.full_like(part.labels, UNKNOWN), class_names=()), truth


def stretched(recipe: Recipe, factor: int) -> Recipe:
    """The recipe with so many times the epochs of joint training; its schedule keeps its shape."""
    joint = recipe.joint
    milestones = tuple(factor * m for m in joint.milestones)
    return replace(
        recipe,
        joint=replace(joint, epochs=factor * joint.epochs, ramp=factor * joint.ramp, milestones=milestones),
    )


def first_stage(pipeline: Pipeline, folder: Path, name: str) -> Run:
    """A run that has the first stage of this pipeline; what comes after it may differ, so it is named by what it depends on."""
    run = Run(folder / f"{name}-{make_key(pipeline.recipe.model, pipeline.recipe.pretrain)}")
    return run if run.has("pretrain.safetensors") else pipeline.run(run, until="pretrain")


def with_fresh_block(state: dict[str, torch.Tensor], block: str, recipe: Recipe, data: ImageSet, seed: int) -> Any:
    """The weights of a first stage, but for those of one block, which are drawn again."""
    with seeded(seed, "fresh", block):
        drawn = build(recipe.model, channels=data.channels, size=recipe.model.size or data.images.shape[1]).state_dict()
    again = {name: value for name, value in drawn.items() if block in name.split(".")}
    if not again.keys() <= state.keys() or not again:
        raise SystemExit(f"The network has no block {block}.")
    return state | again


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--recipe", default="cluster")
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--start", type=Path, help="a run of recipe cifar100 with its rotation network")
    start.add_argument(
        "--starts", type=Path, help="a folder for the first stage of each draw, trained where it is missing"
    )
    parser.add_argument("--set", action="append", default=[], metavar="PATH=V,V", help="a field and its values (A+B=V)")
    parser.add_argument("--fresh", metavar="BLOCK", help="with --start: draw the weights of this block again")
    parser.add_argument("--unverified", action="store_true")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--stretch", type=int, default=1, help="so many times the epochs, ramp and milestones")
    parser.add_argument("--together", type=int, default=3, help="runs at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", default="")
    parser.add_argument("--out", type=Path, help="append every run as a line of JSON to this file")
    args = parser.parse_args(arguments)
    # the truth about the unlabelled images is dropped here
    data, _ = load_benchmark("cifar100", args.root, unverified=args.unverified)
    mode = Mode.of(args.device)

    def attempt(chosen: dict[str, Any], draw: int, seed: int) -> float:
        images, truth = draw_classes(data, args.classes, draw)
        recipe = get_recipe(args.recipe)
        # the network of the rotation run, whatever the number of images
        recipe = replace(stretched(recipe, args.stretch), model=get_recipe("cifar100").model)
        recipe = with_fields(recipe, chosen)
        with tempfile.TemporaryDirectory() as folder:
            pipeline = Pipeline(images, recipe, args.classes, seed, mode, Log(f"{chosen} {draw}", 100))
            run = Run(Path(folder) / "run")
            if args.starts:
                pipeline.run(run, truth=truth, start_from=first_stage(pipeline, args.starts, f"draw{draw}-seed{seed}"))
            else:
                state, about = Run(args.start).read_tensors("pretrain.safetensors")
                if args.fresh:
                    state = with_fresh_block(state, args.fresh, pipeline.recipe, images, seed)
                # put there by hand: rotation saw more images than these
                with run.claim(config_of(images, pipeline.recipe, args.classes, seed)):
                    run.write_tensors("pretrain.safetensors", state, about)
                pipeline.run(run, truth=truth)
            summary = brief(run.summary)
        row: dict[str, Any] = {
            "recipe": args.recipe,
            "settings": chosen,
            "fresh": args.fresh,
            "draw": draw,
            "stretch": args.stretch,
        }
        row |= {"commit": args.commit, "date": str(date.today())} | summary
        if args.out:
            add_row(args.out, row)
        return float(summary["acc_new"])

    for chosen in combinations(args.set):
        tasks = list(itertools.product(args.draws, args.seeds))
        jobs = [lambda c=chosen, d=draw, s=seed: attempt(c, d, s) for draw, seed in tasks]
        found = side_by_side(jobs, at_once=args.together)
        each = " ".join(f"{acc:.3f}" for acc in found)
        print(f"RESULT {chosen or 'the recipe as it is'}: ACC mean {np.mean(found):.3f} ({each})", flush=True)


if __name__ == "__main__":
    main()
