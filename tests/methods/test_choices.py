"""Every choice of pre-training, pair rule (or neighbours) and depth, a few steps each; k-means over the pile on schedule."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages
from autonovel.machine.device import Mode
from autonovel.maths.pairs import PAIR_RULES, PairInput, rank_statistics
from autonovel.methods.base import Method, Task
from autonovel.methods.neighbours import Neighbours
from autonovel.methods.pairs import Pairs
from autonovel.methods.supervised import KnownClasses
from autonovel.models.net import Net, build
from autonovel.settings import registry
from autonovel.settings.augment import Augment
from autonovel.settings.fields import types_of, usual
from autonovel.settings.joint import NeighboursSettings, PairsSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.registry import home_of
from autonovel.settings.stages import PRETRAINING, Supervised
from autonovel.training.engine import train
from autonovel.training.step import State

pytestmark = pytest.mark.usefixtures("flags_in_messages")

SIZE, N_NEW = 8, 3
DEPTHS = ["heads", "layer4", "layer3", "layer2", "layer1", "all"]
CPU = Mode(torch.device("cpu"))
CUDA = Mode(torch.device("cuda"), torch.bfloat16, captured=True)


@cache
def tiny_images() -> ImageSet:
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(24) % 2, -1, np.arange(24) % 3)
    return ImageSet.from_arrays(rng.integers(0, 256, (24, SIZE, SIZE, 3), dtype=np.uint8), labels)


def recipe_for(pretraining: str = "rotation", **joint: object) -> Recipe:
    common = {"epochs": 1, "batch": 12, "lr": 0.01, "augment": Augment("shift")}
    own = {"ways": 2, "shots": 1, "queries": 1, "episodes": 2, "queue": 20}
    pretrain = usual(PRETRAINING[pretraining], "paper")
    return Recipe(
        model=Model(width=4),
        pretrain=replace(pretrain, **{n: v for n, v in (common | own).items() if n in types_of(type(pretrain))}),
        supervised=Supervised(**common, train_from="all"),
        joint=replace(PairsSettings(top_k=3, threshold=0.3, ramp=1, train_from="all", **common), **joint),
    )


def with_neighbours(pretraining: str = "rotation", depth: str = "all") -> Recipe:
    joint = NeighboursSettings(epochs=2, batch=12, lr=0.01, optimiser="sgd", train_from=depth)
    return replace(recipe_for(pretraining), joint=joint)


class Look:
    """What the pipeline answers a method between epochs."""

    seed = 0

    def __init__(self, net: Net) -> None:
        self._net = net
        self.labels = torch.from_numpy(tiny_images().labels)
        self.asked = 0

    @staticmethod
    def agreed(decide: Callable[[], Any]) -> Any:
        return decide()

    def features(self, index: Tensor) -> Tensor:
        self.asked += 1
        device = next(self._net.parameters()).device
        self._net.eval()
        with torch.no_grad():
            return self._net(torch.from_numpy(tiny_images().images)[index].to(device)).features.cpu()


class Memory:
    """A checkpoint in memory."""

    def __init__(self) -> None:
        self.kept: tuple[State, int] | None = None

    def load(self) -> tuple[State, int] | None:
        return self.kept

    def save(self, state: State, epochs_done: int) -> None:
        self.kept = ({name: value.clone() for name, value in state.items()}, epochs_done)


class Stop(Exception):
    pass


def run_stage(
    net: Net, method: Method, mode: Mode, *, checkpoint: Memory | None = None, stop_after: int = 99
) -> tuple[list[dict[str, float]], Look]:
    losses: list[dict[str, float]] = []
    with seeded(1):
        method.prepare(net)
    net.to(mode.device, memory_format=torch.channels_last)
    look = Look(net)

    def on_epoch(epoch: object) -> None:
        losses.append(epoch.losses)  # type: ignore[attr-defined]
        if epoch.number + 1 == stop_after:  # type: ignore[attr-defined]
            raise Stop

    images = DeviceImages(tiny_images(), mode.device)
    train(net, method, images, mode, key=(0, "x"), look=look, on_epoch=on_epoch, checkpoint=checkpoint)
    return losses, look


def new_net() -> Net:
    with seeded(0):
        return build(recipe_for().model, channels=3, size=SIZE)


def net_with_known_classes() -> Net:
    net = new_net()
    with seeded(0):
        KnownClasses(Task(recipe_for(), 3)).prepare(net)
    return net


def weights(net: torch.nn.Module) -> State:
    return {name: value.detach().cpu().clone() for name, value in net.state_dict().items()}


BLOCKS = ["stem", *DEPTHS[4:0:-1]]


def blocks_of(depth: str) -> set[str]:
    """What is to learn."""
    return set(BLOCKS if depth == "all" else BLOCKS[BLOCKS.index(depth) :] if depth != "heads" else [])


def moved_blocks(net: Net, start: State) -> set[str]:
    """What has learned."""
    moved = [
        name for name, value in net.named_parameters() if name in start and not torch.equal(value.cpu(), start[name])
    ]
    return {name.split(".")[1] for name in moved if name.startswith("backbone.")}


@pytest.mark.parametrize("where", [CPU, pytest.param(CUDA, marks=pytest.mark.gpu)], ids=["cpu", "captured"])
@pytest.mark.parametrize("pretraining", PRETRAINING)
def test_every_combination_trains(pretraining: str, where: Mode) -> None:
    recipe = recipe_for(pretraining)
    net = new_net()
    method = home_of(recipe.pretrain)
    if method is not None:
        losses, _ = run_stage(net, method(Task(recipe, n_images=24)), where)
        assert all(np.isfinite(value) for value in losses[0].values())
        net.drop_head("pretext")
    run_stage(net, KnownClasses(Task(recipe, 3, n_images=24)), where)
    start = weights(net)
    for rule in PAIR_RULES:
        for depth in DEPTHS:
            chosen = recipe_for(pretraining, pairs=rule, train_from=depth)
            net = net_with_known_classes()
            net.load_state_dict(start)
            losses, _ = run_stage(net, Pairs(Task(chosen, 3, N_NEW, 24)), where)
            assert losses[0].keys() == {"known", "pairs", "consistency"}
            assert all(np.isfinite(value) for value in losses[0].values()), (rule, depth)
            assert moved_blocks(net, start) == blocks_of(depth), (rule, depth)
    for depth in DEPTHS:
        chosen = with_neighbours(pretraining, depth)
        net = net_with_known_classes()
        net.load_state_dict(start)
        losses, _ = run_stage(net, Neighbours(Task(chosen, 3, N_NEW, 24)), where)
        assert losses[0].keys() == losses[1].keys() == {"known", "neighbours", "balance"}
        assert all(np.isfinite(value).all() for epoch in losses for value in epoch.values()), depth
        assert moved_blocks(net, start) == blocks_of(depth), depth


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*PRETRAINING, *PAIR_RULES, "neighbours"])
def test_every_choice_can_be_compiled(name: str) -> None:
    compiled = replace(CUDA, compiled=True)
    if name in PAIR_RULES:
        net, method = net_with_known_classes(), Pairs(Task(recipe_for(pairs=name), 3, N_NEW, 24))
    elif name == "neighbours":
        net, method = net_with_known_classes(), Neighbours(Task(with_neighbours(), 3, N_NEW, 24))
    elif (kind := home_of(recipe_for(name).pretrain)) is not None:
        net, method = new_net(), kind(Task(recipe_for(name), n_images=24))
    else:
        return
    losses, _ = run_stage(net, method, compiled)
    assert all(np.isfinite(value).all() for epoch in losses for value in epoch.values())


def test_the_names_of_rules_and_their_lines_agree() -> None:
    # which images are alike can be learned too, which is no function of their features
    assert [name for name in registry.PAIR_RULES if name != "learned"] == list(PAIR_RULES)


def test_rules_give_different_losses() -> None:
    found = {}
    for rule in PAIR_RULES:
        net = net_with_known_classes()
        losses, _ = run_stage(net, Pairs(Task(recipe_for(pairs=rule), 3, N_NEW, 24)), CPU)
        found[rule] = losses[0]["pairs"]
    assert len(set(found.values())) == len(found), found


# ---- k-means over the whole pile


def joined(checkpoint: Memory | None = None, stop_after: int = 99) -> tuple[Net, Pairs, list[object], Look]:
    recipe = recipe_for(pairs="kmeans-all", epochs=4)
    net, method = new_net(), Pairs(Task(recipe, 0, N_NEW, 24))
    losses, look = run_stage(net, method, CPU, checkpoint=checkpoint, stop_after=stop_after)
    return net, method, losses, look  # type: ignore[return-value]


def test_the_pile_is_clustered_before_each_epoch_and_resumes_to_the_bit() -> None:
    whole, method, losses, look = joined()
    assert look.asked == 4
    labels = torch.from_numpy(tiny_images().labels)
    assert set(method.clusters[labels < 0].tolist()) == set(range(N_NEW))
    assert (method.clusters[labels >= 0] == -1).all()
    checkpoint = Memory()
    with pytest.raises(Stop):
        joined(checkpoint, stop_after=2)
    assert checkpoint.kept is not None
    assert checkpoint.kept[1] == 2
    again, _, rest, _ = joined(checkpoint)
    assert rest == losses[2:]
    for (name, left), right in zip(whole.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(left, right), name


# ---- rules of one's own


def rank_three(given: PairInput) -> Tensor:
    """A rule as a user may write it."""
    return rank_statistics(given.features, 3)


def test_a_rule_of_ones_own_is_found_by_name() -> None:
    found = []
    for rule in ("rank", f"{__name__}:rank_three"):
        net = net_with_known_classes()
        losses, _ = run_stage(net, Pairs(Task(recipe_for(pairs=rule), 3, N_NEW, 24)), CPU)
        found.append(losses)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            "ranks",
            r"--joint.pairs is 'ranks'; choose one of rank, soft, .*, or MODULE:FUNCTION \(did you mean rank\?\)\.$",
        ),
        ("no_such_module:rule", r"--joint.pairs is 'no_such_module:rule', but that cannot be imported \(.*\)\.$"),
        (f"{__name__}:nothing", r"cannot be imported \(.*\)\.$"),
        (":rule", r"cannot be imported \(.*\)\.$"),
    ],
)
def test_a_rule_that_there_is_not_is_refused_with_a_sentence(rule: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs(Task(recipe_for(pairs=rule), 3, N_NEW, 24))
