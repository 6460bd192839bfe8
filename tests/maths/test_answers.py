"""The choice between groupings, against scikit-learn's silhouette and trees on planted clusters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import silhouette_score

from autonovel.errors import InputError
from autonovel.maths import answers
from autonovel.maths.answers import choose_answer, groupings, unit_features
from autonovel.maths.metrics import cluster_accuracy


def planted(sizes: list[int], seed: int = 0, spread: float = 0.05) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    points = np.eye(len(sizes), 6)[labels] + rng.normal(0, spread, (len(labels), 6))
    return torch.from_numpy(points).float(), torch.from_numpy(labels)


@given(n=st.integers(6, 25), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_grouping_with_the_highest_silhouette_is_taken(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = torch.from_numpy(rng.normal(size=(n, 3))).float()
    rows = {str(i): torch.from_numpy(rng.permutation(np.arange(n) % 3)) for i in range(4)}
    choice = choose_answer(points, rows, margin=0)
    expected = {name: silhouette_score(points.numpy(), labels.numpy()) for name, labels in rows.items()}
    for name, score in expected.items():
        assert choice.scores[name] == pytest.approx(score, abs=1e-3)
    assert choice.scores[choice.name] == max(choice.scores.values())
    assert torch.equal(choice.labels, rows[choice.name])


def test_heads_that_split_the_large_class_are_replaced_and_right_ones_stay() -> None:
    points, truth = planted([60, 20, 6])
    equal = torch.arange(86) // 29  # what equal sizes make of it
    found = choose_answer(points, {"heads": equal} | groupings(points, 3))
    assert found.name != "heads"
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) == 1
    renumbered = (truth + 1) % 3
    assert choose_answer(points, {"heads": renumbered} | groupings(points, 3)).name == "heads"


def test_the_first_stays_unless_another_is_better_by_the_margin() -> None:
    points, truth = planted([20, 20, 20], spread=0.2)
    worse = truth.clone()
    worse[0] = 1
    candidates = {"heads": worse, "kmeans": truth}
    gap = choose_answer(points, candidates).scores
    difference = gap["kmeans"] - gap["heads"]
    assert difference > 0
    assert choose_answer(points, candidates, margin=difference * 0.9).name == "kmeans"
    assert choose_answer(points, candidates, margin=difference * 1.1).name == "heads"


def test_an_answer_with_a_single_cluster_is_the_last_choice() -> None:
    points, truth = planted([8, 8])
    choice = choose_answer(points, {"heads": torch.zeros(16, dtype=torch.int64), "kmeans": truth})
    assert choice.name == "kmeans"
    assert choice.scores["heads"] == -1
    alone = choose_answer(points, {"heads": torch.zeros(16, dtype=torch.int64)})
    assert alone.name == "heads"


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_is_that_of_scikit_learn(seed: int) -> None:
    points, _ = planted([20, 9, 4], seed, spread=0.4)
    expected = AgglomerativeClustering(3, linkage="average").fit_predict(points.double().numpy())
    assert cluster_accuracy(expected, groupings(points, 3)["tree"].numpy()) == 1


def test_large_piles_go_without_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _ = planted([5, 5])
    monkeypatch.setattr(answers, "TREE_POINTS", 9)
    assert groupings(points, 2).keys() == {"kmeans"}


def test_each_network_has_length_one() -> None:
    features = torch.tensor([[3.0, 4.0, 0.0, 2.0], [0.0, 0.0, 5.0, 12.0]])
    expected = [[0.6, 0.8, 0.0, 1.0], [0.0, 0.0, 5 / 13, 12 / 13]]
    torch.testing.assert_close(unit_features(features, 2), torch.tensor(expected))
    with pytest.raises(InputError, match="4 features"):
        unit_features(features, 3)


def test_nothing_to_choose_from_is_refused() -> None:
    with pytest.raises(InputError, match="no grouping"):
        choose_answer(torch.zeros(2, 2), {})
