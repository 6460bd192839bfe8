"""A pile that holds known classes: its old images are found between epochs and learned from as labelled ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autonovel.base.chance import seeded
from autonovel.data.loader import Batch
from autonovel.methods.base import Method, Task, losses_of
from autonovel.methods.joint import LOOKS
from autonovel.methods.supervised import KnownClasses
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.joint import OBJECTIVES
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.registry import home_of
from autonovel.settings.stages import Supervised
from tests.methods.test_choices import CPU, Memory, Stop, run_stage

N_KNOWN, N_NEW, EACH, SIZE = 3, 2, 40, 8
TRUTH = torch.arange(N_KNOWN + N_NEW).repeat_interleave(EACH)
CLUSTERING = [name for name, kind in OBJECTIVES.items() if kind.HOME and home_of(kind()).needs_number]
"""Where images compete for clusters."""
HIDDEN = (TRUTH < N_KNOWN) & (torch.arange(len(TRUTH)) % 3 == 0)


class Look:
    """Features in plainly separate classes."""

    seed = 0

    def __init__(self, labels: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        self._features = torch.eye(N_KNOWN + N_NEW, 12)[TRUTH] + 0.15 * torch.randn(len(TRUTH), 12, generator=generator)
        self.labels, self.asked = labels, 0

    @staticmethod
    def agreed(decide: Callable[[], Any]) -> Any:
        return decide()

    def features(self, index: Tensor) -> Tensor:
        self.asked += 1
        return self._features[index]


def labels_of(*, mixed: bool) -> Tensor:
    return torch.where((HIDDEN if mixed else torch.zeros_like(HIDDEN)) | (TRUTH >= N_KNOWN), -1, TRUTH)


def prepared(objective: str, pile: str, *, n_known: int = N_KNOWN, epochs: int = 8) -> tuple[Net, Method]:
    swap = objective == "swap"
    small = {"heads": 2, "hidden": 8, "projection": 8} if swap else {}
    recipe = Recipe(
        model=Model(width=4, head="cosine" if swap else "linear"),
        pile=pile,  # type: ignore[arg-type]
        supervised=Supervised(epochs=1),
        incremental=True,
        joint=OBJECTIVES[objective](epochs=epochs, batch=12, lr=0.1, augment=Augment("shift"), **small),
    )
    with seeded(0):
        net = build(recipe.model, channels=3, size=SIZE)
        if n_known:
            KnownClasses(Task(recipe, n_known)).prepare(net)
        method = home_of(recipe.joint)(Task(recipe, n_known, N_NEW, len(TRUTH)))
        method.prepare(net)
    return net.train(), method


@pytest.mark.parametrize("objective", CLUSTERING)
@pytest.mark.parametrize("pile", ["mixed", "auto"])
def test_old_images_of_the_pile_are_found_with_their_class(objective: str, pile: str) -> None:
    net, method = prepared(objective, pile)
    method.start_epoch(net, Look(labels_of(mixed=True)), 0)
    found = method.taken_for
    assert (found[HIDDEN] == TRUTH[HIDDEN]).float().mean() >= 0.8
    assert (found[found >= 0] == torch.where(HIDDEN, TRUTH, -1)[found >= 0]).all()  # nothing new, nothing labelled


def test_nothing_is_taken_for_old_in_a_pile_of_new_classes() -> None:
    net, method = prepared("swap", "auto")
    method.taken_for.fill_(1)  # of an earlier look
    method.start_epoch(net, Look(labels_of(mixed=False)), 0)
    assert (method.taken_for == -1).all()


@pytest.mark.parametrize(("pile", "n_known"), [("new", N_KNOWN), ("auto", 0)])
def test_where_nothing_can_be_old_nobody_looks(pile: str, n_known: int) -> None:
    net, method = prepared("swap", pile, n_known=n_known)
    look = Look(labels_of(mixed=True))
    method.start_epoch(net, look, 0)
    assert look.asked == 0
    assert "taken_for" not in method.state_dict()


@pytest.mark.parametrize("epochs", [1, 3, 7, 8, 21, 50])
def test_the_pile_is_looked_at_before_the_first_epoch_and_a_few_times_after(epochs: int) -> None:
    net, method = prepared("swap", "mixed", epochs=epochs)
    look, when = Look(labels_of(mixed=True)), []
    for epoch in range(epochs):
        before = look.asked
        method.start_epoch(net, look, epoch)
        when += [epoch] if look.asked > before else []
    assert when[0] == 0
    assert len(when) == min(LOOKS, epochs)


def batch_of(labels: Tensor) -> Batch:
    images = np.random.default_rng(0).integers(0, 256, (len(labels), SIZE, SIZE, 3), dtype=np.uint8)
    index = torch.arange(len(labels)) * 7 + 3
    return Batch(torch.from_numpy(images), labels, index, index)


@pytest.mark.parametrize("objective", CLUSTERING)
def test_what_is_taken_for_old_is_learned_from_as_if_it_were_labelled(objective: str) -> None:
    labels = torch.tensor([0, 1, 2, 0, -1, -1, -1, -1, -1, -1])
    found = torch.tensor([-1, -1, -1, -1, 2, 1, -1, -1, -1, -1])
    net, method = prepared(objective, "mixed")
    batch = batch_of(labels)
    method.taken_for[batch.index] = found
    method.taken_for[0] = 1  # an image of another batch
    one = torch.tensor(1.0)
    got = losses_of(method, net, batch, torch.tensor(7), one)
    net, method = prepared(objective, "new")
    expected = losses_of(method, net, batch_of(torch.maximum(labels, found)), torch.tensor(7), one)
    assert got.keys() == expected.keys()
    for name, loss in expected.items():
        torch.testing.assert_close(got[name], loss, msg=name)
    plain = losses_of(method, net, batch, torch.tensor(7), one)
    assert any(not torch.equal(plain[name], loss) for name, loss in expected.items())


def test_a_resumed_training_ends_in_the_same_bits() -> None:
    def train(checkpoint: Memory | None = None, stop_after: int = 99) -> tuple[Net, Method]:
        net, method = prepared("swap", "mixed", epochs=4)
        method.settings = replace(method.settings, lr=0.01)
        run_stage(net, method, CPU, checkpoint=checkpoint, stop_after=stop_after)
        return net, method

    whole, method = train()
    checkpoint = Memory()
    with pytest.raises(Stop):
        train(checkpoint, stop_after=2)
    assert checkpoint.kept is not None
    assert "method.taken_for" in checkpoint.kept[0]
    again, other = train(checkpoint)
    assert torch.equal(method.taken_for, other.taken_for)
    for (name, left), right in zip(whole.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(left, right), name
