"""Anchored k-means against a version written in plain loops, scikit-learn, and properties that must always hold."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.kmeans import kmeans
from autonovel.maths.lloyd import lloyd
from autonovel.maths.points import Points
from autonovel.maths.sweep import Sweep, merge_centres


def blobs(n: int = 300, dim: int = 6, classes: int = 5, spread: float = 0.3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    labels[:classes] = torch.arange(classes)
    centres = torch.randn(classes, dim, generator=generator)
    return centres[labels] + spread * torch.randn(n, dim, generator=generator), labels


def some_anchors(labels: Tensor, classes: int, every: int = 3) -> Tensor:
    """Every third point of the first classes is held."""
    anchors = torch.full_like(labels, -1)
    held = (labels < classes) & (torch.arange(len(labels)) % every == 0)
    anchors[held] = labels[held]
    anchors[:classes] = torch.arange(classes)
    return anchors


def loop_kmeans(points: Tensor, start: Tensor, anchors: Tensor, max_iter: int = 300) -> tuple[list[int], list, float]:
    """Lloyd's algorithm, one point at a time, in Python numbers."""
    x, centres = points.double().tolist(), start.double().tolist()
    held = anchors.tolist()

    def gap(p: list[float], c: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(p, c, strict=True))

    labels: list[int] = []
    for _ in range(max_iter):
        fresh = []
        for p, h in zip(x, held, strict=True):
            gaps = [gap(p, c) for c in centres]
            fresh.append(h if h >= 0 else gaps.index(min(gaps)))
        for cluster in range(len(centres)):
            if cluster not in fresh:
                able = [h < 0 and fresh.count(c) > 1 for c, h in zip(fresh, held, strict=True)]
                far = [gap(p, centres[c]) if a else -1 for p, c, a in zip(x, fresh, able, strict=True)]
                fresh[far.index(max(far))] = cluster
        if fresh == labels:
            break
        labels = fresh
        for cluster in range(len(centres)):
            members = [p for p, c in zip(x, labels, strict=True) if c == cluster]
            centres[cluster] = [sum(column) / len(members) for column in zip(*members, strict=True)]
    return labels, centres, sum(gap(p, centres[c]) for p, c in zip(x, labels, strict=True))


@pytest.mark.parametrize("n_anchors", [0, 1, 3])
@pytest.mark.parametrize("k", [3, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_same_as_plain_loops(n_anchors: int, k: int, seed: int) -> None:
    points, truth = blobs(120, 4, 5, 0.8, seed)
    anchors = some_anchors(truth, n_anchors) if n_anchors else torch.full_like(truth, -1)
    start = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[:k]]
    ours = kmeans(points, k, anchors=anchors, init=start, tol=0)
    labels, centres, inertia = loop_kmeans(points, start, anchors)
    assert ours.labels.tolist() == labels
    torch.testing.assert_close(ours.centres.double(), torch.tensor(centres, dtype=torch.float64), rtol=1e-4, atol=1e-5)
    assert ours.inertia == pytest.approx(inertia, rel=1e-5)


def test_empty_clusters_are_repaired_like_in_the_loops() -> None:
    points, _ = blobs(60, 3, 3)
    start = torch.cat([points[:2], torch.full((3, 3), 50.0)])  # three centres that nothing is near to
    ours = kmeans(points, 5, init=start, tol=0)
    assert torch.bincount(ours.labels, minlength=5).min() > 0
    labels, _, inertia = loop_kmeans(points, start, torch.full((60,), -1))
    assert ours.labels.tolist() == labels
    assert ours.inertia == pytest.approx(inertia, rel=1e-5)


def test_all_restarts_at_once_equal_one_by_one() -> None:
    points, truth = blobs(200, 5, 6, 0.9)
    anchors = some_anchors(truth, 2)
    starts = torch.stack([points[torch.randperm(200)[:6]] for _ in range(5)])
    together = kmeans(points, 6, anchors=anchors, init=starts)
    alone = min((kmeans(points, 6, anchors=anchors, init=start) for start in starts), key=lambda r: r.inertia)
    assert together.labels.equal(alone.labels)
    assert together.n_iter == alone.n_iter
    assert together.inertia == pytest.approx(alone.inertia, rel=1e-6)


@pytest.mark.parametrize("k", [2, 10, 40])
def test_inertia_as_good_as_scikit_learn(k: int) -> None:
    points = load_digits().data.astype(np.float32)
    theirs = KMeans(k, n_init=10, random_state=0).fit(points)
    ours = kmeans(torch.from_numpy(points), k)
    assert ours.inertia <= theirs.inertia_ * 1.01
    own = torch.from_numpy(points) - ours.centres[ours.labels]
    assert ours.inertia == pytest.approx(own.double().square().sum().item(), rel=1e-5)


def test_sweep_is_as_good_as_scikit_learn_at_every_k() -> None:
    points, _ = blobs(500, 16, 12, 0.5)
    results = dict(Sweep(points).chain(range(2, 21)))
    assert sorted(results) == list(range(2, 21))
    for k in (2, 5, 12, 20):
        theirs = KMeans(k, n_init=10, random_state=0).fit(points.numpy())
        assert results[k].inertia <= theirs.inertia_ * 1.02
        assert results[k].labels.max() == k - 1
    assert all(results[k].inertia < results[k - 1].inertia for k in range(3, 21))


def test_chunks_and_moves_give_the_same_as_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    points, truth = blobs(500, 6, 7, 0.9)
    anchors = some_anchors(truth, 3)
    whole = kmeans(points, 9, anchors=anchors, restarts=4)
    monkeypatch.setattr("autonovel.maths.points.CPU_ROWS", 37)
    for module in ("points", "lloyd"):
        monkeypatch.setattr(f"autonovel.maths.{module}.CPU_BLOCK", 200)
    pieces = kmeans(points, 9, anchors=anchors, restarts=4)
    assert whole.labels.equal(pieces.labels)
    assert whole.inertia == pytest.approx(pieces.inertia, rel=1e-6)


def test_seeding_starts_from_the_anchor_centres_and_draws_free_points() -> None:
    points, truth = blobs(100, 3, 4)
    anchors = some_anchors(truth, 2)
    prepared = Points(points, anchors)
    centres = prepared.seed_centres(6, 2, torch.Generator().manual_seed(0)) * prepared.scale + prepared.mean
    for c in range(2):
        torch.testing.assert_close(centres[0, c], points[anchors == c].mean(0), rtol=1e-4, atol=1e-5)
    free = points[anchors < 0]
    for centre in centres[:, 2:].flatten(0, 1):
        assert (free - centre).abs().sum(1).min() < 1e-4
    assert not centres[0, 2:].equal(centres[1, 2:])


def test_a_seed_means_one_result() -> None:
    points, _ = blobs(200, 4, 6, 1.0)
    first, second = kmeans(points, 8, restarts=2, seed=3), kmeans(points, 8, restarts=2, seed=3)
    assert first.labels.equal(second.labels)
    assert first.centres.equal(second.centres)


def test_far_from_the_origin_nothing_is_lost() -> None:
    points, _ = blobs(300, 4, 5, 0.1)
    near, far = kmeans(points.double(), 5), kmeans(points.double() + 1e6, 5)
    assert near.labels.equal(far.labels)
    assert far.centres.dtype == torch.float64
    assert far.inertia == pytest.approx(near.inertia, rel=1e-4)
    assert kmeans(points * 2.0**100, 5).labels.equal(kmeans(points, 5).labels)
    assert kmeans((points * 100).half(), 5, restarts=20).inertia == pytest.approx(near.inertia * 1e4, rel=0.01)


def test_merging_takes_the_cheapest_pair_and_never_two_anchors() -> None:
    centres = torch.tensor([[[0.0], [0.1], [5.0], [5.5], [9.0]]])
    counts = torch.tensor([[1.0, 1, 1, 3, 1]])
    torch.testing.assert_close(merge_centres(centres, counts, 4, 0)[0, :, 0], torch.tensor([0.05, 9.0, 5.0, 5.5]))
    merged = merge_centres(centres, counts, 4, 2)[0, :, 0]
    torch.testing.assert_close(merged, torch.tensor([0.0, 0.1, 5.375, 9.0]))
    torch.testing.assert_close(merge_centres(centres, counts, 2, 2)[0, 0], torch.tensor([0.0]))


coordinates = st.integers(-3, 3)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, int, Tensor]:
    """Small integer points, hence many duplicates and ties; some are anchors."""
    dim = draw(st.integers(1, 3))
    n = draw(st.integers(3, 24))
    points = torch.tensor(draw(st.lists(st.lists(coordinates, min_size=dim, max_size=dim), min_size=n, max_size=n)))
    n_anchors = draw(st.integers(0, min(3, n - 1)))
    anchors = torch.full((n,), -1)
    anchors[:n_anchors] = torch.arange(n_anchors)
    if n_anchors:
        extra = draw(st.lists(st.integers(-1, n_anchors - 1), min_size=n - n_anchors, max_size=n - n_anchors))
        anchors[n_anchors:] = torch.tensor(extra)
    free = int((anchors < 0).sum())
    k = draw(st.integers(max(1, n_anchors), min(8, n_anchors + free) if free else max(1, n_anchors)))
    return points.float(), k, anchors


@settings(max_examples=80, deadline=None)
@given(problems(), st.integers(0, 5))
def test_properties_on_degenerate_points(problem: tuple[Tensor, int, Tensor], seed: int) -> None:
    points, k, anchors = problem
    result = kmeans(points, k, anchors=anchors, restarts=2, seed=seed)
    held = anchors >= 0
    assert result.labels[held].equal(anchors[held])
    assert result.labels.min() >= 0
    assert result.labels.max() < k
    assert torch.isfinite(result.centres).all()
    # Every free point is at the nearest centre, and the inertia is what it says.
    gaps = torch.cdist(points.double(), result.centres.double()).square()
    own = gaps.gather(1, result.labels[:, None])[:, 0]
    assert (own[~held] <= gaps[~held].amin(1) + 1e-4).all()
    assert result.inertia == pytest.approx(own.sum().item(), abs=1e-3)
    # Distinct points are never left without a cluster of their own while there are clusters to give.
    if not held.any() and len(torch.unique(points, dim=0)) <= k:
        assert result.inertia == pytest.approx(0, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 8), st.integers(0, 2))
def test_inertia_never_rises(seed: int, k: int, n_anchors: int) -> None:
    points, truth = blobs(60, 3, 5, 1.0, seed)
    anchors = some_anchors(truth, n_anchors) if n_anchors else None
    prepared = Points(points, anchors)
    start = prepared.seed_centres(k, 2, torch.Generator().manual_seed(seed))
    history = [lloyd(prepared, start, max_iter=i, tol=0).inertia for i in range(1, 12)]
    for before, after in pairwise(history):
        assert (after <= before * (1 + 1e-5)).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(0, 2))
def test_permuting_the_points_permutes_the_labels(seed: int, k: int, n_anchors: int) -> None:
    points, truth = blobs(50, 3, 4, 1.0, seed)
    anchors = some_anchors(truth, n_anchors) if n_anchors else torch.full_like(truth, -1)
    start = points[:k]
    order = torch.randperm(50, generator=torch.Generator().manual_seed(seed))
    straight = kmeans(points, k, anchors=anchors, init=start)
    permuted = kmeans(points[order], k, anchors=anchors[order], init=start)
    assert permuted.labels.equal(straight.labels[order])
    torch.testing.assert_close(permuted.centres, straight.centres, rtol=1e-4, atol=1e-5)


def test_constant_and_duplicate_points() -> None:
    constant = kmeans(torch.full((20, 3), 7.3), 4)
    assert constant.inertia == 0
    torch.testing.assert_close(constant.centres[constant.labels], torch.full((20, 3), 7.3))
    twice, _ = blobs(40, 3, 4)
    single = kmeans(twice, 4)
    double = kmeans(torch.cat([twice, twice]), 4, init=single.centres)
    assert double.labels[:40].equal(double.labels[40:])
    assert double.inertia == pytest.approx(2 * single.inertia, rel=1e-4)


def test_free_points_that_lie_on_their_anchors() -> None:
    # the inertia is nothing, or a little less by rounding
    for seed in range(100):
        held = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        result = kmeans(held.repeat(2, 1), 4, anchors=torch.tensor([0, 1, 2, 3, -1, -1, -1, -1]))
        assert result.labels.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_all_points_anchored_and_as_many_clusters_as_points() -> None:
    points, _ = blobs(10, 3, 2)
    anchors = torch.arange(10) % 2
    result = kmeans(points, 2, anchors=anchors)
    assert result.labels.equal(anchors)
    torch.testing.assert_close(result.centres[1], points[1::2].mean(0))
    assert kmeans(points, 10).inertia == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("points", "k", "anchors", "message"),
    [
        (torch.rand(5, 2), 6, None, "too many"),
        (torch.rand(5, 2), 0, None, "at least 1"),
        (torch.rand(5, 2), 1, torch.tensor([0, 1, -1, -1, -1]), "at least 2"),
        (torch.rand(5, 2), 5, torch.tensor([0, 0, 0, 0, -1]), "too many"),
        (torch.rand(5, 2), 3, torch.tensor([0, 2, -1, -1, -1]), "without a gap"),
        (torch.rand(5, 2), 3, torch.tensor([0, -2, -1, -1, -1]), "without a gap"),
        (torch.rand(5, 2), 3, torch.zeros(4, dtype=torch.int64), "5 integers"),
        (torch.rand(5, 2), 3, torch.zeros(5), "5 integers"),
        (torch.tensor([[0.0], [math.nan]]), 1, None, "row 1"),
        (torch.tensor([[math.inf], [-math.inf]]), 1, None, "row 0"),
        (torch.rand(5), 1, None, "two-dimensional"),
        (torch.ones(5, 2, dtype=torch.int64), 1, None, "floats"),
        (torch.rand(0, 2), 1, None, "empty"),
    ],
)
def test_refused_with_a_sentence(points: Tensor, k: int, anchors: Tensor | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kmeans(points, k, anchors=anchors)


def test_bad_start_and_restarts_are_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        kmeans(torch.rand(9, 2), 3, init=torch.rand(2, 2))
    with pytest.raises(InputError, match="restart"):
        kmeans(torch.rand(9, 2), 3, restarts=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_gpu_gives_the_result_of_the_cpu() -> None:
    points, truth = blobs(2000, 32, 12, 0.4)
    anchors = some_anchors(truth, 4)
    cpu = dict(Sweep(points, anchors=anchors, restarts=3).chain(range(4, 20)))
    gpu = dict(Sweep(points.cuda(), anchors=anchors.cuda(), restarts=3).chain(range(4, 20)))
    for k in cpu:
        assert gpu[k].inertia == pytest.approx(cpu[k].inertia, rel=1e-3)
    assert gpu[12].labels.cpu().equal(cpu[12].labels)
