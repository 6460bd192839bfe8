"""The number of classes at which the silhouette of plain k-means is highest; needs no labels at all."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from autonovel.maths.count.probes import Effort, RunJobs, run_in_turn
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.count.search import SILHOUETTE_SAMPLE, argmax, passes, second_peak
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep


def count_by_silhouette(
    pile: Tensor, max_new: int, seed: int, *, effort: Effort, run_jobs: RunJobs = run_in_turn
) -> ClassEstimate:
    """The number with the best silhouette; random halves of the points show how firm that is.

    The halves disagree only about chance, not about whether the silhouette is right, so they give no interval.
    """
    scores = silhouette_curve(pile, max_new, seed, effort.restarts)
    n_new = argmax(scores)
    answers: list[int] = []
    note = "The silhouette has no known classes to judge its errors by, so there is no interval"
    if len(pile) >= 8:
        generator = torch.Generator().manual_seed(seed)

        def halves() -> Iterator[partial[dict[int, float]]]:
            for i in range(effort.splits):
                half = torch.randperm(len(pile), generator=generator)[: len(pile) // 2].to(pile.device)
                yield partial(silhouette_curve, pile[half], max_new, seed + 1 + i, effort.restarts)

        answers = [argmax(curve) for curve in run_jobs(halves())]
        note += f"; random halves of the points gave {min(answers)} to {max(answers)}"
    ks = range(2, max_new + 1)
    curve = {"k": [float(k) for k in ks], "silhouette": [scores.get(k, math.nan) for k in ks]}
    return ClassEstimate(n_new, None, curve, "silhouette", answers, f"{note}.", second_peak(scores, n_new))


def silhouette_curve(pile: Tensor, max_new: int, seed: int, restarts: int) -> dict[int, float]:
    """The silhouette of k-means for each number of clusters that is looked at."""
    sweep = Sweep(pile, restarts=restarts, seed=seed)
    scores: dict[int, float] = {}
    largest = min(max_new, len(pile) - 1)
    for numbers in passes(largest, [scores], smallest=2):
        runs = dict(sweep.chain(numbers))
        labels = torch.stack([result.labels for result in runs.values()])
        shape = silhouette(pile, labels, sample=SILHOUETTE_SAMPLE, seed=seed)
        scores.update(zip(runs, shape.score.tolist(), strict=True))
    return scores
