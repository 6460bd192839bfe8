"""Seconds per training epoch of every stage at the size of CIFAR-10, on random images (speed does not depend on the picture).

python lab/engine.py                                       every stage, the fastest mode of this device
python lab/engine.py --stages joint --together 4           four runs at once against one
python lab/engine.py --stages joint --profile              where the time of a step goes
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from dataclasses import replace

import numpy as np
import torch
from common import joint_method, known_classes, pretraining, settled_for_cifar10

from autonovel.base.chance import seeded
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.machine.streams import own_lane
from autonovel.methods.base import Method
from autonovel.models.net import Net, build
from autonovel.training.engine import Epoch, train
from autonovel.training.optimiser import make_optimiser
from autonovel.training.step import Step

STAGES = ("rotation", "supervised", "joint", "incremental", "swap")


def prepare(stage: str, mode: Mode, epochs: int) -> tuple[Net, Method]:
    recipe = settled_for_cifar10("best" if stage == "swap" else "cifar10")
    recipe = replace(
        recipe,
        pretrain=replace(recipe.pretrain, epochs=epochs),
        supervised=replace(recipe.supervised, epochs=epochs),
        joint=replace(recipe.joint, epochs=epochs, incremental=stage == "incremental"),
    )
    with seeded(0):
        net = build(recipe.model, channels=3, size=32)
        method: Method = pretraining(recipe) if stage == "rotation" else known_classes(recipe, 5)
        if stage in ("joint", "incremental", "swap"):
            method.prepare(net)
            method = joint_method(recipe, 5, 5)
        method.prepare(net)
    return net.to(mode.device, memory_format=torch.channels_last), method


def measure(stage: str, data: ImageSet, mode: Mode, epochs: int) -> dict[str, object]:
    net, method = prepare(stage, mode, epochs + 1)
    images = DeviceImages(data, mode.device)
    seconds: list[float] = []
    started = time.perf_counter()
    train(net, method, images, mode, key=(0, "joint"), on_epoch=lambda e: seconds.append(e.seconds))
    start_up = time.perf_counter() - started - sum(seconds)
    peak = torch.cuda.max_memory_allocated() / 2**30 if mode.device.type == "cuda" else float("nan")
    return {
        "stage": stage,
        "epoch_s": round(float(np.median(seconds[1:])), 4),
        "start_up_s": round(start_up, 1),
        "peak_gib": round(peak, 2),
    }


def measure_together(stage: str, data: ImageSet, mode: Mode, epochs: int, count: int) -> float:
    """Seconds for an epoch of each of so many runs at once, from when all of them are set up to when the last one ends."""
    images = DeviceImages(data, mode.device)
    ready = threading.Barrier(count)
    began, ended = [0.0] * count, [0.0] * count

    def run(place: int) -> None:
        def on_epoch(epoch: Epoch) -> None:
            if epoch.number == 0:
                ready.wait()
                began[place] = time.perf_counter()
            ended[place] = time.perf_counter()

        net, method = prepare(stage, mode, epochs + 1)
        train(net, method, images, mode, key=(place, "joint"), on_epoch=on_epoch)

    side_by_side([lambda p=place: run(p) for place in range(count)])
    return (max(ended) - min(began)) / epochs


def profile(stage: str, data: ImageSet, mode: Mode) -> None:
    net, method = prepare(stage, mode, 1)
    images = DeviceImages(data, mode.device)
    net.freeze(method.settings.train_from)
    net.train()
    net.precision = mode.precision
    order = method.order(images.labels.cpu(), 0)
    optimiser = make_optimiser([p for p in net.parameters() if p.requires_grad], method.settings)
    with own_lane(mode.device, mode.world, frozen=method.settings.train_from != "all") as ahead:
        step = Step(net, method, images, optimiser, mode, order.shape, ahead)
        step.run_epoch(order, 0, 1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
            step._number.zero_()
            torch.cuda.synchronize()
            for _ in range(20):
                step._go()
            torch.cuda.synchronize()
    print(f"--- {stage}: kernels of 20 steps")
    print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=28, max_name_column_width=70))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--together", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--eager", action="store_true", help="measure the eager step and the one that is only captured too"
    )
    args = parser.parse_args()
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # for runs side by side, before CUDA is first used
    mode = replace(Mode.of(args.device), compile_from=0.0)  # the few epochs here would not pay for it
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(args.images) % 10 < 5, np.arange(args.images) % 10, -1)
    data = ImageSet.from_arrays(rng.integers(0, 256, (args.images, 32, 32, 3), dtype=np.uint8), labels)
    for stage in args.stages:
        row = measure(stage, data, mode, args.epochs)
        if args.eager and mode.captured:
            slow = measure(stage, data, replace(mode, compiled=False, captured=False), 1)
            row |= {"eager_epoch_s": slow["epoch_s"], "ratio": round(slow["epoch_s"] / row["epoch_s"], 2)}
            captured = measure(stage, data, replace(mode, compiled=False), 2)
            row |= {"captured_epoch_s": captured["epoch_s"], "captured_start_up_s": captured["start_up_s"]}
        print(json.dumps(row), flush=True)
        if args.together:
            one, several = (measure_together(stage, data, mode, args.epochs, n) for n in (1, args.together))
            out = {"stage": stage, "together": args.together, "epoch_s": round(several, 4), "one_s": round(one, 4)}
            print(json.dumps(out | {"ratio_to_one": round(several / one, 2)}), flush=True)
        if args.profile:
            profile(stage, data, mode)


if __name__ == "__main__":
    main()
