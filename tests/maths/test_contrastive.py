"""Contrastive losses, queue and slowly moving weights against plain loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.maths.contrastive import follow, info_nce, labelled_nt_xent, nt_xent, push

SEEDS = st.integers(0, 2**31)
TEMPERATURES = st.sampled_from([0.07, 0.2, 0.5, 1.0])


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def slow_nt_xent(first: list[list[float]], second: list[list[float]], temperature: float) -> float:
    views, n, terms = first + second, len(first), []
    for i, view in enumerate(views):
        partner = views[i + n if i < n else i - n]
        others = sum(math.exp(cosine(view, other) / temperature) for j, other in enumerate(views) if j != i)
        terms.append(-math.log(math.exp(cosine(view, partner) / temperature) / others))
    return sum(terms) / len(terms)


def slow_labelled(
    first: list[list[float]], second: list[list[float]], labels: list[int], temperature: float, share: float
) -> float:
    views, n, terms = first + second, len(first), []
    for i, view in enumerate(views):
        others = sum(math.exp(cosine(view, other) / temperature) for j, other in enumerate(views) if j != i)

        def missed(j: int, view: list[float] = view, others: float = others) -> float:
            return -math.log(math.exp(cosine(view, views[j]) / temperature) / others)

        partner = missed(i + n if i < n else i - n)
        if labels[i % n] < 0:
            terms.append(partner)
            continue
        alike = [missed(j) for j in range(2 * n) if j != i and labels[j % n] == labels[i % n]]
        terms.append(share * sum(alike) / len(alike) + (1 - share) * partner)
    return sum(terms) / len(terms)


def slow_info_nce(
    queries: list[list[float]], keys: list[list[float]], queue: list[list[float]], temperature: float
) -> float:
    terms = []
    for query, key in zip(queries, keys, strict=True):
        own = math.exp(cosine(query, key) / temperature)
        terms.append(-math.log(own / (own + sum(math.exp(cosine(query, other) / temperature) for other in queue))))
    return sum(terms) / len(terms)


def draw(seed: int, *sizes: tuple[int, int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for size in sizes]


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 8), d=st.integers(1, 6), temperature=TEMPERATURES)
def test_nt_xent_agrees_with_the_loop(seed: int, n: int, d: int, temperature: float) -> None:
    first, second = draw(seed, (n, d), (n, d))
    expected = slow_nt_xent(first.tolist(), second.tolist(), temperature)
    assert nt_xent(first, second, temperature).item() == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert nt_xent(7 * second, first, temperature).item() == pytest.approx(expected, rel=1e-3, abs=1e-4)


@settings(max_examples=80, deadline=None)
@given(
    seed=SEEDS,
    labels=st.lists(st.integers(-1, 2), min_size=1, max_size=8),
    d=st.integers(1, 6),
    temperature=TEMPERATURES,
    share=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_labelled_contrast_agrees_with_the_loop(
    seed: int, labels: list[int], d: int, temperature: float, share: float
) -> None:
    n = len(labels)
    first, second = draw(seed, (n, d), (n, d))
    found = labelled_nt_xent(first, second, torch.tensor(labels), temperature, share).item()
    expected = slow_labelled(first.tolist(), second.tolist(), labels, temperature, share)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
    # an unlabelled batch, and a share of nothing for the class, leave SimCLR's loss
    plain = nt_xent(first, second, temperature).item()
    without = labelled_nt_xent(first, second, torch.full((n,), -1), temperature, share).item()
    assert without == pytest.approx(plain, rel=1e-4, abs=1e-5)
    if share == 0:
        assert found == pytest.approx(plain, rel=1e-4, abs=1e-5)


def test_the_labelled_contrast_has_a_gradient_everywhere() -> None:
    for labels in ([0, 0, 1, -1], [-1] * 4, [2] * 4):
        first, second = (part.requires_grad_() for part in draw(0, (4, 3), (4, 3)))
        labelled_nt_xent(first, second, torch.tensor(labels), 0.2, 0.5).backward()
        for part in (first, second):
            assert part.grad is not None
            assert part.grad.isfinite().all()
            assert part.grad.abs().sum() > 0


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, n=st.integers(1, 8), q=st.integers(1, 9), d=st.integers(1, 6), temperature=TEMPERATURES)
def test_info_nce_agrees_with_the_loop(seed: int, n: int, q: int, d: int, temperature: float) -> None:
    queries, keys, queue = draw(seed, (n, d), (n, d), (q, d))
    expected = slow_info_nce(queries.tolist(), keys.tolist(), queue.tolist(), temperature)
    assert info_nce(queries, keys, queue, temperature).item() == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_keys_and_queue_learn_nothing() -> None:
    queries, keys, queue = (x.requires_grad_() for x in draw(0, (4, 3), (4, 3), (6, 3)))
    info_nce(queries, keys, queue.detach(), 0.2).backward()
    assert queries.grad.abs().sum() > 0
    assert keys.grad is None


@pytest.mark.parametrize("kind", ["alike", "zero", "opposite"])
def test_losses_and_gradients_are_finite_at_the_edges(kind: str) -> None:
    first = {"alike": torch.ones(5, 3), "zero": torch.zeros(5, 3), "opposite": torch.ones(5, 3)}[kind].requires_grad_()
    second = -first.detach() if kind == "opposite" else first.detach()
    for loss in (nt_xent(first, second, 0.05), info_nce(first, second, second, 0.05)):
        (gradient,) = torch.autograd.grad(loss, first)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    assert nt_xent(torch.ones(1, 3), torch.ones(1, 3), 0.5).item() == 0  # one image has nothing to be mistaken for


# ---- the queue


@settings(max_examples=80, deadline=None)
@given(size=st.integers(1, 9), pushes=st.lists(st.integers(1, 9), max_size=6))
def test_a_queue_keeps_the_latest_rows(size: int, pushes: list[int]) -> None:
    queue, written = torch.zeros(size, 2, 3), torch.zeros((), dtype=torch.int64)
    slow: list[float | None] = [None] * size
    place = number = 0
    for count in pushes:
        n = min(count, size)
        rows = torch.arange(number + 1, number + n + 1).float()
        number += n
        for row in rows.tolist():
            slow[place % size] = row
            place += 1
        before = queue.clone()
        after, written = push(queue, written, rows[:, None, None].expand(-1, 2, 3))
        assert torch.equal(queue, before)  # the argument is left alone
        queue = after
    assert written.item() == place
    assert queue[:, 1, 2].tolist() == [row or 0.0 for row in slow]


def test_more_rows_than_places_are_refused_with_a_sentence() -> None:
    with pytest.raises(InputError, match=r"A queue of 3 cannot take 4 rows at once; .*\.$"):
        push(torch.zeros(3, 2), torch.tensor(0), torch.zeros(4, 2))


# ---- slowly moving weights


@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.999, 1.0])
def test_weights_follow_slowly(momentum: float) -> None:
    slow, fast = draw(1, (3, 2), (4, 1)), draw(2, (3, 2), (4, 1))
    expected = [momentum * s + (1 - momentum) * f for s, f in zip(slow, fast, strict=True)]
    kept = [f.clone() for f in fast]
    follow(slow, fast, momentum)
    for found, wanted, before, after in zip(slow, expected, kept, fast, strict=True):
        torch.testing.assert_close(found, wanted)
        assert torch.equal(before, after)


def test_weights_that_learn_can_be_followed() -> None:
    slow, fast = torch.nn.Linear(2, 2).requires_grad_(False), torch.nn.Linear(2, 2)
    follow(list(slow.parameters()), list(fast.parameters()), 0.0)
    assert torch.equal(slow.weight, fast.weight)
    assert slow.weight.grad_fn is None


# ---- part of a captured step


def test_each_is_one_graph_without_a_look_at_values() -> None:
    first, second, queue = draw(3, (6, 4), (6, 4), (8, 4))
    written = torch.tensor(5)

    def step(first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
        kept, count = push(queue, written, second)
        again, _ = push(kept, count, second)
        slow = [first.clone()]
        follow(slow, [second], 0.9)
        return [nt_xent(first, second, 0.5), info_nce(first, second, again, 0.2), again, *slow]

    compiled = torch.compile(step, backend="eager", fullgraph=True, dynamic=False)
    for found, wanted in zip(compiled(first, second), step(first, second), strict=True):
        torch.testing.assert_close(found, wanted)
