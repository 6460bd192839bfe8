"""Compare settings of joint training, or of the first stage, on OmniGlot, on known alphabets.

    python lab/tune_omniglot.py --root DATA --work RUNS --set joint.top_k=3,5,10 --out tune-omniglot.jsonl
    python lab/tune_omniglot.py --root DATA --work RUNS --first-stage --set pretrain.turns=False,True --out ...

The evaluation alphabets may choose nothing. The five known alphabets that pre-training leaves out can: each in turn is the
pile, with all other known characters labelled, and is scored by its own labels. The first stage is trained once, in
RUNS/counting, as `lab/omniglot.py` does with the same ``--work``. With ``--first-stage`` it is trained once for every
setting, in RUNS/first-N, and k-means on its features is scored (the mean of five starts), as are groups in the space that the
other known characters teach. Adds a line of JSON for each run.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from common import Log, add_row, brief, combinations, say, with_epochs
from omniglot import features_of, grouped_accuracy, kmeans_accuracy

from autonovel.data.benchmarks.alphabets import PROBE_ALPHABETS, classes_by_alphabet
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import put_on
from autonovel.discovery.prepare import Pipeline
from autonovel.discovery.resume import config_of
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields
from autonovel.tuning.tasks import hide

KMEANS_STARTS = 5
"""Seeds of k-means over which the score of a first stage is averaged."""


def as_pile(images: ImageSet, classes: list[int]) -> tuple[ImageSet, Truth]:
    """The known images, those of some classes without their labels; and the truth about them."""
    task = hide(images, classes)
    labels = task.data.labels.copy()
    labels[task.probe] = task.data.n_known + np.searchsorted(np.sort(classes), task.classes)
    return task.data, Truth(labels, (*task.data.class_names, *task.hidden))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="file to add a line of JSON to for every run")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=V,V", help="a field and its values (A+B=V)")
    parser.add_argument(
        "--base", nargs="+", default=[], metavar="PATH=V", help="fields of all runs and the first stage"
    )
    parser.add_argument("--first-stage", action="store_true", help="compare settings of pretrain, by k-means")
    parser.add_argument("--alphabets", nargs="+", default=PROBE_ALPHABETS, choices=PROBE_ALPHABETS)
    parser.add_argument("--recipe", default="omniglot", choices=("omniglot", "characters"))
    parser.add_argument("--preset", default="reference")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--together", type=int, default=10, help="runs at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, nargs=3, help="pretrain, supervised, joint: to try the script")
    parser.add_argument("--commit", default="")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    images, _ = load_benchmark("omniglot", args.root, unverified=args.unverified)
    base = with_fields(with_epochs(get_recipe(args.recipe, args.preset), args.epochs), combinations(args.base)[0])
    base = replace(base, estimate=replace(base.estimate, probe_families=PROBE_ALPHABETS))
    # as in omniglot.py: what would be compiled anew for every number of characters is not
    mode = replace(Mode.of(args.device), compile_from=0.0, compile_losses=False)
    alphabets = classes_by_alphabet(images.class_names)
    settings = combinations(args.set)

    def first_stage(recipe: Recipe, name: str) -> Run:
        """As if the number of characters was to be estimated: then the first stage leaves these alphabets out."""
        pipeline = Pipeline(images, recipe, None, args.seed, mode, Log(name, 25))
        return pipeline.run(Run(args.work / name), until="pretrain")

    def compare(number: int, chosen: dict[str, Any]) -> None:
        recipe = with_fields(base, chosen)
        run = first_stage(recipe, f"first-{number}")
        shown = put_on(mode.device, images, size=recipe.model.size)
        places = {name: np.flatnonzero(np.isin(images.labels, alphabets[name])) for name in args.alphabets}
        probes = np.isin(images.labels, [c for name in PROBE_ALPHABETS for c in alphabets.get(name, [])])
        others = np.flatnonzero(images.is_labelled & ~probes)
        features = features_of(run, "pretrain", recipe.model, shown, places | {"others": others}, mode)
        found = {
            name: [kmeans_accuracy(features[name], images.labels[at], seed, mode) for seed in range(KMEANS_STARTS)]
            for name, at in places.items()
        }
        mean = float(np.mean([np.mean(each) for each in found.values()]))
        groups = {
            name: grouped_accuracy(
                features["others"],
                images.labels[others],
                features[name],
                images.labels[at],
                len(alphabets[name]),
                args.seed,
                mode,
            )
            for name, at in places.items()
        }
        in_groups = float(np.mean(list(groups.values())))
        seconds = round(sum(line["seconds"] for line in run.metrics), 1)
        row = {"stage": "pretrain", "settings": chosen, "kmeans": mean, "kmeans_by_alphabet": found, "seed": args.seed}
        row |= {"groups": in_groups, "groups_by_alphabet": groups}
        add_row(args.out, row | {"seconds": seconds, "commit": args.commit, "date": str(date.today())})
        say(f"RESULT first stage {chosen or 'as it is'}: k-means {mean:.4f}, groups {in_groups:.4f}, {seconds} s")

    if args.first_stage:
        jobs = [lambda n=number, c=chosen: compare(n, c) for number, chosen in enumerate(settings)]
        side_by_side(jobs, at_once=args.together)
        return
    state, about = first_stage(base, "counting").read_tensors("pretrain.safetensors")

    def attempt(number: int, chosen: dict[str, Any], alphabet: str) -> float:
        own_images, own_truth = as_pile(images, alphabets[alphabet])
        recipe, classes = with_fields(base, chosen), len(alphabets[alphabet])
        pipeline = Pipeline(own_images, recipe, classes, args.seed, mode, Log(f"{chosen} {alphabet}", 25))
        run = Run(args.work / f"probe-{number}-{alphabet}")
        # put there by hand: the first stage saw other labelled images, but none of this alphabet
        with run.claim(config_of(own_images, pipeline.recipe, classes, args.seed)):
            run.write_tensors("pretrain.safetensors", state, about)
        summary = brief(pipeline.run(run, truth=own_truth).summary)
        row = {"alphabet": alphabet, "settings": chosen, "commit": args.commit, "date": str(date.today())}
        add_row(args.out, row | summary)
        say(f"RESULT {chosen} {alphabet}: {summary['acc_new']:.4f}")
        return float(summary["acc_new"])

    tasks = [(number, alphabet) for number in range(len(settings)) for alphabet in args.alphabets]
    jobs = [lambda n=number, a=alphabet: attempt(n, settings[n], a) for number, alphabet in tasks]
    found = np.reshape(side_by_side(jobs, at_once=args.together), (len(settings), len(args.alphabets)))
    for chosen, accuracies in zip(settings, found, strict=True):
        each = " ".join(f"{acc:.3f}" for acc in accuracies)
        say(f"{chosen or 'the recipe as it is'}: ACC mean {accuracies.mean():.3f} ({each})")


if __name__ == "__main__":
    main()
