"""What the processes of tests/machine/test_processes.py do: ``python -m tests.together FILE`` in each of two processes."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest
import torch

from autonovel.answers.network import answer_together
from autonovel.base.chance import seeded
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages, StreamedImages
from autonovel.machine.device import Mode
from autonovel.machine.processes import ALONE, World, end, join, leave
from autonovel.maths.count.estimate import estimate_classes
from autonovel.maths.count.probes import Effort
from autonovel.methods.base import Method
from autonovel.models.net import Net, build
from autonovel.settings.recipe import Recipe
from autonovel.settings.stages import PrototypicalSettings
from autonovel.training.engine import train
from tests.tiny import joint_method, known_classes, pretraining
from tests.training.test_engine import tiny_images, tiny_recipe

KINDS = ["rotation", "prototypical", "supervised", "pairs", "incremental", "mlp", "swap", "adam", "streamed"]
"""Kinds of training that give in several processes what they give in one."""
LONG = ["incremental", "swap"]
"""Those that are followed for more than 20 steps in single precision."""

ESTIMATORS = ["calibrated", "paper", "silhouette"]


@contextmanager
def double_precision() -> Iterator[None]:
    """Everything in float64: two ways to the same result then agree to many digits, however far training amplifies
    rounding, and a gradient that is wrong by a factor shows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


def recipe_of(kind: str, epochs: int, lr: float) -> Recipe:
    """Batches that two processes cannot halve: 31 images for joint training, 15 before; 3 or more steps an epoch."""
    recipe = tiny_recipe({"mlp": "incremental", "streamed": "pairs"}.get(kind, kind), epochs)
    joint = replace(recipe.joint, lr=lr, batch=31, train_from="all" if kind == "swap" else "layer2")
    return replace(
        recipe,
        model=replace(
            recipe.model,
            backbone="small",
            width=4,
            head="mlp" if kind == "mlp" else recipe.model.head,
            temperature=0.4,
        ),
        pretrain=PrototypicalSettings(
            **vars(replace(recipe.pretrain, lr=lr)), ways=3, shots=2, queries=3, episodes=3, turns=True
        )
        if kind == "prototypical"
        else replace(recipe.pretrain, lr=lr, batch=15),
        supervised=replace(recipe.supervised, lr=lr, batch=15, train_from="layer2"),
        joint=replace(joint, small_views=0, by_class=0.3) if kind == "swap" else joint,
    )


def prepare(recipe: Recipe, kind: str, data: ImageSet) -> tuple[Net, Method]:
    with seeded(0):
        net = build(recipe.model, channels=3, size=16)
        method: Method = known_classes(recipe, data.n_known)
        if kind in ("rotation", "prototypical"):
            method = pretraining(recipe)
        elif kind != "supervised":
            method.prepare(net)
            method = joint_method(recipe, data.n_known, 2)
        method.prepare(net)
    return net, method


def exact(world: World = ALONE) -> Mode:
    """On the CPU in float32, also where it has bfloat16: rounding would hide an error."""
    return replace(Mode.of("cpu", world), precision=torch.float32)


def train_kind(kind: str, mode: Mode, epochs: int, lr: float) -> dict[str, object]:
    """Losses of every epoch, weights, and what the trained network says of the images."""
    data = tiny_images()
    net, method = prepare(recipe_of(kind, epochs, lr), kind, data)
    net.to(mode.device, memory_format=torch.channels_last)
    images = (StreamedImages if kind == "streamed" else DeviceImages)(data, mode.device)
    losses: list[dict[str, object]] = []
    train(net, method, images, mode, key=(0, "joint"), on_epoch=lambda e: losses.append(e.losses))
    features = answer_together(net, images, mode).features
    weights = torch.cat([value.double().flatten() for value in net.state_dict().values()])
    return {"losses": losses, "features": features.tolist(), "weights": weights.tolist()}


def short(kind: str, mode: Mode) -> dict[str, object]:
    with double_precision():
        return train_kind(kind, mode, epochs=2, lr=0.05)


def long(kind: str, mode: Mode) -> dict[str, object]:
    return train_kind(kind, mode, epochs=7, lr=1e-5)


def estimate(method: str, world: World = ALONE) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(16).repeat_interleave(12)
    points = 4 * torch.randn(16, 6, generator=generator)[classes] + torch.randn(len(classes), 6, generator=generator)
    known = classes < 10
    found = estimate_classes(
        points[known],
        classes[known],
        points[~known],
        max_new=12,
        method=method,
        effort=Effort(splits=3, restarts=2, draws=20),
        run_jobs=world.share_out,
    )
    return json.loads(json.dumps(asdict(found)))


def main() -> None:
    world = join("cpu")
    assert join("cpu") == world  # a second time changes nothing
    mode = exact(world)
    found = {
        "short": {kind: short(kind, mode) for kind in KINDS},
        "long": {kind: long(kind, mode) for kind in LONG},
        "estimates": {method: estimate(method, world) for method in ESTIMATORS},
    }
    # what every process found, as a number
    digest = hashlib.blake2b(json.dumps(found).encode()).hexdigest()
    everyone = world.share_out((lambda: (world.rank, digest)) for _ in range(world.size))
    found["ranks"] = [rank for rank, _ in everyone]
    found["alike"] = [theirs == digest for _, theirs in everyone]
    found["told"] = world.from_first(lambda: f"by {world.rank}")
    if world.first:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
    leave()
    end(0)


if __name__ == "__main__":
    main()
