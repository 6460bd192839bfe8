"""Every loss against plain loops, on random and degenerate inputs; masks, gradients, batches where nothing counts."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.maths.losses import (
    balanced_targets,
    consistency,
    cross_entropy,
    log_picked,
    masked_mean,
    mean_entropy_loss,
    pair_loss,
    set_divergence,
)

SEEDS = st.integers(0, 2**31)
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 6))


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    parts = [math.exp(value - top) for value in row]
    return [part / sum(parts) for part in parts]


def slow_cross_entropy(scores: list[list[float]], labels: list[int], mask: list[bool]) -> float:
    terms = [-math.log(softmax(row)[label]) for row, label, counts in zip(scores, labels, mask, strict=True) if counts]
    return sum(terms) / len(terms) if terms else 0.0


def slow_pair_loss(
    first: list[list[float]], second: list[list[float]], same: list[list[float]], mask: list[bool]
) -> float:
    terms = []
    for i in range(len(first)):
        for j in range(len(second)):
            if mask[i] and mask[j]:
                score = sum(a * b for a, b in zip(first[i], second[j], strict=True))
                terms.append(-math.log(same[i][j] * score + (1 - same[i][j]) * (1 - score) + 1e-7))
    return sum(terms) / len(terms) if terms else 0.0


def slow_consistency(first: list[list[float]], second: list[list[float]]) -> float:
    terms = [(a - b) ** 2 for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(terms) / len(terms)


def slow_balanced(
    scores: list[list[float]], mask: list[bool], epsilon: float, iterations: int, prior: list[float] | None = None
) -> list[list[float]]:
    """Sinkhorn on one head: clusters get their mass, then images, in turn."""
    counts = [i for i, taken in enumerate(mask) if taken]
    clusters = range(len(scores[0]))
    q = {(i, c): math.exp(scores[i][c] / epsilon) for i in counts for c in clusters}
    for _ in range(iterations):
        for c in clusters:
            total = sum(q[i, c] for i in counts)
            for i in counts:
                q[i, c] *= (prior[c] if prior else 1.0) / total
        for i in counts:
            total = sum(q[i, c] for c in clusters)
            for c in clusters:
                q[i, c] /= total
    return [[q.get((i, c), 0.0) for c in clusters] for i in range(len(scores))]


def draw(seed: int, n: int, c: int, scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and a mask."""
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(n, c, generator=generator)
    labels = torch.randint(c, (n,), generator=generator)
    mask = torch.rand(n, generator=generator) < [0.0, 0.3, 0.7, 1.0][seed % 4]
    return scores, labels, mask


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, size=SIZES)
def test_cross_entropy_agrees_with_the_loop(seed: int, size: tuple[int, int]) -> None:
    scores, labels, mask = draw(seed, *size)
    expected = slow_cross_entropy(scores.tolist(), labels.tolist(), mask.tolist())
    # labels of rows that do not count may be anything, as -1 is for unlabelled images
    labels = torch.where(mask, labels, -1)
    assert cross_entropy(scores, labels, mask).item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, size=SIZES, kind=st.sampled_from(["hard", "soft", "all", "none"]))
def test_pair_loss_agrees_with_the_loop(seed: int, size: tuple[int, int], kind: str) -> None:
    n, _ = size
    first, second = (draw(seed + view, *size)[0].softmax(1) for view in range(2))
    mask = draw(seed, *size)[2]
    soft = torch.rand(n, n, generator=torch.Generator().manual_seed(seed))
    same = {"hard": (soft < 0.3).float(), "soft": soft, "all": torch.ones(n, n), "none": torch.zeros(n, n)}[kind]
    expected = slow_pair_loss(first.tolist(), second.tolist(), same.tolist(), mask.tolist())
    # a class count of one makes every score 1, where 1 - score is rounding noise of the size of the added constant
    tolerance = 1e-3 if size[1] > 1 else 1.0
    assert pair_loss(first, second, same, mask).item() == pytest.approx(expected, rel=tolerance, abs=1e-4)


def test_pair_loss_counts_ordered_pairs_and_the_diagonal() -> None:
    first = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    second = torch.tensor([[0.6, 0.4], [0.5, 0.5]])
    same = torch.eye(2)
    expected = -(math.log(0.58) + math.log(1 - 0.5) + math.log(1 - 0.44) + math.log(0.5)) / 4
    assert pair_loss(first, second, same, torch.tensor([True, True])).item() == pytest.approx(expected, rel=1e-5)
    # one image has one pair: itself in the other view
    alone = pair_loss(first, second, same, torch.tensor([True, False])).item()
    assert alone == pytest.approx(-math.log(0.58), rel=1e-5)
    swapped = pair_loss(second, first, torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([True, True])).item()
    straight = pair_loss(first, second, torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([True, True])).item()
    assert swapped != pytest.approx(straight, rel=1e-3)  # the first view is in the rows


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, size=SIZES)
def test_consistency_agrees_with_the_loop(seed: int, size: tuple[int, int]) -> None:
    first, second = (draw(seed + view, *size)[0].softmax(1) for view in range(2))
    expected = slow_consistency(first.tolist(), second.tolist())
    assert consistency(first, second).item() == pytest.approx(expected, rel=1e-4, abs=1e-8)
    assert consistency(first, first).item() == 0


def test_consistency_moves_both_views() -> None:
    first, second = (torch.randn(4, 3).requires_grad_() for _ in range(2))
    consistency(first, second).backward()
    assert torch.allclose(first.grad, -second.grad)
    assert first.grad.abs().sum() > 0


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, size=SIZES, epsilon=st.sampled_from([0.03, 0.05, 0.3, 1.0]), rounds=st.integers(1, 5))
def test_balanced_targets_agree_with_the_loop(seed: int, size: tuple[int, int], epsilon: float, rounds: int) -> None:
    n, c = size
    scores = 2 * torch.rand(2, n, c, generator=torch.Generator().manual_seed(seed)) - 1
    mask = draw(seed, n, c)[2]
    found = balanced_targets(scores, mask, epsilon=epsilon, iterations=rounds)
    assert found.shape == scores.shape
    for head in range(2):
        expected = slow_balanced(scores[head].tolist(), mask.tolist(), epsilon, rounds)
        np.testing.assert_allclose(found[head].numpy(), expected, rtol=1e-3, atol=1e-6)
    sums = found.sum(2)
    assert torch.allclose(sums, mask.float().expand_as(sums), atol=1e-5)


def test_balanced_targets_use_all_clusters_even_when_all_images_prefer_one() -> None:
    scores = torch.zeros(1, 30, 3)
    scores[..., 0] = 0.4
    scores += 0.1 * torch.rand(1, 30, 3, generator=torch.Generator().manual_seed(0))
    found = balanced_targets(scores, torch.ones(30, dtype=torch.bool), epsilon=0.05, iterations=50)
    assert torch.allclose(found.sum(1), torch.full((1, 3), 10.0), atol=0.05)


def test_balanced_targets_of_equal_scores_are_uniform() -> None:
    found = balanced_targets(torch.full((2, 6, 4), 0.7), torch.ones(6, dtype=torch.bool), epsilon=0.05, iterations=3)
    assert torch.allclose(found, torch.full((2, 6, 4), 0.25))


def test_balanced_targets_ignore_rows_outside_the_mask() -> None:
    scores = 2 * torch.rand(1, 8, 4, generator=torch.Generator().manual_seed(0)) - 1
    mask = torch.tensor([True, False] * 4)
    alone = balanced_targets(scores[:, mask], torch.ones(4, dtype=torch.bool), epsilon=0.05, iterations=3)
    scores[:, ~mask] = 1e4  # a known image may have any score at the heads of the new classes
    found = balanced_targets(scores, mask, epsilon=0.05, iterations=3)
    assert torch.allclose(found[:, mask], alone)
    assert not found[:, ~mask].any()


# ---- clusters of unequal size


def shares(seed: int, *size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed + 1)).softmax(-1)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, size=SIZES, epsilon=st.sampled_from([0.05, 0.3]), rounds=st.integers(1, 5), by_head=st.booleans())
def test_targets_with_given_sizes_agree_with_the_loop(
    seed: int, size: tuple[int, int], epsilon: float, rounds: int, by_head: bool
) -> None:
    n, c = size
    scores = 2 * torch.rand(2, n, c, generator=torch.Generator().manual_seed(seed)) - 1
    mask = draw(seed, n, c)[2]
    prior = shares(seed, 2, c) if by_head else shares(seed, c)
    found = balanced_targets(scores, mask, epsilon=epsilon, iterations=rounds, prior=prior)
    for head in range(2):
        own = (prior[head] if by_head else prior).tolist()
        expected = slow_balanced(scores[head].tolist(), mask.tolist(), epsilon, rounds, own)
        np.testing.assert_allclose(found[head].numpy(), expected, rtol=1e-3, atol=1e-6)


def test_targets_have_the_sizes_asked_for_and_equal_ones_are_the_default() -> None:
    scores = 2 * torch.rand(2, 60, 3, generator=torch.Generator().manual_seed(0)) - 1
    everything = torch.ones(60, dtype=torch.bool)
    prior = torch.tensor([0.7, 0.2, 0.1])
    found = balanced_targets(scores, everything, epsilon=0.05, iterations=100, prior=prior)
    assert torch.allclose(found.sum(1), 60 * prior.expand(2, 3), atol=0.05)
    equal = balanced_targets(scores, everything, epsilon=0.05, iterations=3, prior=torch.full((3,), 1 / 3))
    torch.testing.assert_close(equal, balanced_targets(scores, everything, epsilon=0.05, iterations=3))


# ---- divergences


def slow_divergence(a: list[float], b: list[float], bound: float = math.inf) -> float:
    """Half the sum of both Kullback-Leibler divergences of log-probabilities."""
    a_cut, b_cut = ([max(value, -bound) for value in row] for row in (a, b))
    forth = sum(math.exp(p) * (x - y) for p, x, y in zip(a, a_cut, b_cut, strict=True))
    back = sum(math.exp(q) * (y - x) for q, x, y in zip(b, a_cut, b_cut, strict=True))
    return (forth + back) / 2


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, size=SIZES, bound=st.sampled_from([math.inf, 2.0, 0.5]))
def test_divergence_of_sets_is_the_mean_over_all_pairs(seed: int, size: tuple[int, int], bound: float) -> None:
    log_p = torch.stack([draw(seed + head, *size)[0].log_softmax(1) for head in range(2)])
    first = draw(seed, *size)[2]
    found = set_divergence(log_p, first, ~first, bound=bound)
    for head in range(2):
        rows = log_p[head].tolist()
        pairs = [
            slow_divergence(a, b, bound)
            for a, counts in zip(rows, first.tolist(), strict=True)
            if counts
            for b, other in zip(rows, first.tolist(), strict=True)
            if not other
        ]
        expected = sum(pairs) / len(pairs) if pairs else 0.0
        assert found[head].item() == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert 0 <= round(expected, 6) <= bound


def test_nothing_is_gained_beyond_the_bound() -> None:
    scores = (40 * torch.eye(4)[[0, 0, 2, 3]]).requires_grad_()
    first = torch.tensor([True, True, False, False])
    set_divergence(scores.log_softmax(1), first, ~first, bound=10.0).backward()
    assert scores.grad.abs().max() < 1e-6
    scores.grad = None
    set_divergence(scores.log_softmax(1), first, ~first).backward()
    assert scores.grad.abs().max() > 0.1


@given(seed=SEEDS, size=SIZES, share=st.floats(0, 1))
def test_picking_agrees_with_the_loop(seed: int, size: tuple[int, int], share: float) -> None:
    scores = torch.randn(2, *size, generator=torch.manual_seed(seed)) * 4
    found = log_picked(scores, share)
    for head in range(2):
        rows, columns = scores[head].tolist(), scores[head].T.tolist()
        for i in range(size[0]):
            for c in range(size[1]):
                by_image, by_class = math.log(softmax(rows[i])[c]), math.log(softmax(columns[c])[i])
                assert found[head, i, c].item() == pytest.approx((1 - share) * by_image + share * by_class, abs=1e-4)


def test_a_class_pushes_off_an_image_that_comes_close_to_it_however_sure_that_is_of_another() -> None:
    close = torch.tensor(
        [[40.0, 5.0], [0.0, 6.0], [0.0, 6.0]]
    )  # the first image is sure of class 0 and close to class 1
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    pushes = []
    for share in (0.0, 1.0):
        scores = close.clone().requires_grad_()
        (-(targets * log_picked(scores, share)).sum()).backward()
        assert scores.grad is not None
        pushes.append(float(scores.grad[0, 1]))
    assert pushes[0] < 1e-12
    assert pushes[1] == pytest.approx(2 * math.exp(-1) / (2 + math.exp(-1)))


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, size=SIZES)
def test_mean_entropy_agrees_with_the_loop(seed: int, size: tuple[int, int]) -> None:
    scores, _, mask = draw(seed, *size)
    rows = [softmax(row) for row, counts in zip(scores.tolist(), mask.tolist(), strict=True) if counts]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)] if rows else []
    expected = math.log(size[1]) + sum(mean * math.log(mean) for mean in means) if rows else 0.0
    assert mean_entropy_loss(scores.softmax(1), mask).item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_mean_entropy_is_zero_when_clusters_are_used_equally_and_largest_when_one_is() -> None:
    everything = torch.ones(4, dtype=torch.bool)
    assert mean_entropy_loss(torch.eye(4), everything).item() == pytest.approx(0, abs=1e-6)
    assert mean_entropy_loss(torch.eye(4)[[1, 1, 1, 1]], everything).item() == pytest.approx(math.log(4))


# ---- the edges


def losses_of(scores: Tensor, mask: Tensor) -> dict[str, Callable[[], Tensor]]:
    n = len(scores)
    labels = torch.where(mask, 0, -1)
    return {
        "cross entropy": lambda: cross_entropy(scores, labels, mask),
        "pairs": lambda: pair_loss(scores.softmax(1), scores.softmax(1).flip(0), torch.eye(n), mask),
        "unlike pairs": lambda: pair_loss(scores.softmax(1), scores.softmax(1), torch.zeros(n, n), mask),
        "like pairs": lambda: pair_loss(scores.softmax(1), scores.softmax(1), torch.ones(n, n), mask),
        "consistency": lambda: consistency(scores.softmax(1), scores.softmax(1).flip(0)),
        "sets apart": lambda: (
            -set_divergence(scores.log_softmax(1), mask & (torch.arange(n) < n // 2), mask, bound=20.0)
        ),
        "mean entropy": lambda: mean_entropy_loss(scores.softmax(1), mask),
    }


MASKED = ["cross entropy", "pairs", "unlike pairs", "like pairs", "sets apart", "mean entropy"]


@pytest.mark.parametrize("name", MASKED)
def test_a_batch_in_which_no_row_counts_gives_zero_and_zero_gradients(name: str) -> None:
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = losses_of(scores, torch.zeros(6, dtype=torch.bool))[name]()
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert not scores.grad.any()  # and not NaN, which would count as true


def test_no_row_that_counts_gives_no_target() -> None:
    found = balanced_targets(torch.randn(2, 5, 3), torch.zeros(5, dtype=torch.bool), epsilon=0.05, iterations=3)
    assert found.shape == (2, 5, 3)
    assert not found.any()


@pytest.mark.parametrize("name", [*MASKED, "consistency"])
@pytest.mark.parametrize("kind", ["certain", "very certain", "equal", "one row", "one class"])
def test_losses_and_gradients_are_finite_at_the_edges(name: str, kind: str) -> None:
    scores = {
        "certain": 30 * torch.eye(5)[[0, 0, 1, 2, 2]],
        "very certain": 1e4 * torch.eye(5)[[0, 0, 0, 4, 4]],
        "equal": torch.zeros(6, 5),
        "one row": torch.randn(1, 5),
        "one class": torch.randn(6, 1),
    }[kind].requires_grad_()
    loss = losses_of(scores, torch.ones(len(scores), dtype=torch.bool))[name]()
    loss.backward()
    assert loss.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, scale=st.sampled_from([1.0, 30.0, 1e3]), classes=st.integers(2, 40))
def test_pair_loss_of_saturated_answers_is_finite(seed: int, scale: float, classes: int) -> None:
    # rounding can lift an inner product of two probability vectors to one; the loss of unlike pairs must survive that
    scores = (scale * torch.randn(12, classes, generator=torch.Generator().manual_seed(seed))).requires_grad_()
    loss = pair_loss(scores.softmax(1), scores.softmax(1), torch.zeros(12, 12), torch.ones(12, dtype=torch.bool))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_masked_mean() -> None:
    values = torch.tensor([1.0, 5.0, 3.0])
    assert masked_mean(values, torch.tensor([True, False, True])).item() == 2
    assert masked_mean(values, torch.tensor([True, True, True])).item() == 3
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)).item() == 0


def test_each_is_one_graph_without_a_look_at_values() -> None:
    def step(scores: Tensor, mask: Tensor) -> list[Tensor]:
        log_p, prior = scores.log_softmax(-1), scores.softmax(-1).mean(1)
        return [
            balanced_targets(scores, mask, epsilon=0.05, iterations=3, prior=prior),
            log_picked(scores, 0.5),
            set_divergence(log_p, mask, ~mask, bound=9.0),
            mean_entropy_loss(log_p.exp(), mask),
        ]

    compiled = torch.compile(step, backend="eager", fullgraph=True, dynamic=False)
    scores = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).tanh()
    for mask in (torch.arange(6) < 4, torch.arange(6) < 0):
        for found, wanted in zip(compiled(scores, mask), step(scores, mask), strict=True):
            torch.testing.assert_close(found, wanted)
