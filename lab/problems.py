"""Known classes taken for new ones, many draws of every kind of problem: the package's answer beside the usual ones.

    python lab/problems.py photos/tiny photos/birds --draws 20 --results rows.jsonl

Features of a pre-trained network are computed once for each source (any of lab/tasks.py that has known classes) and kept in
the cache folder; `features.npz` with features, labels and known is taken as it is. Every draw takes other classes. The others
are told the right number of classes, as the package is in column `autonovel`; in column `counted` it counts itself. Accuracy
counts images of known classes in the pile as right under their own name only. A table by kind closes the work: mean and worst.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from compare import commit
from pages import Row, problems_table
from tasks import Pile, changed, read
from torch import Tensor

from autonovel.answers.census import Census, take_census
from autonovel.answers.network import answer_together
from autonovel.answers.space import answer_in_space
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.data.loader import put_on
from autonovel.discovery.prepare import facts_of
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.maths.confidence import reliability
from autonovel.maths.kmeans import kmeans
from autonovel.maths.known_space import group_means, unit
from autonovel.maths.metrics import cluster_accuracy, right_answers
from autonovel.models.net import build
from autonovel.settings.resolve import Asked, is_pretrained, resolve

KINDS = {
    "even": "hide=10 left=10",
    "uneven": "hide=10 left=10 uneven=15",
    "mild": "hide=10 left=10 uneven=2.5",
    "few known": "hide=5 left=3",
    "many": "hide=20 left=20",
    "five uneven": "hide=5 left=10 uneven=15",
    "mixed": "hide=10 left=10 mixed=0.33",
}
"""Kinds of problem, as steps of a task; one that a source has too few classes for is left out."""

MOST = 150
"""Images of a class."""


def described(pile: Pile, values: Mapping[str, Any]) -> tuple[Pile, str]:
    """The pile with features in place of pixels, and the network they come from: the recipe's own where values say nothing."""
    mode, data = Mode.of("auto"), ImageSet.from_arrays(pile.images)
    model = resolve(Asked(values=values), facts_of(data, None, mode)).recipe.model
    if not is_pretrained(model.backbone):
        raise InputError(f"No pre-trained network suits images of {pile.images.shape[1]} pixels; give --backbone.")
    net = build(model, channels=data.channels, size=model.size)
    shown = put_on(mode.device, data, size=model.size)
    found = answer_together(net, shown, mode, cache=user_cache() / "features").features
    return replace(pile, images=found.float().cpu().numpy()), f"{model.backbone} at {model.size} pixels"


def read_features(source: str, root: Path | None, values: Mapping[str, Any]) -> tuple[Pile, str]:
    """A source with features, all of its known classes, and where these come from."""
    if source.endswith(".npz"):
        with np.load(source, allow_pickle=False) as file:
            if "features" in file:
                known = file["known"].astype(bool)
                names, classes = np.unique(file["labels"][known], return_inverse=True)
                shown = np.ones(len(classes), bool)
                pile = Pile(file["features"][known], classes, tuple(map(str, names)), len(names), shown)
                return pile, "the file"
    pile = read(source, root, False)
    return described(pile.kept(pile.shown), values)


# ---- the usual ways


def semi_supervised(labelled: Tensor, labels: Tensor, pile: Tensor, k: int, n_known: int) -> npt.NDArray[np.int64]:
    """k-means over all points in which labelled ones stay with their class: classes (m,), known ones first."""
    centres = torch.cat([group_means(labelled, labels, n_known), group_means(pile, kmeans(pile, k).labels, k)])
    points = torch.cat([labelled, pile])
    for _ in range(100):
        place = (pile @ centres.T).argmax(1)
        moved = group_means(points, torch.cat([labels, place]), len(centres))
        if torch.allclose(moved, centres, atol=1e-6):
            break
        centres = moved
    return place.numpy()


def by_tree(method: str) -> Callable[[Tensor, int], npt.NDArray[np.int64]]:
    """A tree of this linkage, cut into so many groups."""

    def cut(pile: Tensor, k: int) -> npt.NDArray[np.int64]:
        from scipy.cluster.hierarchy import fcluster, linkage

        return fcluster(linkage(pile.double().numpy(), method), k, "maxclust") - 1

    return cut


def spectral(pile: Tensor, k: int) -> npt.NDArray[np.int64]:
    """scikit-learn's, on the graph of ten nearest neighbours."""
    from sklearn.cluster import SpectralClustering

    model = SpectralClustering(k, affinity="nearest_neighbors", n_neighbors=10, random_state=0)
    return model.fit_predict(pile.numpy())


WAYS: dict[str, Callable[[Tensor, int], npt.NDArray[np.int64]]] = {
    "k-means": lambda pile, k: kmeans(pile, k).labels.numpy(),
    "Ward": by_tree("ward"),
    "average linkage": by_tree("average"),
    "spectral": spectral,
}
"""Ways that see the pile alone, and are told how many classes it holds."""


def problem(pile: Pile, seed: int) -> Row:
    """Everything about one problem."""
    numbers = torch.from_numpy(pile.classes)
    points, shown = torch.from_numpy(pile.images).float(), torch.from_numpy(pile.shown)
    labelled, labels, rest = points[shown], numbers[shown], points[~shown]
    truth, n_known, k = pile.classes[~pile.shown], pile.n_known, len(pile.new)
    row: Row = {"images": len(rest), "n_known": n_known, "n_true": k, "acc": {}, "seconds": {}}

    def score(way: str, work: Callable[[], npt.NDArray[np.int64]], *, named: bool) -> None:
        began = time.perf_counter()
        found = work()
        row["seconds"][way] = round(time.perf_counter() - began, 3)
        acc = right_answers(truth, found, n_known).mean() if named else cluster_accuracy(present, found)
        row["acc"][way] = round(float(acc), 4)

    present = np.unique(truth, return_inverse=True)[1]
    flat, known = unit(rest), unit(labelled)
    for way, do in WAYS.items():
        score(way, lambda do=do: do(flat, int(present.max()) + 1), named=False)
    score("semi-supervised", lambda: semi_supervised(known, labels, flat, k, n_known), named=True)

    def grouped(census: Census, number: int) -> npt.NDArray[np.int64]:
        judged = answer_in_space(census, number, seed=seed)
        if number == k:
            found = torch.from_numpy(right_answers(truth, judged.answers.place, n_known))
            sure = torch.from_numpy(judged.answers.probability)
            report = reliability(sure, found, "")
            row["calibration_error"], row["reliability"] = report["calibration_error"], report["curve"]
            row["sure"] = round(float(sure.mean()), 4)
        return judged.answers.place

    began = time.perf_counter()
    census = take_census(labelled, labels, rest, seed=seed)
    before = time.perf_counter() - began
    try:
        began = time.perf_counter()
        counted = census.counted(100, seed)
        counting = time.perf_counter() - began
        assert counted.estimate is not None
        row["counted"], row["interval"] = counted.estimate.n_new, counted.estimate.interval
        score("counted", lambda: grouped(counted, row["counted"]), named=True)
        row["seconds"]["counted"] = round(row["seconds"]["counted"] + before + counting, 3)
    except InputError as error:
        row["refused"] = str(error)
    if row.get("counted") == k:  # with the right number nothing differs
        row["acc"]["autonovel"] = row["acc"]["counted"]
        row["seconds"]["autonovel"] = round(row["seconds"]["counted"] - counting, 3)
    else:
        score("autonovel", lambda: grouped(census, k), named=True)
        row["seconds"]["autonovel"] = round(row["seconds"]["autonovel"] + before, 3)
    return row


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first-draw", type=int, default=0)
    parser.add_argument("--backbone", help="the one that recipe folder takes when left out")
    parser.add_argument("--side", type=int, help="at which it is shown the images, likewise")
    parser.add_argument("--root", type=Path, help="where the files of benchmarks are")
    parser.add_argument("--results", type=Path, help="add a line of JSON for every problem to this file")
    args = parser.parse_args(arguments)
    given = {"model.backbone": args.backbone, "model.size": args.side}
    values = {name: value for name, value in given.items() if value is not None}
    rows, failed = list[Row](), 0
    for source in args.sources:
        try:
            pile, network = read_features(source, args.root, values)
        except InputError as error:
            parser.error(str(error))
        about = {"source": Path(source).stem, "features": network, "commit": commit()}
        for draw in range(args.first_draw, args.first_draw + args.draws):
            for kind in args.kinds:
                try:
                    made = changed(pile, [f"each={MOST}", *KINDS[kind].split(), f"draw={draw}"])
                except InputError:  # too few classes
                    continue
                try:
                    rows.append(about | {"kind": kind, "draw": draw} | problem(made, draw))
                except Exception:
                    failed += 1
                    print(f"FAILED {source} {kind}, draw {draw}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                    continue
                if args.results:
                    with args.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    if rows:
        print(problems_table(rows))
    if failed or not rows:
        sys.exit(
            f"{failed} problems failed; what went wrong stands above." if failed else "No source has enough classes."
        )


if __name__ == "__main__":
    main()
