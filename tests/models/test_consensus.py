"""Several networks as one: the matching against all permutations, and answers that must not depend on the numbering."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autonovel.base.chance import seeded
from autonovel.models.consensus import Consensus, match_heads
from autonovel.models.net import Net, build
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import Model, Recipe
from tests.tiny import joint_method, known_classes


@settings(deadline=None, max_examples=30)
@given(heads=st.integers(1, 4), clusters=st.integers(2, 4), n=st.integers(1, 12), seed=st.integers(0, 1000))
def test_matching_is_the_best_of_all_permutations(heads: int, clusters: int, n: int, seed: int) -> None:
    p = torch.randn(heads, n, clusters, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(2)
    orders = [list(order) for order in itertools.permutations(range(clusters))]

    def with_reference(a: int) -> float:
        return sum(max(float((p[a] * p[b][:, order]).sum()) for order in orders) for b in range(heads))

    numbering = match_heads(p)
    assert numbering.shape == (heads, clusters)
    assert all(sorted(row) == list(range(clusters)) for row in numbering.tolist())
    # some head is the reference: it keeps its own numbers, all others are matched to it, and no other head would agree more
    agreed = [sum(float((p[a] * p[b][:, numbering[b]]).sum()) for b in range(heads)) for a in range(heads)]
    assert max(agreed) == pytest.approx(max(with_reference(a) for a in range(heads)), rel=1e-5)


def trained(recipe: Recipe, n_known: int, n_new: int, seed: int = 0) -> Net:
    with seeded(seed):
        net = build(recipe.model, channels=1, size=8)
        if n_known:
            known_classes(recipe, n_known).prepare(net)
        joint_method(recipe, n_known, n_new).prepare(net)
    return net.eval()


RECIPES = {
    "swap": Recipe(
        model=Model("small", 4, head="cosine"),
        joint=SwapSettings(heads=2, hidden=8, projection=4),
    ),
    "pairs": Recipe(model=Model("small", 4)),
    "incremental": Recipe(model=Model("small", 4), incremental=True),
}


@torch.no_grad()
@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize("n_known", [3, 0])
def test_networks_that_differ_only_in_their_numbers_answer_as_one_of_them(kind: str, n_known: int) -> None:
    recipe, n_new = RECIPES[kind], 4
    images = torch.randint(0, 256, (60, 8, 8, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    net, other = trained(recipe, n_known, n_new), trained(recipe, n_known, n_new)
    order = torch.tensor([2, 0, 3, 1])
    state = {name: value.clone() for name, value in net.state_dict().items()}
    for name in (
        "classes",
        "0.weight",
        "0.bias",
    ):  # all that belongs to single clusters, of projected and of plain heads
        if (whole := f"heads.new.{name}") in state:
            state[whole] = state[whole].index_select(1 if name == "classes" else 0, order)
    if net.extended:
        rows = torch.cat([torch.arange(n_known), n_known + order])
        for name in ("heads.known.weight", "heads.known.bias"):
            state[name] = state[name][rows]
    other.load_state_dict(state)
    together = Consensus.of([net, other], images.split(25), torch.float32)
    features, joint, new = together(images)
    z = net.features(images.permute(0, 3, 1, 2).float() / 255)
    heads = net.head("new", z).softmax(2)
    # both networks count alike, so the answer is the mean over the heads of either, up to the numbering
    expected = Consensus([net], match_heads(heads)[None])(images)
    renumbered = match_heads(torch.stack([expected[2].exp(), new.exp()]))
    back = renumbered[1] if renumbered[0].tolist() == list(range(n_new)) else renumbered[0].argsort()
    torch.testing.assert_close(new[:, back].exp(), expected[2].exp())
    torch.testing.assert_close(features, torch.cat([z, z], 1))
    numbers = torch.cat([torch.arange(n_known), n_known + back])
    torch.testing.assert_close(joint[:, numbers].exp(), expected[1].exp())
    torch.testing.assert_close(joint.exp().sum(1), torch.ones(60))
    if len(heads) == 1 and n_known:
        torch.testing.assert_close(expected[2].exp().amax(1), heads[0].amax(1))
        torch.testing.assert_close(expected[1].softmax(1), net(images)[1].softmax(1))
