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

from autonovel.maths.count.class_estimate import ClassEstimate, ProbeSet, RunJobs, run_in_turn, why_no_interval
from autonovel.maths.count.number_search import argmax, passes, second_peak, to_whole
from autonovel.maths.kmeans import kmeans
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep
from autonovel.settings.recipe import Estimate

INDICES = ("accuracy", "silhouette")
"""The two indices of Algorithm 1, by the names they have in the curve."""


def count_by_algorithm_1(
    probes: list[ProbeSet],
    pile: Tensor,
    max_new: int,
    settings: Estimate,
    seed: int,
    *,
    grouped: bool = False,
    run_jobs: RunJobs = run_in_turn,
) -> ClassEstimate:
    """Algorithm 1 once for each split; families of probes (`grouped`) take turns."""
    generator = torch.Generator().manual_seed(seed)
    ks = range(max_new + 1)

    def splits() -> Iterator[partial[tuple[int, dict[str, dict[int, float]]]]]:
        for i in range(max(settings.splits, len(probes))):
            split = _Split(probes[i % len(probes)], pile, settings, generator, seed + i)
            yield partial(split.answer, max_new)

    answers: list[int] = []
    seen: dict[str, list[list[float]]] = {name: [[] for _ in ks] for name in INDICES}
    for answer, indices in run_jobs(splits()):
        answers.append(answer)
        for name, by_k in indices.items():
            for k, value in by_k.items():
                seen[name][k].append(value)
    n_new = max(1, to_whole(sum(answers) / len(answers), settings.rounding))
    curve = {"k": [float(k) for k in ks]}
    for name, values in seen.items():
        curve[name] = [float(np.nanmean(v)) if v and not np.isnan(v).all() else math.nan for v in values]
    both = {k: curve["accuracy"][k] + curve["silhouette"][k] for k in ks}
    note = why_no_interval(probes, grouped)
    interval = None if note else _range(answers, n_new, settings.coverage)
    note = note or "The interval is the range of the answers over the splits, not a calibrated one."
    return ClassEstimate(n_new, interval, curve, "paper", answers, note, second_peak(both, n_new))


def _range(answers: Sequence[int], n_new: int, coverage: float) -> tuple[int, int]:
    """Quantiles of the answers, rounded outwards and widened to hold the estimate."""
    tail = (1 - coverage) / 2
    low, high = np.quantile(np.asarray(answers, dtype=np.float64), [tail, 1 - tail])
    return min(n_new, math.floor(low)), max(n_new, math.ceil(high))


@dataclass(frozen=True)
class _Look:
    """What one number of new classes gave."""

    labels: Tensor
    """Clusters of the free points, int32 on the CPU: validation probes first, then the unlabelled."""
    accuracy: float
    silhouette: float


class _Split:
    """Anchors, validation probes and unlabelled points, ready for the sweep."""

    def __init__(
        self, probe: ProbeSet, pile: Tensor, settings: Estimate, generator: torch.Generator, seed: int
    ) -> None:
        self.settings, self.seed = settings, seed
        self.n_probe_classes = probe.n_classes
        self.n_anchors = min(max(2, round(settings.anchor_share * probe.n_classes)), probe.n_classes - 2)
        # Classes in random order; the first ones become the anchors 0 .. n_anchors - 1.
        order = torch.randperm(probe.n_classes, generator=generator).to(probe.labels.device)
        labels = torch.argsort(order)[probe.labels]
        held = labels < self.n_anchors
        self.validation = labels[~held].cpu().numpy()
        self.free = torch.cat([probe.features[~held], pile])
        self.points = torch.cat([probe.features[held], self.free])
        self.anchors = torch.cat([labels[held], labels.new_full((len(self.free),), -1)])
        self.first_free = int(held.sum())

    def answer(self, max_new: int) -> tuple[int, dict[str, dict[int, float]]]:
        """The number of new classes, and by name both indices at each number that was looked at."""
        looks = self.sweep(max_new)
        return self.count(looks), {name: {k: getattr(look, name) for k, look in looks.items()} for name in INDICES}

    def sweep(self, max_new: int) -> dict[int, _Look]:
        """Both indices for each number of new classes that is looked at."""
        base = self.n_probe_classes
        largest = min(max_new, len(self.free) + self.n_anchors - base)
        sweep = Sweep(self.points, anchors=self.anchors, restarts=self.settings.restarts, seed=self.seed)
        looks: dict[int, _Look] = {}
        scores: tuple[dict[int, float], ...] = tuple({} for _ in INDICES)
        for numbers in passes(largest, self.settings, scores):
            runs = sweep.fresh if self.settings.sweep == "exhaustive" else sweep.chain
            ran = runs([base + k for k in numbers])
            looks.update(self._look({k - base: result.labels for k, result in ran}))
            for name, index in zip(INDICES, scores, strict=True):
                index.update({k: getattr(look, name) for k, look in looks.items()})
        return looks

    def _look(self, labels: dict[int, Tensor]) -> dict[int, _Look]:
        """Score several clusterings together: their silhouettes share the distances."""
        free = torch.stack([row[self.first_free :] for row in labels.values()])
        skip = 0 if self.settings.silhouette_over == "free" else len(self.validation)
        scores = silhouette(self.free[skip:], free[:, skip:], sample=self.settings.silhouette_sample, seed=self.seed)
        out = {}
        for k, row, score in zip(labels, free.cpu(), scores.score.tolist(), strict=True):
            accuracy = cluster_accuracy(self.validation, row[: len(self.validation)].numpy())
            out[k] = _Look(row.int(), accuracy, score)
        return out

    def count(self, looks: dict[int, _Look]) -> int:
        """The number of clusters that the unlabelled points really use at the mean of the two optima."""
        best = [argmax({k: getattr(v, name) for k, v in looks.items()}, self.settings.ties) for name in INDICES]
        k = to_whole(sum(best) / 2, self.settings.rounding)
        if k in looks and not self.settings.rerun:
            labels = looks[k].labels
        else:  # a second opinion, from another seed; or a first one, where a coarse sweep has left this number out
            clusters = self.n_probe_classes + k
            again = kmeans(
                self.points, clusters, anchors=self.anchors, restarts=self.settings.restarts, seed=self.seed + 1
            )
            labels = again.labels[self.first_free :].cpu()
        mass = torch.bincount(labels[len(self.validation) :].long(), minlength=self.n_anchors)
        if not self.settings.count_anchor_clusters:
            mass = mass[self.n_anchors :]
        largest = int(mass.max()) if len(mass) else 0
        return int((mass >= max(1.0, self.settings.outlier_threshold * largest)).sum())
