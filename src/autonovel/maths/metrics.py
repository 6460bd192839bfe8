"""How good a clustering is, against the truth. Used for scoring only, never in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]


def contingency(truth: Labels, predicted: Labels) -> npt.NDArray[np.int64]:
    """How many images have true class t and predicted class p: square (m, m), m one more than the largest label."""
    size = int(max(truth.max(initial=-1), predicted.max(initial=-1))) + 1
    table = np.zeros((size, size), dtype=np.int64)
    np.add.at(table, (truth, predicted), 1)
    return table


def match(truth: Labels, predicted: Labels) -> dict[int, int]:
    """The one-to-one assignment of predicted to true classes under which most images agree (Hungarian algorithm)."""
    from scipy.optimize import linear_sum_assignment

    rows, cols = linear_sum_assignment(contingency(truth, predicted), maximize=True)
    return {int(p): int(t) for t, p in zip(rows, cols, strict=True)}


def cluster_accuracy(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """ACC: the share of images that are right under the best one-to-one matching (eq. 8 of the paper).

    >>> cluster_accuracy([0, 0, 1, 1], [7, 7, 2, 7])
    0.75
    """
    true, guessed = _compact(truth), _compact(predicted)
    _check(true, guessed)
    mapping = match(true, guessed)
    return float(np.mean([mapping[p] == t for t, p in zip(true.tolist(), guessed.tolist(), strict=True)]))


def clustering_scores(truth: npt.ArrayLike, predicted: npt.ArrayLike) -> dict[str, float]:
    """ACC, normalised mutual information and adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    true, guessed = _compact(truth), _compact(predicted)
    return {
        "acc": cluster_accuracy(true, guessed),
        "nmi": float(normalized_mutual_info_score(true, guessed)),
        "ari": float(adjusted_rand_score(true, guessed)),
    }


def joint_scores(truth: Labels, predicted: Labels, n_known: int) -> dict[str, dict[str, float]]:
    """Old, new and all classes under three rules of counting.

    Args:
        truth: true classes, the known ones being 0 .. n_known - 1.
        predicted: answers of the joint classifier over known and new classes; no answer is restricted to its subset.

    Returns:
        ``separate``: old, new and all matched each on its own (the rule of the paper's table).
        ``single``: one matching for all images.
        ``fixed``: known classes must come out under their own number; only new ones are matched (among the new answers).
    """
    old = truth < n_known

    def share(hits: npt.NDArray[np.bool_], where: npt.NDArray[np.bool_]) -> float:
        return float(hits[where].mean()) if where.any() else float("nan")

    everything = np.ones(len(truth), dtype=bool)

    def alone(where: npt.NDArray[np.bool_]) -> float:
        return cluster_accuracy(truth[where], predicted[where]) if where.any() else float("nan")

    one = match(truth, predicted)
    hits_single = np.array([one[p] for p in predicted.tolist()], dtype=np.int64) == truth
    fixed = {k: k for k in range(n_known)}
    among_new = ~old & (predicted >= n_known)
    if among_new.any():
        matching = match(truth[among_new] - n_known, predicted[among_new] - n_known)
        fixed |= {p + n_known: t + n_known for p, t in matching.items()}
    hits_fixed = np.array([fixed.get(p, -1) for p in predicted.tolist()], dtype=np.int64) == truth
    return {
        "separate": {"old": alone(old), "new": alone(~old), "all": alone(everything)},
        "single": {name: share(hits_single, w) for name, w in (("old", old), ("new", ~old), ("all", everything))},
        "fixed": {name: share(hits_fixed, w) for name, w in (("old", old), ("new", ~old), ("all", everything))},
    }


def matched_confusion(truth: Labels, predicted: Labels) -> tuple[npt.NDArray[np.int64], dict[int, int]]:
    """The confusion matrix after matching (rows true, columns predicted), and the matching itself."""
    mapping = match(truth, predicted)
    # columns of the table are moved rather than images counted again, so that every matched class has its row and column
    table = np.empty_like(counts := contingency(truth, predicted))
    table[:, list(mapping.values())] = counts[:, list(mapping)]
    return table, mapping


def right_answers(truth: Labels, predicted: Labels, n_known: int) -> npt.NDArray[np.bool_]:
    """Which answers are right: a known class under its own number, a new one where it is matched with the true class.

    New classes are matched with what is there among the images that were given to them.
    """
    right: npt.NDArray[np.bool_] = truth == predicted
    new = predicted >= n_known
    right[new] = False
    if new.any():
        true = _compact(truth[new])
        mapping = match(true, predicted[new] - n_known)
        right[new] = np.array([mapping[p] for p in (predicted[new] - n_known).tolist()]) == true
    return right


def _compact(labels: npt.ArrayLike) -> Labels:
    """Labels numbered from 0 without gaps."""
    array: Any = np.asarray(labels)
    return np.unique(array, return_inverse=True)[1].astype(np.int64).reshape(array.shape)


def _check(truth: Labels, predicted: Labels) -> None:
    if truth.shape != predicted.shape or truth.ndim != 1 or not len(truth):
        from autonovel.base.errors import InputError

        raise InputError(
            f"Scoring needs two label vectors of one length; these have shapes {truth.shape} and {predicted.shape}."
        )
