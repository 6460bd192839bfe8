"""Ways to group a pile from features of a frozen network, compared on classes whose answer is known; JSON lines.

    python lab/features.py probes  FEATURES.npz ...     known classes treated as new: hidden ones are never looked at
    python lab/features.py mixed   FEATURES.npz ...     the same, with a third of the other known classes in the pile
    python lab/features.py number  FEATURES.npz ...     the same, the number counted; and groups for a wrong number
    python lab/features.py final   FEATURES.npz ...     the hidden classes, scored

An .npz file holds `features` (n, d), `labels` (n,) and `known` (n,), the mask of the labelled images. What needs no download has
a name in place of a file: `digits` (scikit-learn's, EfficientNet-Lite0 at 64 pixels), `digits-pixels`, `example` (the folder of
examples/make_folder.py, EfficientNet-Lite0 at 224 pixels).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from autonovel.answers.network import answer_together
from autonovel.answers.space import answer_from_features
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import ImageSet
from autonovel.data.loader import put_on
from autonovel.data.reading.inputs import open_input
from autonovel.machine.device import Mode
from autonovel.maths.confidence import expected_calibration_error, majority_right
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.wrong_number import merge_groups
from autonovel.maths.grouping import group_pile
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import find_groups, principal_axes, smooth, unit, whitening
from autonovel.maths.metrics import cluster_accuracy, joint_scores
from autonovel.maths.mixed import find_old
from autonovel.models.net import build
from autonovel.settings.recipe import Model

UNEVEN = (1.0, 0.7, 0.4, 0.2, 0.1)


class Problem(NamedTuple):
    """A pile with its answer; classes below `n_known` are known."""

    labelled: Tensor
    labels: Tensor
    pile: Tensor
    truth: Tensor
    n_known: int

    @property
    def n_new(self) -> int:
        return int(self.truth.max()) + 1 - self.n_known


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("probes", "mixed", "number", "final"))
    parser.add_argument("files", nargs="+", metavar="FILE", help=f"an .npz file, or {', '.join(PACKAGED)}")
    parser.add_argument("--problems", type=int, default=10, help="probe problems of a kind and file")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", type=int, default=0, help="another number makes other probe problems")
    parser.add_argument(
        "--uneven",
        type=float,
        nargs="*",
        metavar="SHARE",
        help="classes of the pile keep 1, 0.7, 0.4, 0.2 and 0.1, or these",
    )
    parser.add_argument("--commit", default="", help="of the code, to be written into every row")
    args = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    made = {"draw": args.draw, "commit": args.commit, "device": f"cpu: {threads} thread{'s' * (threads > 1)}"}
    do = {"probes": probes, "mixed": mixed, "number": number, "final": final}[args.what]
    for file in args.files:
        for row in do(*read(file), args):
            print(json.dumps({"what": args.what, "file": Path(file).stem, **row, **made}), flush=True)


# ------------------------------------------------------------------------------------------------ features


def read(file: str) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and the mask of the labelled images, from a file or of packaged data."""
    if file in PACKAGED:
        return PACKAGED[file]()
    with np.load(file, allow_pickle=False) as data:
        features, labels, known = (torch.from_numpy(data[name]) for name in ("features", "labels", "known"))
    return features.float(), labels.long(), known.bool()


def digits() -> tuple[Tensor, Tensor, Tensor]:
    data, truth = load_benchmark("digits", None)
    return described(data, 64), torch.from_numpy(truth.labels), torch.from_numpy(data.is_labelled)


def pixels_of_digits() -> tuple[Tensor, Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()  # 0 to 16, not brought to 255 and rounded
    labels = torch.from_numpy(found.target).long()
    return torch.from_numpy(found.data).float(), labels, labels < 5


def example() -> tuple[Tensor, Tensor, Tensor]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import make_folder

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder.make_folder(folder, EXAMPLE_IMAGES)
        given = open_input(folder / "labelled", folder / "unlabelled")
        data = given.load(size=224, cache=folder / "cache").images
        features = described(data, 224)
        with (folder / "truth.csv").open() as file:
            truth = {Path(row["path"]).name: row["label"] for row in csv.DictReader(file)}
    names = [*make_folder.KNOWN, *make_folder.NEW]
    kinds = [
        data.class_names[label] if label >= 0 else truth[Path(image).name]
        for label, image in zip(data.labels.tolist(), data.ids, strict=True)
    ]
    return features, torch.tensor([names.index(kind) for kind in kinds]), torch.from_numpy(data.is_labelled)


def described(data: ImageSet, side: int) -> Tensor:
    """Features of EfficientNet-Lite0, which is shown the images with this many pixels a side."""
    mode = Mode.of("cpu")
    net = build(Model(backbone="efficientnet-lite0", size=side), channels=data.channels, size=side)
    return answer_together(net, put_on(mode.device, data, size=side), mode).features


EXAMPLE_IMAGES = 60
"""Of each class of the example folder."""
PACKAGED = {"digits": digits, "digits-pixels": pixels_of_digits, "example": example}


# ------------------------------------------------------------------------------------------------ problems


def probe_problems(
    features: Tensor, labels: Tensor, known: Tensor, args: argparse.Namespace, hide: float = 0.0
) -> Iterator[tuple[str, Problem]]:
    """Some of the known classes taken for new, in their principal components; `hide` of the others' images in the pile."""
    features, labels = features[known], labels[known].unique(return_inverse=True)[1]
    axes = principal_axes(features)
    points = (unit(features) - axes.mean) @ axes.matrix
    n = int(labels.max()) + 1
    sizes = (1.0,) if args.uneven is None else tuple(args.uneven) or UNEVEN
    rng = np.random.default_rng(args.draw)
    kinds = [(n - 2, 2), (n - 3, 3)] if n < 8 else [(5, 5), (10, 10), (n - n // 4, n // 4)]
    for n_known, n_new in kinds:
        choices = list(combinations(range(n), n_new)) if n < 8 else [()] * args.problems
        rng.shuffle(choices)
        for choice in choices[: args.problems if n_known + n_new < 40 else max(2, args.problems // 3)]:
            new = rng.permutation(choice) if n < 8 else rng.permutation(n)[:n_new]
            rest = np.setdiff1d(np.arange(n), new)
            old = rest if n < 8 else rng.permutation(rest)[:n_known]
            yield f"{n_known}/{n_new}", cut(points, labels, old, new, rng, hide, sizes)


def cut(
    points: Tensor, labels: Tensor, old: Any, new: Any, rng: np.random.Generator, hide: float, sizes: tuple[float, ...]
) -> Problem:
    """The problem with these classes."""
    known, pile = [], []
    for number, label in enumerate([*old, *new]):
        members = rng.permutation(np.flatnonzero(labels.numpy() == label))
        if number < len(old):
            n_hidden = int(hide * len(members))
            known += [(i, number) for i in members[n_hidden:]]
            pile += [(i, number) for i in members[:n_hidden]]
        else:
            share = sizes[(number - len(old)) * (len(sizes) - 1) // max(1, len(new) - 1)] if len(sizes) > 1 else 1.0
            pile += [(i, number) for i in members[: max(3, round(share * len(members)))]]
    (i, a), (j, b) = (torch.tensor(np.array(part)).T for part in (known, pile))
    return Problem(points[i], a, points[j], b, len(old))


# ------------------------------------------------------------------------------------------------ ways


def whitened(problem: Problem) -> Tensor:
    both = torch.cat([problem.labelled, problem.pile])
    groups = torch.cat([problem.labels, torch.full((len(problem.pile),), -1)])
    return unit(problem.pile @ whitening(both, groups))


def ward(points: Tensor, k: int) -> Tensor:
    from scipy.cluster.hierarchy import fcluster, linkage

    return torch.from_numpy(fcluster(linkage(points.numpy(), "ward"), k, "maxclust") - 1).long()


WAYS: dict[str, Callable[[Problem], Tensor]] = {
    "k-means": lambda p: kmeans(p.pile, p.n_new).labels,
    "smoothed": lambda p: kmeans(smooth(unit(p.pile)), p.n_new).labels,
    "whitened": lambda p: kmeans(whitened(p), p.n_new).labels,
    "Ward": lambda p: ward(p.pile, p.n_new),
    "whitened, Ward": lambda p: ward(whitened(p), p.n_new),
    "whitened, smoothed": lambda p: find_groups(whitened(p), p.n_new),
    "twice": lambda p: group_pile(p.labelled, p.labels, p.pile, p.n_new, link=False, runs=0).labels,
    "twice, voted": lambda p: group_pile(p.labelled, p.labels, p.pile, p.n_new, link=False).labels,
    "twice, linked, voted": lambda p: group_pile(p.labelled, p.labels, p.pile, p.n_new).labels,
}


def accuracy(truth: Tensor, found: Tensor) -> float:
    return 100 * cluster_accuracy(truth.numpy(), found.numpy())


def probes(features: Tensor, labels: Tensor, known: Tensor, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    scores: dict[str, dict[str, list[float]]] = {}
    for kind, problem in probe_problems(features, labels, known, args):
        for name, way in WAYS.items():
            scores.setdefault(kind, {}).setdefault(name, []).append(accuracy(problem.truth, way(problem)))
    for kind, ways in scores.items():
        base = np.array(ways["k-means"])
        for name, values in ways.items():
            gain = np.array(values) - base
            yield {
                "kind": kind, "uneven": args.uneven, "way": name, "problems": len(base), "acc": round(np.mean(values), 2),
                "std": round(np.std(values), 2), "gain": round(gain.mean(), 2), "worst": round(gain.min(), 1),
                "worse_by_a_point": round((gain < -1).mean(), 3), "better_by_a_point": round((gain > 1).mean(), 3),
            }  # fmt: skip


def mixed(features: Tensor, labels: Tensor, known: Tensor, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for hide in (0.0, 0.1, 0.3, 0.5):
        found: dict[str, list[tuple[float, ...]]] = {}
        for kind, problem in probe_problems(features, labels, known, args, hide):
            old = find_old(problem.labelled, problem.labels, problem.pile)
            is_old = problem.truth < problem.n_known
            recall = old.is_old[is_old].float().mean().item() if hide else float("nan")
            alarm = old.is_old[~is_old].float().mean().item()
            new = ~is_old
            alone = group_pile(problem.labelled, problem.labels, problem.pile[new], problem.n_new).labels
            chosen = ~old.is_old
            answer = torch.zeros_like(problem.truth)
            enough = int(chosen.sum()) >= problem.n_new
            if hide and enough:
                groups = group_pile(problem.labelled, problem.labels, problem.pile[chosen], problem.n_new).labels
                answer[chosen] = groups + problem.n_known
            acc = (
                100 * joint_scores(problem.truth.numpy(), answer.numpy(), problem.n_known)["fixed"]["new"]
                if hide
                else 0.0
            )
            share = is_old.float().mean().item()
            row = (
                share,
                old.share,
                old.leak or 0.0,
                float(old.mixed),
                recall,
                alarm,
                acc,
                accuracy(problem.truth[new], alone),
            )
            found.setdefault(kind, []).append(row)
        names = ("share", "estimated", "leak", "says_mixed", "old_as_old", "new_as_old", "new_acc", "new_acc_unmixed")
        for kind, rows in found.items():
            means = {
                name: None if np.isnan(mean) else mean
                for name, mean in zip(names, np.mean(rows, 0).round(3).tolist(), strict=True)
            }
            yield {"kind": kind, "hidden": hide, "problems": len(rows), **means}


def number(features: Tensor, labels: Tensor, known: Tensor, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for kind, problem in probe_problems(features, labels, known, args):
        k = problem.n_new
        count = estimate_classes(problem.labelled, problem.labels, problem.pile, method="judges", max_new=4 * k)
        right = group_pile(problem.labelled, problem.labels, problem.pile, k).labels
        twice = group_pile(problem.labelled, problem.labels, problem.pile, 2 * k)
        points = unit(problem.pile @ twice.matrix)
        joined = {m: merge_groups(points, twice.labels, 2 * k, m)[twice.labels] for m in {k, min(2 * k, count.n_new)}}
        yield {
            "kind": kind, "true": k, "counted": count.n_new, "answers": count.answers, "interval": count.interval,
            "acc": round(accuracy(problem.truth, right), 2), "acc_twice": round(accuracy(problem.truth, twice.labels), 2),
            "acc_merged": round(accuracy(problem.truth, joined[k]), 2),
            "acc_merged_to_count": round(accuracy(problem.truth, joined[min(2 * k, count.n_new)]), 2),
        }  # fmt: skip


def final(features: Tensor, labels: Tensor, known: Tensor, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    labelled, pile = features[known], features[~known]
    names, truth = labels[~known].unique(return_inverse=True)
    given = labels[known].unique(return_inverse=True)[1]
    n_known, n_new = int(given.max()) + 1, len(names)
    for seed in range(args.seeds):
        start = time.perf_counter()
        answer = answer_from_features(labelled, given, pile, n_new, seed=seed)
        seconds = time.perf_counter() - start
        groups = answer.labels - n_known
        right = majority_right(answer.labels, truth, n_known + n_new)
        yield {
            "seed": seed, "images": len(pile), "n_new": n_new,
            "k-means": accuracy(truth, kmeans(unit(pile), n_new, seed=seed).labels),
            "acc": accuracy(truth, groups), "method": answer.method, "seconds": round(seconds, 1),
            "counted": answer.count and answer.count.n_new, "judges": answer.count and answer.count.answers,
            "interval": answer.count and answer.count.interval, "said_old": int(answer.is_old.sum()),
            "calibration_error": round(expected_calibration_error(answer.probabilities.amax(1), right), 4),
            "promised": (answer.how_sure["new"] or {}).get("calibration_error"), "stability": answer.how_sure["stability"],
            "known_problems": answer.how_sure["known_problems"], "unlike": int(answer.unlike.sum()), "notes": answer.notes,
            "model_agrees": (answer.model.probabilities(pile)[:, n_known:].argmax(1) == groups).float().mean().item(),
        }  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
