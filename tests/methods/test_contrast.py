"""SimCLR and MoCo: their losses told slowly, what MoCo keeps from step to step, resuming to the bit."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.data.loader import Batch, DeviceImages
from autonovel.machine.device import Mode
from autonovel.maths.contrastive import info_nce, nt_xent
from autonovel.methods.base import Method, Seen, Task, losses_of
from autonovel.methods.moco import MoCo, _groups
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.registry import home_of
from autonovel.settings.stages import PRETRAINING
from autonovel.training.engine import train
from autonovel.training.step import State

pytestmark = pytest.mark.usefixtures("flags_in_messages")

NAMES = ["simclr", "moco", "moco-v2"]
SIZE = 8
KEY, RAMP = torch.tensor(4711), torch.tensor(1.0)


def recipe_for(name: str, **contrast: object) -> Recipe:
    vary = Augment("crop", area=(0.4, 1.0), jitter=0.4, grey=0.2)
    queue = {} if name == "simclr" else {"queue": 20, "momentum": 0.9}
    own = {
        "epochs": 3,
        "batch": 12,
        "lr": 0.05,
        "weight_decay": 1e-4,
        "schedule": "steps",
        "warmup": 0,
        "augment": vary,
    }
    return Recipe(model=Model(width=4), pretrain=PRETRAINING[name](**own, **(queue | contrast)))


def prepared(name: str, backbone: str = "resnet18", **contrast: object) -> tuple[Net, Method]:
    """A small network with its head, and the method."""
    recipe = recipe_for(name, **contrast)
    recipe = replace(recipe, model=replace(recipe.model, backbone=backbone))
    method: Method = home_of(recipe.pretrain)(Task(recipe))
    with seeded(0):
        net = build(recipe.model, channels=3, size=SIZE)
        method.prepare(net)
    return net.train(), method


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8))


def batch_of(n: int = 12, seed: int = 0) -> Batch:
    index = torch.arange(n) * 7 + 3
    return Batch(pictures(n, seed), torch.full((n,), -1), index, index)


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


def trained(name: str, checkpoint: Memory | None = None, stop_after: int = 99) -> tuple[Net, Method, list[object]]:
    """The network and the method after three epochs of three steps, or of as many as it is let."""
    net, method = prepared(name)
    data = ImageSet.from_arrays(pictures(34).numpy(), np.where(np.arange(34) % 3, -1, np.arange(34) % 2))
    losses: list[object] = []

    def on_epoch(epoch: object) -> None:
        losses.append(epoch.losses)  # type: ignore[attr-defined]
        if epoch.number + 1 == stop_after:  # type: ignore[attr-defined]
            raise Stop

    mode = Mode.of("cpu")
    train(
        net,
        method,
        DeviceImages(data, mode.device),
        mode,
        key=(0, "pretrain"),
        checkpoint=checkpoint,
        on_epoch=on_epoch,
    )
    return net, method, losses


@pytest.mark.parametrize("name", NAMES)
def test_training_resumes_to_the_bit(name: str) -> None:
    whole, method, losses = trained(name)
    assert len(losses) == 3
    assert np.isfinite([list(epoch.values()) for epoch in losses]).all()
    checkpoint = Memory()
    with pytest.raises(Stop):
        trained(name, checkpoint, stop_after=1)
    assert checkpoint.kept is not None
    assert checkpoint.kept[1] == 1
    again, other, rest = trained(name, checkpoint)
    assert rest == losses[1:]
    for a, b in ((whole, again), (method, other)):
        for (key, left), right in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
            assert torch.equal(left, right), key


def test_training_learns_to_find_the_other_view() -> None:
    net, method = prepared("simclr")
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    values = []
    for _ in range(15):
        loss = losses_of(method, net, batch_of(), KEY, RAMP)["simclr"]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        values.append(loss.item())
    assert values[-1] < 0.8 * values[0]


def test_simclr_compares_the_projections_of_two_views() -> None:
    net, method = prepared("simclr", temperature=0.3)
    batch = batch_of()
    found = losses_of(method, net, batch, KEY, RAMP)
    first, second = (net.head("pretext", net.features(view)) for view in method.views(batch, KEY))
    torch.testing.assert_close(found["simclr"], nt_xent(first, second, 0.3))


@pytest.mark.parametrize("name", ["moco", "moco-v2"])
def test_moco_compares_with_a_queue_that_takes_in_the_keys(name: str) -> None:
    net, method = prepared(name)
    assert isinstance(method, MoCo)
    method.norm_groups = 1
    slow = copy.deepcopy(net)  # which the method's second network is a copy of
    queue = method.queue.clone()
    for step in range(3):
        batch = batch_of(12, seed=step)
        found = losses_of(method, net, batch, KEY, RAMP)["moco"]
        first, second = method.views(batch, KEY)
        queries, keys = (n.head("pretext", n.features(view)) for n, view in ((net, first), (slow, second)))
        torch.testing.assert_close(found, info_nce(queries, keys, queue, {"moco": 0.07, "moco-v2": 0.2}[name]))
        for row in range(12):
            queue[(12 * step + row) % 20] = keys[row].detach()
        torch.testing.assert_close(method.queue, queue)
        # the first network moves, the second follows by a tenth
        with torch.no_grad():
            for weight in net.parameters():
                weight += 0.01
            for weight, fast in zip(slow.parameters(), net.parameters(), strict=True):
                weight.lerp_(fast, 0.1)
        method.after_step(net)
    assert method.written.item() == 36


def test_only_the_first_network_learns_from_gradients() -> None:
    net, method = prepared("moco-v2")
    assert isinstance(method, MoCo)
    losses_of(method, net, batch_of(), KEY, RAMP)["moco"].backward()
    assert all(weight.grad is not None for weight in net.parameters())
    assert not any(weight.requires_grad for weight in method.parameters())
    assert not {id(weight) for weight in method.parameters()} & {id(weight) for weight in net.parameters()}


def test_the_second_network_starts_from_the_weights_that_the_first_was_given() -> None:
    net, method = prepared("moco")
    assert isinstance(method, MoCo)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(2)
    method.start_epoch(net, None, 0)  # type: ignore[arg-type]
    for slow, fast in zip(method.slow_backbone.parameters(), net.backbone.parameters(), strict=True):
        assert torch.equal(slow, fast)
    kept = method.slow_head.weight.clone()  # type: ignore[operator]
    net.heads["pretext"].weight.data.zero_()  # type: ignore[operator]
    method.start_epoch(net, None, 1)  # type: ignore[arg-type]
    assert torch.equal(method.slow_head.weight, kept)  # type: ignore[arg-type]


def test_keys_are_normalised_with_other_images_than_queries() -> None:
    net, method = prepared("moco")
    assert isinstance(method, MoCo)
    method.norm_groups = 3
    groups: list[list[int]] = []

    class Recorder(torch.nn.Identity):
        def forward(self, x: Tensor) -> Tensor:
            groups.append(x[:, 0, 0, 0].long().tolist())
            return x

    numbered = torch.arange(12.0)[:, None, None, None].expand(-1, 3, SIZE, SIZE).contiguous()
    net.backbone[0] = torch.nn.Sequential(Recorder(), net.backbone[0])
    method.slow_backbone[0] = torch.nn.Sequential(Recorder(), method.slow_backbone[0])
    method.losses(net, Seen([numbered, numbered], torch.full((12,), -1), torch.arange(12)), RAMP)
    query_rows, key_rows = groups
    assert query_rows == list(range(12))
    assert sorted(key_rows) == list(range(12))
    for start in range(
        0, 12, 4
    ):  # four images a group: those of one group of queries are spread over all groups of keys
        together = set(key_rows[start : start + 4])
        assert all(len(together & set(range(first, first + 4))) <= 2 for first in range(0, 12, 4))


def test_keys_belong_to_their_own_images() -> None:
    net, method = prepared("moco")
    assert isinstance(method, MoCo)
    method.norm_groups = 3
    net.eval()  # where nothing depends on the other images
    method.slow_backbone.eval()
    batch = batch_of()
    losses_of(method, net, batch, KEY, RAMP)
    second = net.head("pretext", net.features(method.views(batch, KEY)[1]))
    torch.testing.assert_close(method.queue[:12], second, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("images", "wanted", "groups"),
    [(512, 8, 8), (12, 8, 6), (8, 8, 4), (6, 2, 2), (100, 8, 5), (7, 8, 1), (1, 8, 1), (9, 1, 1)],
)
def test_groups_divide_the_batch_and_hold_two_images_or_more(images: int, wanted: int, groups: int) -> None:
    assert _groups(images, wanted) == groups


def test_a_queue_shorter_than_a_batch_is_refused_with_a_sentence() -> None:
    _, method = prepared("moco", queue=11)
    with pytest.raises(InputError, match=r"--pretrain.queue is 11; .* \(12\)\.$"):
        method.check((SIZE, SIZE, 3))


@pytest.mark.parametrize("name", ["simclr", "moco-v2"])  # moco is moco-v2 with less in it, and tracing takes seconds
def test_a_step_is_one_graph_without_a_look_at_values(name: str) -> None:
    net, method = prepared(name, backbone="small")  # tracing many layers takes long
    batch = batch_of()
    views = net.through_frozen(method.views(batch, KEY))

    def step(views: list[Tensor], labels: Tensor, index: Tensor) -> Tensor:
        return next(iter(method.losses(net, Seen(views, labels, index), RAMP).values()))

    state = copy.deepcopy(method.state_dict())
    expected = step(views, batch.labels, batch.index)
    after = copy.deepcopy(method.state_dict())
    method.load_state_dict(state)
    compiled = torch.compile(step, backend="eager", fullgraph=True, dynamic=False)
    found = compiled(views, batch.labels, batch.index)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    for key, value in method.state_dict().items():
        torch.testing.assert_close(value, after[key], rtol=1e-3, atol=1e-3)
    found.backward()
    assert all(weight.grad is not None for weight in net.parameters())
