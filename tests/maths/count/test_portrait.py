"""What points show without labels, against scipy and plain loops."""

import math

import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage

from autonovel.maths.count.portrait import neighbour_overlap, portray, principal_components
from autonovel.maths.known_space import unit
from autonovel.maths.metrics import cluster_accuracy
from tests.maths.planted import classes


def test_the_tree_is_cut_as_scipy_cuts_it() -> None:
    points, labels = classes(6)
    portrait = portray(points)
    x = unit(points.double())
    tree = linkage(x.numpy(), "ward")
    for k in (1, 2, 6, 17, 80):
        assert portrait.clusters(portrait.cut(k)) == k
        assert fcluster(tree, k, "maxclust").max() == k
    assert cluster_accuracy(labels.numpy(), fcluster(tree, 6, "maxclust")) > 0.99


def test_a_portrait_of_small_clusters_is_bounded_and_shows_the_classes() -> None:
    points, _ = classes(6, per_class=200)
    portrait = portray(points, ratio=10.0)
    assert portrait.n == 120
    falls = portrait.levels[:-1] - portrait.levels[1:]
    assert int(falls[:20].argmax()) + 2 == 6  # levels[k - 2] and levels[k - 1] are the ends of k clusters


def test_principal_components_keep_the_distances() -> None:
    for shape in ((30, 8), (8, 30)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        reduced = principal_components(x, 30)
        torch.testing.assert_close(torch.cdist(reduced, reduced), torch.cdist(x, x), rtol=1e-6, atol=1e-6)


def test_neighbour_overlap_as_in_plain_loops() -> None:
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    gaps = torch.cdist(x, x)
    for position, k in ((0, 2), (3, 9)):
        near = [sorted((j for j in range(30) if j != i), key=lambda j: gaps[i, j].item())[:k] for i in range(30)]
        share = [len(set(near[i]) & set(near[j])) / k for i in range(30) for j in near[i]]
        assert neighbour_overlap(x)[position] == pytest.approx(math.log(sum(share) / len(share)), abs=1e-5)
