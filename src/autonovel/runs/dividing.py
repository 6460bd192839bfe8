"""Dividing the images of a cluster by their features, without training."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from autonovel.runs.geometry import reduced

Ints = npt.NDArray[np.int64]


def divide(features: npt.NDArray[np.floating], k: int) -> Ints:
    """(n,) k groups by k-means, the largest first; fewer where fewer images differ."""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer distinct points than groups, which the caller sees
        labels = KMeans(k, n_init=10, random_state=0).fit_predict(reduced(features))
    return largest_first(labels)


def largest_first(groups: npt.NDArray[np.integer]) -> Ints:
    """The same groups, numbered from 0 by size; equal sizes by their first image."""
    _, first, group, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    return np.argsort(order).astype(np.int64)[group]
