"""Warnings about a result that a person should see before believing it, and the known classes nearest to each cluster."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import listed
from autonovel.report.clusters import Shown
from autonovel.runs.folder import Folder
from autonovel.runs.headline import how_sampled
from autonovel.runs.merging import Merging, read_merging

Floats = npt.NDArray[np.float32]

SAMPLE = 400
"""Images of a cluster that are compared with other clusters."""

MOST_PAIRS = 200
"""With more clusters only each one's nearest are compared."""

APART = 3.4
"""Cutting one round heap in two gives parts whose centres are 2.65 spreads apart, and heaps are not quite round; different
handwritten digits are 3.5 to 13 apart."""

TINY = 0.1
"""A cluster with less than this share of the usual size is tiny."""

COLLAPSED = 0.8
EQUAL = 0.01
UNSURE = 0.6
AGREEING = 0.9
"""Share of images to which two samples give one class; with less, the answers rest on which images were drawn."""
ALIKE = 0.05
"""Two images nearer to each other than this share of the usual distance to the nearest image are near-duplicates."""


class Finding(NamedTuple):
    """Something to know; ``clusters`` are the numbers of those it is about, to look at or to merge."""

    level: Literal["warning", "note"]
    text: str
    clusters: tuple[int, ...] = ()
    kind: Literal["look", "merge"] = "look"


class Likeness(NamedTuple):
    """A known class near a cluster; similarity is the cosine between their centres, as seen from the centre of all."""

    name: str
    similarity: float


def centres(features: npt.NDArray[np.floating], groups: Sequence[npt.NDArray[np.int64]]) -> Floats:
    """(k, d) the mean of evenly taken features of each group."""
    means = [
        np.asarray(features[_some(rows)], dtype=np.float32).mean(0)
        if len(rows)
        else np.zeros(features.shape[1], np.float32)
        for rows in groups
    ]
    return np.stack(means) if means else np.zeros((0, features.shape[1]), np.float32)


def _some(rows: npt.NDArray[np.int64], most: int = SAMPLE) -> npt.NDArray[np.int64]:
    return rows if len(rows) <= most else np.sort(rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)])


def labelled_groups(run: Folder) -> dict[str, npt.NDArray[np.int64]]:
    """Known class -> its rows among the labelled images."""
    labels = [record.label for record in run.labelled]
    if not labels:
        return {}
    names, inverse = np.unique(np.array(labels, dtype=object).astype(str), return_inverse=True)
    return {str(name): np.flatnonzero(inverse == place) for place, name in enumerate(names)}


def nearest_known(run: Folder, clusters: Sequence[Shown], most: int = 3) -> list[list[Likeness]]:
    """For every cluster the known classes that its features are most like; empty lists where these were not kept."""
    known = run.labelled_features
    groups = labelled_groups(run)
    if known is None or not groups or sum(map(len, groups.values())) != len(known):
        return [[] for _ in clusters]
    names = list(groups)
    theirs = centres(known, list(groups.values()))
    ours = centres(run.features, [cluster.rows for cluster in clusters])
    middle = np.concatenate([theirs, ours[[bool(c.size) for c in clusters]]]).mean(0)
    similarity = _unit(ours - middle) @ _unit(theirs - middle).T
    order = np.argsort(-similarity, axis=1)[:, :most]
    return [
        [Likeness(names[k], float(line[k])) for k in best] if cluster.size else []
        for cluster, line, best in zip(clusters, similarity, order, strict=True)
    ]


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def separation(first: Floats, second: Floats) -> float:
    """How many spreads two heaps of points are apart along the line between their centres.

    The line is taken from every other point and the distance measured on the rest: in many dimensions the points that
    set the line seem farther apart along it than they are.
    """
    if min(len(first), len(second)) < 4:
        return np.inf
    line = first[::2].mean(0) - second[::2].mean(0)
    ours, theirs = first[1::2] @ line, second[1::2] @ line
    spread = float(np.sqrt((ours.var() + theirs.var()) / 2))
    return float(ours.mean() - theirs.mean()) / spread if spread > 0 else np.inf


def alike_pairs(features: npt.NDArray[np.floating], clusters: Sequence[Shown]) -> list[tuple[float, int, int]]:
    """Pairs of clusters that look like one, as (separation, place, place), the closest first."""
    points = [np.asarray(features[np.sort(_some(c.rows))], dtype=np.float32) for c in clusters]
    middle = centres(features, [c.rows for c in clusters])
    pairs = set()
    for place, _ in enumerate(clusters):
        distance = np.square(middle - middle[place]).sum(1)
        near = np.argsort(distance)[: len(clusters) if len(clusters) <= MOST_PAIRS // 10 else 4]
        pairs |= {(min(place, int(other)), max(place, int(other))) for other in near if other != place}
    rng = np.random.default_rng(0)
    points = [part[rng.permutation(len(part))] for part in points]  # neighbours in the list may be alike
    apart = [(separation(points[a], points[b]), a, b) for a, b in sorted(pairs)]
    return sorted(entry for entry in apart if entry[0] < APART)


def count_duplicates(features: npt.NDArray[np.floating], clusters: Sequence[Shown]) -> tuple[int, int]:
    """How many of the images looked at have a near-duplicate in their cluster, and how many were looked at."""
    alike = seen = 0
    for cluster in clusters:
        rows = _some(cluster.rows, 2 * SAMPLE)
        if len(rows) < 3:
            continue
        points = np.asarray(features[rows], dtype=np.float64)
        points -= points.mean(0)
        squares = np.square(points).sum(1)
        distance = np.maximum(squares[:, None] + squares - 2 * points @ points.T, 0)
        np.fill_diagonal(distance, np.inf)
        nearest = np.sqrt(distance.min(1))
        usual = float(np.median(nearest))
        if usual > 0:
            alike += int((nearest < ALIKE * usual).sum())
            seen += len(rows)
    return alike, seen


def read_problems(run: Folder) -> list[dict[str, str]]:
    """The rows of problems.csv."""
    path = run.path / "problems.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        return [row for row in csv.DictReader(file) if row.get("reason")]


def suggest(run: Folder, clusters: Sequence[Shown]) -> list[Finding]:
    """What to know about sizes, and clusters to merge or to look at, whatever method made them."""
    new = [cluster for cluster in clusters if cluster.kind == "new"]
    return [*_about_pairs(run, new), *_about_doubt(new), *_about_sizes(new)]


def find(run: Folder, clusters: Sequence[Shown]) -> list[Finding]:
    """Everything to know about a result, warnings first."""
    new = [cluster for cluster in clusters if cluster.kind == "new"]
    findings = suggest(run, clusters)
    problems = read_problems(run)
    left_out = Counter(row["reason"] for row in problems if row.get("left_out") != "no")
    if left_out:
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in left_out.most_common(3))
        many = f"{left_out.total():,} files were" if left_out.total() > 1 else "One file was"
        findings.append(Finding("warning", f"{many} left out: {reasons}. See problems.csv."))
    remarks = len(problems) - left_out.total()
    if remarks:
        several = f"problems.csv has a remark on {remarks:,} files, most of them copies of a picture."
        findings.append(Finding("note", several if remarks > 1 else "problems.csv has a remark on one file."))
    twins, seen = count_duplicates(run.features, new)
    if twins > 0.01 * seen and twins > 2:
        findings.append(
            Finding(
                "note",
                f"{twins:,} of {seen:,} images looked at have a near-duplicate in their cluster; copies weigh double.",
            )
        )
    if sampled := run.summary.get("sampled"):
        said = how_sampled(run.summary["n_known"], sampled, len(run.machine.images))
        findings.append(Finding("warning" if sampled["agreement"] < AGREEING else "note", " ".join(said)))
    unlike = int(run.unlike.sum())
    if unlike:
        many, them = (f"{unlike:,} images resemble", "them") if unlike > 1 else ("One image resembles", "it")
        findings.append(Finding("note", f"{many} none of the classes; look at {them} first (unlike.csv)."))
    return sorted(findings, key=lambda finding: finding.level != "warning")


def _about_sizes(new: Sequence[Shown]) -> list[Finding]:
    sizes = np.array([cluster.size for cluster in new])
    total = int(sizes.sum())
    if len(new) < 2 or not total:
        return []
    findings = []
    empty = [c for c in new if not c.size]
    if empty:
        findings.append(
            Finding(
                "warning", f"{_names(empty)} collapsed: no image is in {_it(empty)}.", tuple(c.number for c in empty)
            )
        )
    usual = float(np.median(sizes[sizes > 0]))
    tiny = [c for c in new if 0 < c.size < max(TINY * usual, 2)]
    if tiny:
        findings.append(
            Finding(
                "warning",
                f"{_names(tiny)} {'is' if len(tiny) == 1 else 'are'} tiny beside the usual {usual:,.0f} images; "
                f"{_it(tiny)} may be leftovers rather than a class.",
                tuple(c.number for c in tiny),
            )
        )
    largest = new[int(sizes.argmax())]
    if largest.size > COLLAPSED * total:
        findings.append(
            Finding(
                "warning",
                f"“{largest.name}” holds {largest.size / total:.0%} of the images: the others have collapsed, or there is "
                "only one new class.",
                (largest.number,),
            )
        )
    if sizes.max() - sizes.min() <= max(1, EQUAL * sizes.mean()) and sizes.mean() >= 20:
        every = "Both" if len(new) == 2 else f"All {len(new)}"
        findings.append(
            Finding(
                "warning",
                f"{every} clusters have about {sizes.mean():,.0f} images. If your classes are not equally large, that comes "
                "from the method, which makes clusters even.",
            )
        )
    return findings


def _about_pairs(run: Folder, new: Sequence[Shown]) -> list[Finding]:
    """Clusters that look like one class, or hold several: what the heads say, or else what the features do."""
    full = [cluster for cluster in new if cluster.size]
    said = read_merging(run)
    if said is not None and said.n_new is not None:
        return _about_number(run, full, said)
    pairs = alike_pairs(run.features, full) if len(full) > 1 else []
    return [
        Finding(
            "warning",
            f"“{full[a].name}” and “{full[b].name}” look like one class; compare them, and merge them if they are.",
            (full[a].number, full[b].number),
            "merge",
        )
        for _, a, b in pairs[:5]
    ]


def _about_number(run: Folder, new: Sequence[Shown], said: Merging) -> list[Finding]:
    shown = {cluster.number: cluster for cluster in new}
    groups = [[shown[n] for n in group if n in shown] for group in run.suggested]
    findings = [
        Finding(
            "warning",
            f"{_names(group)} look like one class to the network; compare them, and merge them if they are "
            f"(autonovel merge {run.path} --suggested merges all such clusters).",
            tuple(cluster.number for cluster in group),
            "merge",
        )
        for group in groups
        if len(group) > 1
    ]
    machine = run.machine.group  # it was said of clusters as they were found
    mixed = [
        shown[n] for n in said.mixed if n in shown and np.array_equal(shown[n].members, np.flatnonzero(machine == n))
    ]
    if mixed:
        findings.append(
            Finding(
                "warning",
                f"The network tells about {said.n_new} {run.kind_found()} apart, more than there are clusters; look for "
                "several in "
                f"{_names(mixed)}.",
                tuple(cluster.number for cluster in mixed),
            )
        )
    return findings


def _about_doubt(new: Sequence[Shown]) -> list[Finding]:
    unsure = [c for c in new if c.size and c.confidence < UNSURE]
    if not unsure:
        return []
    text = f"The machine is unsure of {_names(unsure)} (mean confidence under {UNSURE:.0%}); look for a mixture of classes."
    return [Finding("warning", text, tuple(c.number for c in unsure))]


def _names(clusters: Sequence[Shown], most: int = 4) -> str:
    names = [f"“{cluster.name}”" for cluster in clusters[:most]]
    if len(clusters) > most:
        names.append(f"{len(clusters) - most} more")
    return listed(names)


def _it(clusters: Sequence[Shown]) -> str:
    return "it" if len(clusters) == 1 else "them"
