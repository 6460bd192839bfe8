"""What the processes of tests/test_distributed.py do: ``python -m tests.together FILE`` in each of two processes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch

from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages, StreamedImages
from autonovel.distributed import current, join, leave
from autonovel.engine import Mode, answer_together, train
from autonovel.methods import Method
from autonovel.methods.joint import joint_method
from autonovel.methods.pretrain import Prototypical, Rotation
from autonovel.methods.supervised import KnownClasses
from autonovel.models.net import Net, build, seeded
from autonovel.settings import Recipe
from tests.test_engine import tiny_images, tiny_recipe

EXACT = ["rotation", "prototypical", "supervised", "pairs", "incremental", "mlp", "swap", "adam", "streamed"]
"""Kinds of training that give in several processes what they give in one."""
EPOCHS = 7


def recipe_of(kind: str) -> Recipe:
    """Batches that two processes cannot halve: 31 images for joint training, 15 before. Three or more steps an epoch."""
    recipe = tiny_recipe({"mlp": "incremental", "streamed": "pairs", "local": "pairs"}.get(kind, kind), EPOCHS)
    return replace(
        recipe,
        model=replace(recipe.model, head="mlp" if kind == "mlp" else recipe.model.head, sync_norm=kind != "local"),
        pretrain=replace(recipe.pretrain, batch=15, ways=3, shots=2, queries=3, episodes=3),
        supervised=replace(recipe.supervised, batch=15),
        joint=replace(recipe.joint, batch=31, train_from="layer3" if kind == "pairs" else recipe.joint.train_from),
    )


def prepare(kind: str, data: ImageSet) -> tuple[Net, Method]:
    recipe = recipe_of(kind)
    with seeded(0):
        net = build(recipe.model, channels=3, size=16)
        method: Method = KnownClasses(recipe, data.n_known)
        if kind in ("rotation", "prototypical"):
            method = {"rotation": Rotation, "prototypical": Prototypical}[kind](recipe.pretrain)
        elif kind != "supervised":
            method.prepare(net)
            method = joint_method(recipe, data.n_known, 2)
        method.prepare(net)
    return net.to(memory_format=torch.channels_last), method


def train_kind(kind: str, mode: Mode) -> dict[str, object]:
    """Losses of every epoch, and what the trained network says of the images."""
    data = tiny_images()
    net, method = prepare(kind, data)
    images = (StreamedImages if kind == "streamed" else DeviceImages)(data, mode.device)
    losses: list[dict[str, object]] = []
    train(net, method, images, mode, key=(0, "joint"), on_epoch=lambda e: losses.append(e.losses))
    features = answer_together(net, images, mode).features
    numbers = torch.cat([value.double().flatten() for value in net.state_dict().values()])
    return {"losses": losses, "features": features.tolist(), "weights": numbers.tolist()}


def main() -> None:
    join("cpu")
    mode = Mode.of("cpu")
    found = {kind: train_kind(kind, mode) for kind in [*EXACT, "local"]}
    world = current()
    rank = world.rank
    everyone = world.share_out([lambda: (rank, {k: v["weights"] for k, v in found.items()}) for _ in range(world.size)])
    result = {
        "found": found,
        "same_weights": [theirs == everyone[0][1] for _, theirs in everyone],
        "ranks": [rank for rank, _ in everyone],
        "told": world.from_first(lambda: f"by {world.rank}"),
    }
    if world.first:
        with open(sys.argv[1], "w") as file:
            json.dump(result, file)
    leave()


if __name__ == "__main__":
    main()
