"""Seconds per epoch with one process and with several, at equal whole batches, on random images.

python lab/scaling.py                                                  one and two processes on this CPU
python lab/scaling.py --device cuda --processes 1 2 4 8 --images 50000 --width 64

Every number of processes is started afresh by torchrun, one thread each, and prints a line of JSON with the load of the
machine beside it; run it where nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import torch
from common import joint_method, known_classes, pretraining, settled_for_cifar10

from autonovel.base.chance import seeded
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages
from autonovel.machine.device import Mode
from autonovel.machine.processes import end, join, leave
from autonovel.methods.base import Method
from autonovel.models.net import Net, build
from autonovel.training.engine import train

STAGES = ("rotation", "joint", "swap")


def prepare(stage: str, mode: Mode, args: argparse.Namespace) -> tuple[Net, Method]:
    recipe = settled_for_cifar10("best" if stage == "swap" else "cifar10")
    epochs = args.epochs + 1
    recipe = replace(
        recipe,
        model=replace(recipe.model, width=args.width),
        pretrain=replace(recipe.pretrain, epochs=epochs, batch=args.batch),
        joint=replace(recipe.joint, epochs=epochs, batch=args.batch),
    )
    with seeded(0):
        net = build(recipe.model, channels=3, size=32)
        method: Method = pretraining(recipe) if stage == "rotation" else known_classes(recipe, 5)
        if stage != "rotation":
            method.prepare(net)
            method = joint_method(recipe, 5, 5)
        method.prepare(net)
    return net.to(mode.device, memory_format=torch.channels_last), method


def seconds_of_a_sum(mode: Mode, numbers: int) -> float:
    """One sum over the processes of so many numbers."""
    x = [torch.zeros(numbers, device=mode.device)]

    def wait() -> None:
        if mode.device.type == "cuda":
            torch.cuda.synchronize()

    times = []
    for _ in range(10):
        wait()
        started = time.perf_counter()
        mode.world.average(x)
        wait()
        times.append(time.perf_counter() - started)
    return float(np.median(times[2:]))


def work(args: argparse.Namespace) -> None:
    mode = replace(Mode.of(args.device, join(args.device)), compile_from=0.0)
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(args.images) % 10 < 5, np.arange(args.images) % 10, -1)
    data = ImageSet.from_arrays(rng.integers(0, 256, (args.images, 32, 32, 3), dtype=np.uint8), labels)
    images = DeviceImages(data, mode.device)
    for stage in args.stages:
        net, method = prepare(stage, mode, args)
        seconds: list[float] = []
        train(net, method, images, mode, key=(0, "joint"), on_epoch=lambda e, to=seconds: to.append(e.seconds))
        learning = sum(p.numel() for p in net.parameters() if p.requires_grad)
        row = {
            "benchmark": "scaling.py",
            "stage": stage,
            "processes": mode.world.size,
            "epoch_s": round(float(np.median(seconds[1:])), 3),
            "images": args.images,
            "batch": args.batch,
            "width": args.width,
            "gradient_mib": round(learning * 4 / 2**20, 2),
            "gradient_sum_ms": round(1000 * seconds_of_a_sum(mode, learning), 2) if mode.world.several else 0.0,
            "small_sum_ms": round(1000 * seconds_of_a_sum(mode, 256), 3) if mode.world.several else 0.0,
            "load": round(os.getloadavg()[0], 1),
        }
        if mode.world.first:
            print(json.dumps(row), flush=True)
    leave()
    end(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if "RANK" in os.environ:
        work(args)
        return
    for n in args.processes:
        line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), __file__, *sys.argv[1:]]
        subprocess.run(line, check=True, env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")})


if __name__ == "__main__":
    main()
