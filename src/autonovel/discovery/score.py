"""Scoring a run against the truth. Nothing computed here goes back into the model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.answers.network import Trained, answer_together
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import put_on
from autonovel.maths import metrics
from autonovel.maths.confidence import reliability
from autonovel.maths.kmeans import kmeans

PIXEL_BASELINE = 20_000_000
"""k-means on the raw pixels is shown beside the result where the pile has at most this many numbers."""


def score(
    data: ImageSet,
    truth: Truth,
    places: npt.NDArray[np.int64],
    probability: npt.NDArray[np.float32],
    learned: Mapping[str, Tensor],
    trained: Trained,
    seed: int,
) -> dict[str, Any]:
    """Clustering scores of the unlabelled images, k-means beside them, and the joint classifier on the test split.

    Args:
        places: the class that each unlabelled image was given, known ones first.
        probability: of that answer.
        learned: features of the unlabelled images before the stage that makes the clusters, by what they were learned in: for
            the k-means baseline.
        trained: the network, for the test split.
    """
    mode, n_known = trained.mode, data.n_known
    hidden = np.flatnonzero(~data.is_labelled)
    actual = truth.labels[hidden]
    # where known classes are among the images or the answers, what counts as discovered are the images that really are new
    mixed = bool((places < n_known).any() or (actual < n_known).any())
    counted = actual >= n_known if mixed else np.ones(len(actual), dtype=bool)
    result: dict[str, Any] = {}
    if counted.any():
        scores = metrics.clustering_scores(actual[counted], places[counted])
        result = {f"{name}_new": value for name, value in scores.items()}
    if mixed:
        result["pile"] = metrics.joint_scores(actual, places, n_known)
        if counted.any():  # matched alone, new images that were called by one known name would be right
            result["acc_new"] = result["pile"]["single"]["new"]
    among = places >= n_known
    # the classes that are there: new ones, and known ones where only some of their images were labelled
    present, compact = np.unique(actual[among], return_inverse=True)
    predicted = places[among] - n_known
    table, mapping = metrics.matched_confusion(compact, predicted)
    # cluster -> the true class it is matched to, and how many of its images are of that class
    result["matched"] = {
        str(cluster): (truth.class_names[present[to]], int(table[to, to]))
        for cluster, to in sorted(mapping.items())
        if to < len(present) and cluster <= predicted.max(initial=-1)
    }
    result["confusion"] = table.tolist()
    result["confusion_classes"] = [truth.class_names[c] for c in present]
    right = metrics.right_answers(actual, places, n_known)
    how = "the answers for the pile against the truth"
    result["reliability"] = reliability(torch.from_numpy(probability), torch.from_numpy(right), how)
    result["calibration_error"] = result["reliability"]["calibration_error"]
    result["kmeans"] = {}
    points = dict(learned)
    if len(hidden) * int(np.prod(data.images.shape[1:])) <= PIXEL_BASELINE:
        points["pixels"] = torch.from_numpy(data.images[hidden].reshape(len(hidden), -1)).float()

    def baseline(vectors: Tensor) -> float:
        return metrics.cluster_accuracy(
            actual, kmeans(vectors.to(mode.device), len(np.unique(actual)), seed=seed).labels.cpu().numpy()
        )

    jobs = (partial(baseline, vectors) for vectors in points.values())
    result["kmeans"] |= dict(zip(points, mode.world.share_out(jobs), strict=True))
    if truth.test_images is not None and truth.test_labels is not None and len(truth.test_labels):
        test = ImageSet.from_arrays(truth.test_images)
        # where the training images were brought to another size, those of the test split follow
        size = 0 if test.images.shape[1:] == data.images.shape[1:] else data.images.shape[1]
        shown = put_on(mode.device, test, size=trained.size or size, sharers=mode.world.local_size)
        said = answer_together(trained.net, shown, mode, cache=trained.cache)
        result["test"] = metrics.joint_scores(truth.test_labels, said.joint.softmax(1).argmax(1).numpy(), n_known)
    return result
