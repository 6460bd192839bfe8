"""Which clusters are one class, against loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.base.errors import InputError
from autonovel.maths.cluster_graph import (
    MORE_EVEN,
    ONE_CLASS,
    POSSIBLE,
    TWO_CLASSES,
    Join,
    about_number,
    cluster_sizes,
    holding_several,
    merged,
    merging_order,
    number_by_heads,
    number_left,
)


def slow_ranks(said: np.ndarray, members: dict[int, list[int]]) -> dict[tuple[int, int], tuple[float, float]]:
    """Image by image, pair by pair: the share of images between two clusters, and the cosine of their probabilities."""
    answers = [int(row.argmax()) for row in said]
    found = {}
    for a in members:
        for b in members:
            if a < b:
                sums = [[sum((np.float32(row[c]) for c in members[x]), np.float32(0)) for x in (a, b)] for row in said]
                either = sum(min(pair) >= POSSIBLE for pair in sums)
                smaller = min(sum(answer in members[x] for answer in answers) for x in (a, b))
                one, other = (np.array([float(pair[i]) for pair in sums]) for i in (0, 1))
                cosine = float(one @ other / np.sqrt((one @ one) * (other @ other)))
                found[a, b] = (either / max(1, smaller), cosine)
    return found


@given(n=st.integers(1, 12), k=st.integers(1, 5), sharp=st.sampled_from([0.0, 1.0, 4.0]), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_those_with_most_images_between_them_are_merged_and_of_these_the_most_alike(
    n: int, k: int, sharp: float, seed: int
) -> None:
    said = (sharp * torch.randn(n, k, generator=torch.Generator().manual_seed(seed))).softmax(1)
    members = {c: [c] for c in range(k)}
    for into, other, share in merging_order(said):
        ranks = slow_ranks(said.numpy(), members)
        most = max(found for found, _ in ranks.values())
        assert share == pytest.approx(most) == pytest.approx(ranks[into, other][0])
        assert ranks[into, other][1] >= max(cosine for found, cosine in ranks.values() if found == most) - 1e-4
        members[into] += members.pop(other)
    assert len(members) == 1


def line(parts: list[tuple[int, int]], per: int = 100, border: int = 30) -> Tensor:
    """Sure images of each cluster, and for each of these pairs images that are in doubt between the two."""
    k = max(max(pair) for pair in parts) + 1
    rows = [torch.eye(k).repeat_interleave(per, 0)]
    rows += [(torch.eye(k)[a] + torch.eye(k)[b]).mul(0.5).repeat(border, 1) for a, b in parts]
    return torch.cat(rows)


def test_halves_are_merged_and_classes_are_not() -> None:
    said = line([(0, 3), (1, 4), (2, 5)])
    order = merging_order(said)
    assert {(merge.into, merge.other) for merge in order[:3]} == {(0, 3), (1, 4), (2, 5)}
    assert number_left(order, cluster_sizes(said)) == 3
    assert merged(order, 3).tolist() == [0, 1, 2, 0, 1, 2]
    assert merged(order, 6).tolist() == list(range(6))
    assert merged(order, 1).tolist() == [0] * 6
    with pytest.raises(InputError, match="cannot be merged into 7"):
        merged(order, 7)
    assert number_by_heads([torch.eye(4).repeat(20, 1)]) == 4  # nothing between any two


def test_a_head_that_has_learned_nothing_says_nothing() -> None:
    everything = line([(0, 1), (1, 2), (0, 2)])
    for said in (everything, torch.full((30, 4), 0.25), torch.ones(5, 1)):
        assert number_by_heads([said]) is None
    assert number_left([], torch.tensor([5])) is None
    assert number_left([Join(0, 1, TWO_CLASSES)], torch.tensor([5, 5])) is None


def test_heads_vote() -> None:
    says = {n: line([*((0, c) for c in range(1, 7 - n)), (5, 5)]) for n in range(2, 7)}
    assert {n: number_by_heads([said]) for n, said in says.items()} == {n: n for n in range(2, 7)}
    assert number_by_heads([says[3], says[3], says[4], says[2]]) == 3
    assert number_by_heads([says[3], says[4]]) == 4
    cannot = torch.full((30, 4), 0.25)
    assert number_by_heads([says[3], says[3], cannot]) == 3
    assert number_by_heads([says[3], cannot]) is None
    assert number_by_heads([]) is None


def test_in_doubt_clusters_are_merged_where_that_makes_classes_more_equal() -> None:
    sizes = torch.tensor([100, 100, 100, 100])
    doubtful = (ONE_CLASS + TWO_CLASSES) / 2
    # one pair is a class for sure, the other may be: two classes of 200 rather than one of 200 and two of 100
    assert number_left([Join(0, 1, ONE_CLASS), Join(2, 3, doubtful), Join(0, 2, 0.0)], sizes) == 2
    # three clusters may be one class, but the fourth is as large as they are together only if they are not
    three = [Join(0, 1, ONE_CLASS), Join(0, 2, doubtful)]
    assert number_left([*three, Join(0, 3, 0.0)], torch.tensor([40, 30, 30, 100])) == 2
    assert number_left([*three, Join(0, 3, 0.0)], torch.tensor([40, 30, 70, 70])) == 3
    # equal clusters stay as they are: one pair would be twice as large, and if all have partners nothing is gained
    assert number_left([Join(0, 1, doubtful), Join(2, 3, 0.01), Join(0, 2, 0.0)], sizes) == 4
    pairs = [Join(0, 1, doubtful), Join(2, 3, doubtful), Join(0, 2, 0.0)]
    assert number_left(pairs, sizes) == 4
    assert number_left(pairs, torch.tensor([100, 102, 98, 101])) == 4
    # below the doubtful share nothing is merged, however much more equal it would be
    little = TWO_CLASSES - 0.001
    assert number_left([Join(0, 1, ONE_CLASS), Join(2, 3, little), Join(0, 2, 0.0)], sizes) == 3


@given(
    shares=st.lists(st.floats(0, 0.3), min_size=1, max_size=6),
    sizes=st.lists(st.integers(0, 50), min_size=7, max_size=7),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_number_agrees_with_the_slow_account(shares: list[float], sizes: list[int], seed: int) -> None:
    chance, k = np.random.default_rng(seed), len(shares) + 1
    alive, order = list(range(k)), []
    for share in [*shares[:-1], 0.0]:
        into, other = sorted(chance.choice(alive, 2, replace=False).tolist())
        order.append(Join(into, other, share))
        alive.remove(other)
    members, allowed = [[c] for c in range(k)], []

    def spread() -> float:
        groups = [sum(sizes[c] for c in group) for group in members if group]
        mean = sum(groups) / len(groups)
        return (sum((size - mean) ** 2 for size in groups) / len(groups)) ** 0.5 / max(mean, 1e-12)

    sure, open_to = True, True
    for done, merge in enumerate(order):
        sure, open_to = sure and merge.between >= ONE_CLASS, open_to and merge.between >= TWO_CLASSES
        if not sure:
            allowed.append((spread(), k - done))
        if not open_to:
            break
        members[merge.into] += members[merge.other]
        members[merge.other] = []
    first, best = allowed[0][0], min(spread for spread, _ in allowed)
    found = number_left(order, torch.tensor(sizes[:k]))
    if abs(first - best - MORE_EVEN) > 1e-9:  # else rounding decides
        wanted = [number for value, number in allowed if value <= best + 1e-9]
        assert found in (wanted if first - best > MORE_EVEN else [allowed[0][1]])


@given(n=st.integers(1, 40), k=st.integers(1, 4), classes=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_clusters_that_hold_several_classes(n: int, k: int, classes: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    cluster, group = chance.integers(0, k, n), chance.integers(0, classes, n)
    slow = []
    for c in range(k):
        inside = [group[i] for i in range(n) if cluster[i] == c]
        parts = [g for g in set(inside) if inside.count(g) >= len(inside) / 4]
        own = [g for g in parts if 2 * inside.count(g) > sum(1 for x in group if x == g)]
        slow += [c] if len(own) > 1 else []
    assert holding_several(torch.from_numpy(cluster), torch.from_numpy(group), k) == slow


def in_doubt(k: int, pairs: list[tuple[int, int]], per: int = 40, border: int = 12) -> Tensor:
    """Sure images of each of k clusters, and images in doubt between these pairs; always as many rows."""
    unit_rows = torch.eye(k)
    rows = [unit_rows.repeat_interleave(per * 12 // k, 0)]
    rows += [((unit_rows[a] + unit_rows[b]) / 2).repeat(border, 1) for a, b in pairs]
    said = torch.cat(rows)
    return torch.cat([said, said[: 12 * per + 12 * border - len(said)]])


def test_heads_say_which_clusters_are_one_class() -> None:
    halves, whole = in_doubt(4, [(0, 1), (2, 3)]), in_doubt(4, [])
    said = about_number(halves, [halves, halves, whole], [])
    assert said["n_new"] == 2
    assert sorted(merge[:2] for merge in said["order"][:2]) == [[0, 1], [2, 3]]
    assert said["mixed"] == []
    assert about_number(halves, [whole, whole, halves], [])["n_new"] == 4  # most heads see four
    assert about_number(halves, [torch.full_like(halves, 0.25)] * 3, [])["n_new"] is None


def test_heads_that_answer_together_are_not_averaged() -> None:
    halves = in_doubt(4, [(0, 1), (2, 3)])
    order = torch.tensor([2, 0, 3, 1])
    other = halves[:, order.argsort()]  # the same, under other numbers: its cluster order[c] is class c
    mean = torch.full_like(halves, 0.25)  # as heads with different opinions make it
    said = about_number(mean, [halves, other], [], torch.stack([torch.arange(4), order]))
    assert sorted(merge[:2] for merge in said["order"][:2]) == [[0, 1], [2, 3]]


def test_over_clustering_heads_say_which_clusters_hold_several() -> None:
    answers = in_doubt(2, [])
    # clusters 0 to 2 lie in cluster 0; 3 and the halves 4 and 5 of one class in cluster 1
    finer = in_doubt(6, [(4, 5)])
    said = about_number(answers, [answers] * 2, [finer] * 3)
    assert (said["n_new"], said["mixed"]) == (5, [0, 1])
    thirds = in_doubt(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)])
    assert about_number(answers, [answers] * 2, [thirds] * 3)["n_new"] == 2
    assert about_number(answers, [answers] * 2, [])["n_new"] == 2
