"""The number of classes at which the silhouette of plain k-means is highest; needs no labels at all."""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from autonovel.maths.count.class_estimate import ClassEstimate, RunJobs, run_in_turn
from autonovel.maths.count.number_search import argmax, passes, second_peak
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep
from autonovel.settings.recipe import Estimate


def count_by_silhouette(
    pile: Tensor, max_new: int, settings: Estimate, seed: int, *, run_jobs: RunJobs = run_in_turn
) -> ClassEstimate:
    """The number with the best silhouette; random halves of the points show how firm that is.

    The halves disagree only about chance, not about whether the silhouette is right, so they give no interval.
    """
    scores = silhouette_curve(pile, max_new, settings, seed)
    n_new = argmax(scores, settings.ties)
    answers: list[int] = []
    note = "The silhouette has no known classes to judge its errors by, so there is no interval"
    if len(pile) >= 8:
        generator = torch.Generator().manual_seed(seed)

        def halves() -> Iterator[partial[dict[int, float]]]:
            for i in range(settings.splits):
                half = torch.randperm(len(pile), generator=generator)[: len(pile) // 2].to(pile.device)
                yield partial(silhouette_curve, pile[half], max_new, settings, seed + 1 + i)

        answers = [argmax(curve, settings.ties) for curve in run_jobs(halves())]
        note += f"; random halves of the points gave {min(answers)} to {max(answers)}"
    ks = range(2, max_new + 1)
    curve = {"k": [float(k) for k in ks], "silhouette": [scores.get(k, math.nan) for k in ks]}
    return ClassEstimate(n_new, None, curve, "silhouette", answers, f"{note}.", second_peak(scores, n_new))


def silhouette_curve(pile: Tensor, max_new: int, settings: Estimate, seed: int) -> dict[int, float]:
    """The silhouette of k-means for each number of clusters that is looked at."""
    sweep = Sweep(pile, restarts=settings.restarts, seed=seed)
    scores: dict[int, float] = {}
    largest = min(max_new, len(pile) - 1)
    for numbers in passes(largest, settings, [scores], smallest=2):
        runs = dict((sweep.fresh if settings.sweep == "exhaustive" else sweep.chain)(numbers))
        labels = torch.stack([result.labels for result in runs.values()])
        found = silhouette(pile, labels, sample=settings.silhouette_sample, seed=seed)
        scores.update(zip(runs, found.score.tolist(), strict=True))
    return scores
