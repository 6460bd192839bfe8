"""Scoring a run against the truth. Nothing that is computed here goes back into the model."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import put_on
from autonovel.maths import metrics
from autonovel.maths.kmeans import kmeans
from autonovel.trained import Answers, Trained, answer_together

PIXEL_BASELINE = 20_000_000
"""k-means on the raw pixels is shown beside the result where the pile has at most this many numbers."""


def score(
    data: ImageSet,
    truth: Truth,
    found: Answers,
    features: Tensor | None,
    trained: Trained,
    seed: int,
) -> dict[str, Any]:
    """Clustering scores of the unlabelled images, k-means beside them, and the joint classifier on the test split.

    Args:
        found: the network's answers for the unlabelled images.
        features: of the unlabelled images after the known classes were learned, for the k-means baseline.
        trained: the network, for the test split.
    """
    assert found.new is not None
    mode = trained.mode
    n_known, n_new = data.n_known, found.new.shape[1]
    hidden = np.flatnonzero(~data.is_labelled)
    actual, predicted = truth.labels[hidden], found.new.argmax(1).numpy()
    # the classes that are there: new ones, and known ones where only some of their images were labelled
    present, compact = np.unique(actual, return_inverse=True)
    table, mapping = metrics.matched_confusion(compact, predicted)
    result: dict[str, Any] = {
        f"{name}_new": value for name, value in metrics.clustering_scores(actual, predicted).items()
    }
    # cluster -> the true class it is matched to, and how many of its images are of that class
    result["matched"] = {
        str(cluster): (truth.class_names[present[to]], int(table[to, to]))
        for cluster, to in sorted(mapping.items())
        if to < len(present) and cluster < n_new
    }
    result["confusion"] = table.tolist()
    result["kmeans"] = {}
    points = {"supervised_features": features} if features is not None else {}
    if len(hidden) * int(np.prod(data.images.shape[1:])) <= PIXEL_BASELINE:
        points["pixels"] = torch.from_numpy(data.images[hidden].reshape(len(hidden), -1)).float()

    def baseline(vectors: Tensor) -> float:
        return metrics.cluster_accuracy(
            actual, kmeans(vectors.to(mode.device), len(present), seed=seed).labels.cpu().numpy()
        )

    jobs = (partial(baseline, vectors) for vectors in points.values())
    result["kmeans"] |= dict(zip(points, mode.world.share_out(jobs), strict=True))
    if truth.test_images is not None and truth.test_labels is not None and len(truth.test_labels):
        test = ImageSet.from_arrays(truth.test_images)
        # where the training images were brought to another size, those of the test split follow
        size = 0 if test.images.shape[1:] == data.images.shape[1:] else data.images.shape[1]
        shown = put_on(mode.device, test, size=trained.size or size, sharers=mode.world.local_size)
        answers = answer_together(trained.net, shown, mode)
        result["test"] = metrics.joint_scores(truth.test_labels, answers.joint.argmax(1).numpy(), n_known)
    return result
