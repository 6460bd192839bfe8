"""The paper's OmniGlot experiments: one network for all, then each evaluation alphabet is a discovery of its own.

    python lab/omniglot.py --root DATA --work RUNS --commit HASH

The first stages see labelled images alone, so they are trained once, and once more without the alphabets from which the
estimate learns. Every alphabet then gets its number of characters
estimated (Algorithm 1 as in the text and as the authors ran it; calibrated, also with uneven classes), and is trained
jointly with all known characters twice: with the true number and with the estimate of the recipe. Estimates are made in
processes on the CPU while the GPU trains. Recipe `characters` has no joint training: there both answers are groups in the space
that known characters teach. Adds a line per alphabet to lab/rows/omniglot.jsonl and prints the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Log, add_row, combinations, say, with_epochs

from autonovel.answers.network import answer
from autonovel.answers.space import answer_from_features
from autonovel.base.chance import host_generator
from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS, PROBE_ALPHABETS, classes_by_alphabet
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import Images, put_on
from autonovel.discovery.prepare import Pipeline
from autonovel.machine.capture import not_captured
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy
from autonovel.models.net import build
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Estimate, Model
from autonovel.settings.recipes import get_recipe, with_fields

PAPER = dict(
    zip(
        EVALUATION_ALPHABETS,
        (23, 25, 34, 34, 31, 31, 46, 34, 40, 25, 42, 39, 33, 51, 33, 22, 26, 28, 43, 33),
        strict=True,
    )
)
"""The estimates of the paper's table."""

SIZES = (5, 20)
"""Drawings of a character where its number is drawn at random."""


def ways_to_count() -> dict[str, tuple[Estimate, bool]]:
    """Name -> settings, and whether the characters of the pile get uneven numbers of drawings."""
    calibrated = Estimate(method="calibrated")
    return {
        "text": (replace(get_recipe("omniglot", "paper").estimate, method="paper"), False),
        "reference": (replace(get_recipe("omniglot", "reference").estimate, method="paper"), False),
        "calibrated": (calibrated, False),
        "calibrated_uneven": (calibrated, True),
        "calibrated_uneven_range": (replace(calibrated, size_range=SIZES), True),
    }


def count(probes: list[Any], pile: Any, uneven: Any, seed: int, ways: list[str]) -> dict[str, Any]:
    """These estimates for one alphabet; runs in a process of its own. A way that fails leaves its reason."""
    torch.set_num_threads(1)
    features, labels, groups = probes
    found: dict[str, Any] = {}
    for name in ways:
        settings, is_uneven = ways_to_count()[name]
        started = time.perf_counter()
        points = uneven if is_uneven else pile
        try:
            result = estimate_classes(
                features,
                labels,
                points,
                max_new=min(100, len(points) // 2),
                method=settings.method,
                coverage=settings.coverage,
                size_range=settings.size_range,
                reading=settings.reading,
                anchor_share=settings.anchor_share,
                outlier_threshold=settings.outlier_threshold,
                seed=seed,
                probe_groups=groups,
            )
            found[name] = {"n_new": result.n_new, "interval": result.interval, "answers": result.answers}
        except Exception as error:
            found[name] = {"failed": repr(error)}
        found[name]["seconds"] = round(time.perf_counter() - started, 2)
    return found


def one_alphabet(images: ImageSet, truth: Truth, classes: list[int]) -> tuple[ImageSet, Truth]:
    """All known characters, and those of one alphabet as the pile."""
    keep = np.flatnonzero(images.is_labelled | np.isin(truth.labels, classes))
    number = np.arange(len(truth.class_names))
    number[classes] = images.n_known + np.arange(len(classes))
    names = (*images.class_names, *(truth.class_names[c] for c in classes))
    return images.subset(keep), Truth(number[truth.labels[keep]], names)


def thin_out(labels: Any, *key: object) -> Any:
    """Places that leave every class a number of points drawn from `SIZES`."""
    generator = host_generator(*key)
    keep = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        wanted = int(torch.randint(SIZES[0], SIZES[1] + 1, (), generator=generator))
        keep.append(members[torch.randperm(len(members), generator=generator)[:wanted].numpy()])
    return np.concatenate(keep)


def features_of(
    run: Run, stage: str, model: Model, images: Images, places: dict[str, Any], mode: Mode
) -> dict[str, Any]:
    """What the network of a stage makes of the images at the places of each alphabet: float32 (n, d) by name."""
    state = run.read_tensors(f"{stage}.safetensors")[0]
    net = build(model, channels=state["mean"].numel(), size=model.size).to(mode.device)
    net.load_state_dict({name: value for name, value in state.items() if not name.startswith("heads.")})
    return {name: answer(net, images.chunks(at), mode).features.numpy() for name, at in places.items()}


def kmeans_accuracy(features: Any, labels: Any, seed: int, mode: Mode) -> float:
    """ACC of k-means with the true number of classes."""
    points = torch.from_numpy(features).to(mode.device)
    with not_captured(mode.device):
        found = kmeans(points, len(np.unique(labels)), seed=seed).labels.cpu().numpy()
    return cluster_accuracy(labels, found)


def grouped_accuracy(known: Any, labels: Any, pile: Any, truth: Any, k: int, seed: int, mode: Mode) -> float:
    """ACC of `k` groups of the features `pile`, in the space that features of known characters teach."""
    number = np.unique(labels, return_inverse=True)[1]
    own, numbers, points = (torch.from_numpy(part).to(mode.device) for part in (known, number, pile))
    with not_captured(mode.device):
        found = answer_from_features(
            own, numbers, points, k, pile_kind="new", check_number=False, trained=True, seed=seed
        )
    return cluster_accuracy(truth, found.labels.cpu().numpy())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("lab/rows/omniglot.jsonl"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--recipe", default="omniglot", choices=("omniglot", "characters"))
    parser.add_argument("--preset", default="reference", help="of the recipe that trains")
    parser.add_argument("--set", nargs="+", default=[], metavar="PATH=V", help="fields of that recipe")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--together", type=int, default=8, help="alphabets that train at the same time")
    parser.add_argument(
        "--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4), help="processes that estimate"
    )
    ways = list(ways_to_count())
    parser.add_argument("--ways", nargs="+", default=ways, choices=ways, help="to estimate the number")
    parser.add_argument("--estimates", type=Path, help="results of an earlier run whose estimates are taken over")
    parser.add_argument("--stop-after", choices=("features", "estimates"), help="leave out the rest")
    parser.add_argument("--alphabets", nargs="+", default=EVALUATION_ALPHABETS)
    parser.add_argument(
        "--groups", action="store_true", help="also group the features in the space that known characters teach"
    )
    parser.add_argument("--numbers", choices=("both", "true", "estimated"), default="both", help="to train with")
    parser.add_argument("--epochs", type=int, nargs=3, help="pretrain, supervised, joint: to try the script")
    parser.add_argument("--drawings", type=int, help="only this many of each character: to try the script")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # for runs side by side, before CUDA is first used

    began = time.perf_counter()
    images, truth = load_benchmark("omniglot", args.root, unverified=args.unverified)
    if args.drawings:
        keep = np.flatnonzero(np.arange(len(images)) % 20 < args.drawings)
        images, truth = images.subset(keep), replace(truth, labels=truth.labels[keep])
    say(f"{len(images)} images read")
    [chosen] = combinations(args.set)  # one value each
    recipe = with_fields(with_epochs(get_recipe(args.recipe, args.preset), args.epochs), chosen)
    recipe = replace(recipe, estimate=replace(recipe.estimate, probe_families=PROBE_ALPHABETS))
    joint = recipe.joint.objective != "none"
    # the first half of a step is the same for all alphabets; the second would be compiled for every number of characters
    mode = replace(Mode.of(args.device), compile_from=0.0, compile_losses=False)
    alphabets = classes_by_alphabet(truth.class_names)
    n_new = len(truth.class_names) - images.n_known

    # as the authors ran it there is no supervised stage
    stages = ("pretrain", "supervised") if recipe.supervised.epochs else ("pretrain",)

    def first_stages(name: str, number: int | None, until: str) -> Run:
        pipeline = Pipeline(images, recipe, number, args.seed, mode, Log(name, 25))
        return pipeline.run(Run(args.work / name), until=until)

    # where the number is given all known characters train; the estimate learns from alphabets that its network has not seen
    start, counting = side_by_side(
        [lambda: first_stages("start", n_new, stages[-1]), lambda: first_stages("counting", None, "pretrain")],
        at_once=2,
    )
    wanted = [name for name in (*PROBE_ALPHABETS, *args.alphabets) if name in alphabets]
    shown = put_on(mode.device, images, size=recipe.model.size)

    places = {name: np.flatnonzero(np.isin(truth.labels, alphabets[name])) for name in wanted}
    features = {stage: features_of(start, stage, recipe.model, shown, places, mode) for stage in stages}
    counted = features_of(counting, "pretrain", recipe.model, shown, places, mode)
    own_labels = {name: truth.labels[at] for name, at in places.items()}
    np.savez_compressed(
        args.work / "features.npz",
        features=np.concatenate([counted[name] for name in wanted]).astype(np.float16),
        labels=np.concatenate([own_labels[name] for name in wanted]),
        alphabet=np.repeat(wanted, [len(own_labels[name]) for name in wanted]),
    )
    probes = [
        np.concatenate([counted[name] for name in PROBE_ALPHABETS]),
        np.concatenate([own_labels[name] for name in PROBE_ALPHABETS]),
        np.repeat(np.arange(len(PROBE_ALPHABETS)), [len(own_labels[name]) for name in PROBE_ALPHABETS]),
    ]
    say(f"first stages and features after {time.perf_counter() - began:.0f} s")
    if args.stop_after == "features":
        return

    def attempt(name: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception:
            say(f"FAILED {name}\n{traceback.format_exc()}")
            return None

    known = {"known": np.flatnonzero(images.is_labelled)} if args.groups or not joint else {}
    labels = images.labels[images.is_labelled]
    # a run that estimates the number has no other network than the one that left alphabets out
    taught = {
        "start": (features_of(start, stages[-1], recipe.model, shown, known, mode), features[stages[-1]]),
        "counting": (features_of(counting, "pretrain", recipe.model, shown, known, mode), counted),
    }

    def grouped(name: str, network: str, n: int) -> float:
        own, piles = taught[network]
        acc = grouped_accuracy(own["known"], labels, piles[name], own_labels[name], n, args.seed, mode)
        say(f"RESULT groups {name}-{n} acc {acc:.4f}")
        return acc

    def work(name: str, estimates: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        own_images, own_truth = one_alphabet(images, truth, alphabets[name])
        true = len(alphabets[name])

        def accuracy(n: int) -> float:
            label = f"{name}-{n}"
            pipeline = Pipeline(own_images, recipe, n, args.seed, mode, Log(label, 25))
            run = pipeline.run(Run(args.work / label), truth=own_truth, start_from=start)
            say(f"RESULT {label} acc {run.summary['acc_new']:.4f}")
            return float(run.summary["acc_new"])

        row: dict[str, Any] = {"alphabet": name, "n_true": true, "n_paper": PAPER[name]}
        row["kmeans"] = {
            stage: attempt(name, lambda f=found[name]: kmeans_accuracy(f, own_labels[name], args.seed, mode))
            for stage, found in features.items()
        }
        row["groups"] = attempt(name, lambda: grouped(name, "start", true)) if known else None
        train = args.stop_after is None and joint
        row["acc_true"] = attempt(name, lambda: accuracy(true)) if train and args.numbers != "estimated" else None
        row["estimates"] = attempt(name, estimates) or {}
        # the name that the recipe's own estimator has among the ways
        way = {"paper": "reference" if args.preset == "reference" else "text"}.get(recipe.estimate.method, "calibrated")
        estimated = row["estimates"].get(way, {}).get("n_new")
        row |= {"estimator": way, "n_estimated": estimated, "acc_estimated": None}
        if not joint:
            row["acc_true"] = row["groups"]
            if estimated is not None:
                row["acc_estimated"] = attempt(name, lambda: grouped(name, "counting", max(2, estimated)))
        elif estimated is not None and train and args.numbers != "true":
            row["acc_estimated"] = row["acc_true"] if estimated == true else None
            if row["acc_estimated"] is None:
                row["acc_estimated"] = attempt(name, lambda: accuracy(max(2, estimated)))
        row |= {"seconds": round(time.perf_counter() - started, 1), "together": args.together}
        row |= {
            "recipe": args.recipe,
            "preset": args.preset,
            "changed": args.set,
            "epochs": [getattr(recipe, s).epochs for s in ("pretrain", "supervised", "joint")],
        }
        device = torch.cuda.get_device_name() if mode.device.type == "cuda" else "cpu"
        row |= {"seed": args.seed, "device": device, "commit": args.commit, "date": str(date.today())}
        row |= {"estimates_from": args.estimates.name} if args.estimates else {}
        add_row(args.results, row)
        return row

    estimates: dict[str, Callable[[], dict[str, Any]]] = {}
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        if args.estimates:
            kept = [json.loads(line) for line in args.estimates.read_text().splitlines()]
            this_run = (args.seed, args.recipe, args.preset, args.set)
            same = [
                r
                for r in kept
                if (r["seed"], r.get("recipe", "omniglot"), r["preset"], r.get("changed", [])) == this_run
            ]
            estimates = {r["alphabet"]: lambda e=r["estimates"]: e for r in same}
        for name in args.alphabets if not args.estimates else ():
            uneven = thin_out(own_labels[name], args.seed, "sizes", name)
            pile = counted[name]
            estimates[name] = pool.submit(count, probes, pile, pile[uneven], args.seed, args.ways).result
        jobs = [lambda n=name: attempt(n, lambda: work(n, estimates[n])) for name in args.alphabets]
        rows = [row for row in side_by_side(jobs, at_once=args.together) if row]
    show(rows)
    say(f"ALL DONE after {time.perf_counter() - began:.0f} s")


def show(rows: list[dict[str, Any]]) -> None:
    """The paper's table, with the errors and accuracies averaged below."""
    ways = list(ways_to_count())
    print(" ".join([f"{'alphabet':<31}", "true", "paper", *ways, "acc_true", "acc_estimated", "kmeans"]))
    errors: dict[str, list[int]] = {way: [] for way in ("paper", *ways)}
    inside: dict[str, list[bool]] = {way: [] for way in ways}
    for row in rows:
        cells = [f"{row['alphabet']:<31}", f"{row['n_true']:>4}", f"{row['n_paper']:>5}"]
        errors["paper"].append(abs(row["n_paper"] - row["n_true"]))
        for way in ways:
            found = row["estimates"].get(way, {})
            cells.append(f"{found.get('n_new', '-')!s:>{len(way)}}")
            if "n_new" in found:
                errors[way].append(abs(found["n_new"] - row["n_true"]))
                if found["interval"] is not None:
                    inside[way].append(found["interval"][0] <= row["n_true"] <= found["interval"][1])
        cells += [f"{_percent(row[part]):>{len(part)}}" for part in ("acc_true", "acc_estimated")]
        print(" ".join([*cells, _percent(row["kmeans"]["pretrain"])]))
    for way, values in errors.items():
        if values:
            held = f", interval holds the truth {np.mean(inside[way]):.0%}" if inside.get(way) else ""
            print(f"average error, {way}: {np.mean(values):.2f} over {len(values)}{held}")
    for part in ("acc_true", "acc_estimated", "groups"):
        values = [row[part] for row in rows if row[part] is not None]
        print(f"{part}: {_percent(np.mean(values)) if values else '-'} over {len(values)}")
    for stage in rows[0]["kmeans"] if rows else ():
        values = [row["kmeans"][stage] for row in rows if row["kmeans"][stage] is not None]
        print(f"k-means on {stage} features: {_percent(np.mean(values)) if values else '-'} over {len(values)}")


def _percent(value: Any) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


if __name__ == "__main__":
    main()
