"""Algorithm 1 of the paper: k-means with anchors, swept over the number of new classes; two indices choose.

Some probe classes are anchors, held to their clusters. The accuracy on the other probe classes and the silhouette of the
unlabelled points each choose a number; k-means at their mean is asked how many clusters the unlabelled points really use.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from autonovel.maths.count.probes import Effort, ProbeSet, RunJobs, run_in_turn, why_no_interval
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.count.search import SILHOUETTE_SAMPLE, Rounding, Ties, argmax, passes, second_peak, to_whole
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep

INDICES = ("accuracy", "silhouette")
"""The two indices of Algorithm 1, by the names they have in the curve."""

COVERAGE = 0.8
"""Share of the answers that the interval covers."""


@dataclass(frozen=True)
class Reading:
    """What the paper leaves open."""

    ties: Ties = "smallest"
    """Which number wins where several have the same accuracy or silhouette."""
    rounding: Rounding = "nearest"
    """How the mean of the two optima, and the mean over the splits, becomes a whole number."""
    with_validation: bool = False
    """Whether the silhouette is that of all free points, the other probe classes among them, or of the unlabelled ones."""
    rerun: bool = True
    """Run k-means once more at the chosen number before counting; otherwise the run of the sweep is counted."""
    count_anchor_clusters: bool = False
    """Also count clusters of anchor classes that hold unlabelled points."""


READINGS = {
    "text": Reading(),
    "code": Reading("largest", "ceil", with_validation=True, rerun=False, count_anchor_clusters=True),
}
"""As the paper's text says, and as the authors' code does."""


def count_by_algorithm_1(
    probes: Sequence[ProbeSet],
    pile: Tensor,
    max_new: int,
    seed: int,
    *,
    reading: Reading,
    anchor_share: float = 0.8,
    outlier_threshold: float = 0.01,
    grouped: bool = False,
    effort: Effort,
    run_jobs: RunJobs = run_in_turn,
) -> ClassEstimate:
    """Algorithm 1 once for each split; families of probes (`grouped`) take turns.

    `anchor_share` is the share of the probe classes that are anchors; the others check the clustering. Clusters with fewer
    unlabelled points than `outlier_threshold`, a share of those in the largest, are not counted.
    """
    generator = torch.Generator().manual_seed(seed)
    ks = range(max_new + 1)

    def splits() -> Iterator[partial[tuple[int, dict[str, dict[int, float]]]]]:
        for i in range(max(effort.splits, len(probes))):
            split = _Anchored(probes[i % len(probes)], pile, anchor_share, generator)
            yield partial(split.answer, max_new, reading, outlier_threshold, effort.restarts, seed + i)

    answers: list[int] = []
    seen: dict[str, list[list[float]]] = {name: [[] for _ in ks] for name in INDICES}
    for answer, indices in run_jobs(splits()):
        answers.append(answer)
        for name, by_k in indices.items():
            for k, value in by_k.items():
                seen[name][k].append(value)
    n_new = max(1, to_whole(sum(answers) / len(answers), reading.rounding))
    curve = {"k": [float(k) for k in ks]}
    for name, values in seen.items():
        curve[name] = [float(np.nanmean(v)) if v and not np.isnan(v).all() else math.nan for v in values]
    both = {k: curve["accuracy"][k] + curve["silhouette"][k] for k in ks}
    note = why_no_interval(probes, grouped)
    interval = None if note else _range(answers, n_new, COVERAGE)
    note = note or "The interval is the range of the answers over the splits, not a calibrated one."
    return ClassEstimate(n_new, interval, curve, "paper", answers, note, second_peak(both, n_new))


def _range(answers: Sequence[int], n_new: int, coverage: float) -> tuple[int, int]:
    """Quantiles of the answers, rounded outwards and widened to hold the estimate."""
    tail = (1 - coverage) / 2
    low, high = np.quantile(np.asarray(answers, dtype=np.float64), [tail, 1 - tail])
    return min(n_new, math.floor(low)), max(n_new, math.ceil(high))


@dataclass(frozen=True)
class _AtNumber:
    """What one number of new classes gave."""

    labels: Tensor
    """Clusters of the free points, int32 on the CPU: validation probes first, then the unlabelled."""
    accuracy: float
    silhouette: float


class _Anchored:
    """Anchors, validation probes and unlabelled points, ready for the sweep."""

    def __init__(self, probe: ProbeSet, pile: Tensor, anchor_share: float, generator: torch.Generator) -> None:
        self.n_probe_classes = probe.n_classes
        self.n_anchors = min(max(2, round(anchor_share * probe.n_classes)), probe.n_classes - 2)
        # Classes in random order; the first ones become the anchors 0 .. n_anchors - 1.
        order = torch.randperm(probe.n_classes, generator=generator).to(probe.labels.device)
        labels = torch.argsort(order)[probe.labels]
        held = labels < self.n_anchors
        self.validation = labels[~held].cpu().numpy()
        self.free = torch.cat([probe.features[~held], pile])
        self.points = torch.cat([probe.features[held], self.free])
        self.anchors = torch.cat([labels[held], labels.new_full((len(self.free),), -1)])
        self.first_free = int(held.sum())

    def answer(
        self, max_new: int, reading: Reading, outlier_threshold: float, restarts: int, seed: int
    ) -> tuple[int, dict[str, dict[int, float]]]:
        """The number of new classes, and by name both indices at each number that was looked at."""
        looks = self.sweep(max_new, reading, restarts, seed)
        indices = {name: {k: getattr(look, name) for k, look in looks.items()} for name in INDICES}
        k = to_whole(sum(argmax(index, reading.ties) for index in indices.values()) / 2, reading.rounding)
        if k in looks and not reading.rerun:
            labels = looks[k].labels
        else:  # a second opinion, from another seed; or a first one, where a coarse sweep has left this number out
            clusters = self.n_probe_classes + k
            again = kmeans(self.points, clusters, anchors=self.anchors, restarts=restarts, seed=seed + 1)
            labels = again.labels[self.first_free :].cpu()
        mass = torch.bincount(labels[len(self.validation) :].long(), minlength=self.n_anchors)
        if not reading.count_anchor_clusters:
            mass = mass[self.n_anchors :]
        largest = int(mass.max()) if len(mass) else 0
        return int((mass >= max(1.0, outlier_threshold * largest)).sum()), indices

    def sweep(self, max_new: int, reading: Reading, restarts: int, seed: int) -> dict[int, _AtNumber]:
        """Both indices for each number of new classes that is looked at."""
        base = self.n_probe_classes
        largest = min(max_new, len(self.free) + self.n_anchors - base)
        sweep = Sweep(self.points, anchors=self.anchors, restarts=restarts, seed=seed)
        looks: dict[int, _AtNumber] = {}
        scores: tuple[dict[int, float], ...] = tuple({} for _ in INDICES)
        for numbers in passes(largest, scores, ties=reading.ties):
            ran = sweep.chain([base + k for k in numbers])
            looks.update(self._look({k - base: result.labels for k, result in ran}, reading.with_validation, seed))
            for name, index in zip(INDICES, scores, strict=True):
                index.update({k: getattr(look, name) for k, look in looks.items()})
        return looks

    def _look(self, labels: dict[int, Tensor], with_validation: bool, seed: int) -> dict[int, _AtNumber]:
        """Score several clusterings together: their silhouettes share the distances."""
        free = torch.stack([row[self.first_free :] for row in labels.values()])
        skip = 0 if with_validation else len(self.validation)
        scores = silhouette(self.free[skip:], free[:, skip:], sample=SILHOUETTE_SAMPLE, seed=seed)
        out = {}
        for k, row, score in zip(labels, free.cpu(), scores.score.tolist(), strict=True):
            accuracy = cluster_accuracy(self.validation, row[: len(self.validation)].numpy())
            out[k] = _AtNumber(row.int(), accuracy, score)
        return out
