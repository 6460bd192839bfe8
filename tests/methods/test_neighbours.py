"""Clusters from nearest neighbours: what is found before the first epoch, what a batch holds, the training."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.loader import Batch
from autonovel.machine.device import Mode
from autonovel.methods.base import Seen, Task, losses_of
from autonovel.methods.neighbours import Neighbours
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.joint import NeighboursSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.stages import NoPretraining, Supervised
from tests.methods.test_choices import Memory, Stop, run_stage, tiny_images

pytestmark = pytest.mark.usefixtures("flags_in_messages")

SIZE, N_NEW, HEADS = 8, 3, 2
CPU = Mode(torch.device("cpu"))
KEY = torch.tensor(4711)
LABELS = torch.from_numpy(tiny_images().labels)


def recipe_for(epochs: int = 4, **settings: object) -> Recipe:
    own = NeighboursSettings(epochs=epochs, batch=10, lr=0.01, optimiser="sgd", nearest=3, heads=HEADS)
    return Recipe(model=Model(width=4), joint=replace(own, augment=Augment("scan", jitter=0.4), **settings))


def prepared(recipe: Recipe, n_known: int = 3) -> tuple[Net, Neighbours]:
    method = Neighbours(Task(recipe, n_known, N_NEW, len(LABELS)))
    with seeded(0):
        net = build(recipe.model, channels=3, size=SIZE)
        method.prepare(net)
    return net.train(), method


class Look:
    """Features that are given."""

    seed = 0

    def __init__(self, labels: Tensor, features: Tensor) -> None:
        self.labels, self._features, self.asked = labels, features, 0

    @staticmethod
    def agreed(decide: Callable[[], Any]) -> Any:
        return decide()

    def features(self, index: Tensor) -> Tensor:
        self.asked += 1
        return self._features[index]


def looked_at(pile: float = 0.5) -> Look:
    generator = torch.Generator().manual_seed(1)
    labels = torch.where(torch.rand(len(LABELS), generator=generator) < pile, -1, 1)
    return Look(labels, torch.randn(len(LABELS), 5, generator=generator))


def slow_neighbours(look: Look, count: int) -> dict[int, list[int]]:
    """By image of the pile: its nearest others there by the cosine, nearest first."""
    vectors = [row / np.linalg.norm(row) for row in look._features.double().numpy()]
    pile = [i for i, label in enumerate(look.labels.tolist()) if label < 0]
    return {i: sorted((j for j in pile if j != i), key=lambda j: -float(vectors[i] @ vectors[j]))[:count] for i in pile}


# ---- neighbours


@pytest.mark.parametrize("pile", [1.0, 0.6])
def test_neighbours_are_found_once_in_the_pile_alone(pile: float) -> None:
    net, method = prepared(recipe_for())
    look = looked_at(pile)
    for epoch in range(4):
        method.start_epoch(net, look, epoch)
    assert look.asked == 1
    assert method.neighbours.dtype == torch.int32
    expected = slow_neighbours(look, 3)
    for i, row in enumerate(method.neighbours.tolist()):
        assert row == expected.get(i, [i] * 3)


def test_all_processes_take_the_neighbours_that_the_first_one_found() -> None:
    net, method = prepared(recipe_for())
    look = looked_at(1.0)
    first = torch.arange(len(LABELS)).roll(1)[:, None].repeat(1, 3)
    look.agreed = lambda decide: first  # type: ignore[method-assign]
    method.start_epoch(net, look, 0)
    assert torch.equal(method.neighbours.long(), first)


def test_a_pile_of_few_images_has_each_neighbour_several_times() -> None:
    net, method = prepared(recipe_for(nearest=5))
    look = looked_at()
    look.labels = torch.where(torch.arange(len(LABELS)) < 3, -1, 0)
    method.start_epoch(net, look, 0)
    for i, (first, second) in slow_neighbours(look, 2).items():
        assert method.neighbours[i].tolist() == [first, second, first, second, first]


def test_the_second_half_of_a_batch_are_neighbours_of_the_first() -> None:
    net, method = prepared(recipe_for())
    look = looked_at(1.0)
    method.start_epoch(net, look, 0)
    order = method.order(look.labels, 0, "x", 0)
    plain = super(Neighbours, method).order(look.labels, 0, "x", 0)
    assert order.shape == plain.shape == (3, 10)
    assert torch.equal(order[:, :5], plain[:, :5])
    for image, other in zip(order[:, :5].flatten().tolist(), order[:, 5:].flatten().tolist(), strict=True):
        assert other in method.neighbours[image]
    assert torch.equal(order, method.order(look.labels, 0, "x", 0))
    assert not torch.equal(order, method.order(look.labels, 0, "x", 1))


# ---- losses


def slow_losses(net: Net, method: Neighbours, batch: Batch) -> dict[str, list[float]]:
    """By the definitions, row by row."""
    features = net.features_of(net.through_frozen(method.views(batch, KEY)))
    plain, varied = (scores.detach().double().softmax(2).numpy() for scores in net.head_of("new", features))
    labels, half = batch.labels.tolist(), len(batch.labels) // 2
    apart, uneven = [], []
    for head in range(HEADS):
        logs, said = [], []
        for i in range(half):
            if labels[i] < 0:
                said += [plain[head, i], varied[head, i]]
                if labels[half + i] < 0:
                    logs.append(-np.log(plain[head, i] @ varied[head, half + i]))
                    logs.append(-np.log(varied[head, i] @ plain[head, half + i]))
        apart.append(np.mean(logs) if logs else 0.0)
        mean = np.mean(said, 0) if said else np.full(N_NEW, 1 / N_NEW)
        uneven.append(np.log(N_NEW) + (mean * np.log(mean)).sum())
    weight = method.settings.balance
    found = {
        "neighbours": [a / HEADS for a in apart],
        "balance": [weight * u / HEADS for u in uneven],
    }
    if "known" in net.heads:
        views = [scores.detach().double().log_softmax(1) for scores in net.head_of("known", features)]
        rows = [[-float(view[i, label]) for i, label in enumerate(labels) if label >= 0] for view in views]
        found["known"] = [float(np.mean([np.mean(row) if row else 0.0 for row in rows]))]
    return found


@pytest.mark.parametrize(
    "labels",
    [[-1] * 10, [0, 1, -1, -1, -1, -1, -1, 2, -1, -1], [0, 1, 2] * 3 + [1], [-1] * 3],
    ids=["pile", "mixed", "labelled", "three rows"],
)
def test_the_losses_are_those_of_loops(labels: list[int]) -> None:
    net, method = prepared(recipe_for(), n_known=3 if max(labels) >= 0 else 0)
    method.head_losses.copy_(torch.tensor([0.3, 0.2]))
    index = torch.arange(len(labels)) * 7 + 3
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (len(labels), SIZE, SIZE, 3), dtype=np.uint8))
    batch = Batch(images, torch.tensor(labels), index, index)
    with torch.no_grad():
        expected = slow_losses(net, method, batch)
        before = method.head_losses.clone()
        found = losses_of(method, net, batch, KEY, torch.tensor(0.5))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value.reshape(-1), expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    gained = HEADS * (found["neighbours"] + found["balance"])
    torch.testing.assert_close(method.head_losses, before + gained)


def test_a_step_is_one_graph_without_a_look_at_values() -> None:
    recipe = recipe_for()
    net, method = prepared(
        replace(recipe, model=replace(recipe.model, backbone="small"))
    )  # tracing many layers takes long
    index, labels = torch.arange(10), torch.tensor([0, 1, 2] + [-1] * 7)
    batch = Batch(torch.from_numpy(tiny_images().images[:10]), labels, index, index)
    views, ramp = net.through_frozen(method.views(batch, KEY)), torch.tensor(0.5)

    def step(views: list[Tensor]) -> Tensor:
        return torch.stack([loss.sum() for loss in method.losses(net, Seen(views, labels, index), ramp).values()])

    expected, counted = step(views), method.head_losses.clone()
    method.head_losses.zero_()
    found = torch.compile(step, backend="eager", fullgraph=True, dynamic=False)(views)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(method.head_losses, counted, rtol=1e-3, atol=1e-4)
    found.sum().backward()
    assert all(weight.grad is not None for weight in net.parameters())


# ---- training


def trained(checkpoint: Memory | None = None, stop_after: int = 99) -> tuple[Net, Neighbours, list[dict[str, float]]]:
    net, method = prepared(recipe_for(epochs=6), n_known=0)
    losses, look = run_stage(net, method, CPU, checkpoint=checkpoint, stop_after=stop_after)
    method.finish(net, look, losses[-1])
    return net, method, losses


def test_a_training_learns_and_resumes_to_the_bit() -> None:
    whole, method, losses = trained()
    assert all(np.sum(loss["neighbours"]) > 0 for loss in losses)
    assert int(whole.answering_head) == int(method.head_losses.argmin())
    mean = method.head_losses / len(method.order(LABELS, 0, "x", 0))
    np.testing.assert_allclose(
        mean, HEADS * (np.array(losses[-1]["neighbours"]) + np.array(losses[-1]["balance"])), rtol=1e-4
    )
    for stop_after in (1, 3, 5):
        checkpoint = Memory()
        with pytest.raises(Stop):
            trained(checkpoint, stop_after)
        again, other, rest = trained(checkpoint)
        assert rest == losses[stop_after:]
        for left, right in ((whole, again), (method, other)):
            for name, value in left.state_dict().items():
                assert torch.equal(value, right.state_dict()[name]), name


def test_features_that_nothing_has_taught_are_refused() -> None:
    untaught = replace(recipe_for(), pretrain=NoPretraining())
    with pytest.raises(
        InputError, match=r"needs features to find neighbours in; use --pretrain.method simclr with one epoch or more"
    ):
        prepared(untaught, n_known=0)
    with pytest.raises(InputError, match="needs features"):
        prepared(replace(untaught, supervised=Supervised(epochs=0)))
    prepared(untaught)  # the known classes teach
