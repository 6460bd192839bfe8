"""The training loop against a plain one written from the paper (plain_loop.py): same network, data, machine and run.

python lab/speed.py --quick            two minutes on a CPU: a narrow network on small images
python lab/speed.py                    the size of CIFAR-10 and the paper's network; wants a GPU
python lab/speed.py --json FILE        also write the figures, --commit says of which commit

Each side runs in a process of its own with its own defaults (threads, precision, layout). They take turns, epoch by epoch,
so that other work on the machine hits both alike; the first epoch of each is not timed. Images are random: speed does
not depend on the picture. For measurements with the usual number of threads, do not set OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from autonovel.base.chance import seeded
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages
from autonovel.machine.device import Mode
from autonovel.methods.base import Method, Task
from autonovel.methods.supervised import KnownClasses
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.registry import home_of
from autonovel.training.engine import train

STAGES = ("rotation", "supervised", "joint")
CLASSES = 5


def make_recipe(backbone: str, width: int, epochs: int) -> Recipe:
    """The paper's settings for CIFAR-10 with the same variations in each stage: a shift over black, a mirror image."""
    recipe = get_recipe("cifar10")
    vary = {"epochs": epochs, "augment": Augment("shift")}
    return replace(
        recipe,
        model=replace(recipe.model, backbone=backbone, width=width),
        pretrain=replace(recipe.pretrain, **vary),
        supervised=replace(recipe.supervised, **vary),
        joint=replace(recipe.joint, **vary),
    )


def prepare(stage: str, recipe: Recipe, size: int) -> tuple[Net, Method]:
    """A network and the method of a stage, ready to take steps."""
    with seeded(0):
        net = build(recipe.model, channels=3, size=size)
        task = Task(recipe, CLASSES, CLASSES)
        if stage == "rotation":
            method: Method = home_of(recipe.pretrain)(task)
        else:
            method = KnownClasses(task)
        if stage == "joint":
            method.prepare(net)
            method = home_of(recipe.joint)(task)
        method.prepare(net)
    return net, method


def make_data(images: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.arange(images) % (2 * CLASSES)
    pixels = np.random.default_rng(0).integers(0, 256, (images, size, size, 3), dtype=np.uint8)
    return pixels, np.where(places < CLASSES, places, -1)


def answer(**figures: object) -> None:
    """Say something to the process that started this one, and wait for its word to go on."""
    print(json.dumps(figures), flush=True)
    if not sys.stdin.readline():
        sys.exit()


def peak_gib(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None


def run_ours(options: argparse.Namespace) -> None:
    mode = replace(Mode.of(options.device), compile_from=0.0)  # the few epochs here would not pay for it
    net, method = prepare(options.stage, make_recipe(options.backbone, options.width, 10_000), options.size)
    net.to(mode.device, memory_format=torch.channels_last)
    data = DeviceImages(ImageSet.from_arrays(*make_data(options.images, options.size)), mode.device)
    steps = len(method.order(data.labels.cpu(), 0))
    how = {
        "threads": torch.get_num_threads(),
        "spins": os.environ.get("GOMP_SPINCOUNT"),
        "precision": str(mode.precision_for(options.size)).removeprefix("torch."),
        "compiled": mode.compiled,
        "captured": mode.captured,
    }

    def tell(epoch) -> None:
        answer(epoch_s=epoch.seconds, steps=steps, measured=steps, peak_gib=peak_gib(mode.device), how=how)

    train(net, method, data, mode, key=(0, "speed"), on_epoch=tell)


def run_plain(options: argparse.Namespace) -> None:
    from plain_loop import PlainLoop

    device = Mode.of(options.device).device
    net, method = prepare(options.stage, make_recipe(options.backbone, options.width, 10_000), options.size)
    pixels, labels = make_data(options.images, options.size)
    loop = PlainLoop(options.stage, net.to(device), pixels, labels, method.settings, workers=options.workers)
    steps, number = len(loop.loader), 0
    how = {
        "threads": torch.get_num_threads(),
        "spins": os.environ.get("GOMP_SPINCOUNT"),
        "precision": "float32",
        "workers": options.workers,
    }
    while True:
        start, took, measured = loop.epoch(number, options.most_steps or None)
        epoch = start + took * steps / measured
        answer(epoch_s=epoch, steps=steps, measured=measured, peak_gib=peak_gib(device), how=how)
        number += 1


_AUTONOVEL_FIRST = f"""
import runpy, sys
import autonovel
del sys.argv[0]
sys.path[0] = {str(Path(__file__).parent)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Side:
    """One side in a process of its own, that does an epoch when it is told to."""

    def __init__(self, name: str, stage: str, options: argparse.Namespace) -> None:
        shared = ("images", "size", "backbone", "width", "device", "workers", "most_steps")
        words = [f"--{key.replace('_', '-')}={getattr(options, key)}" for key in shared]
        # ours as in a user's program, autonovel first: it sets how threads wait, which torch reads when it is imported
        program = [__file__] if name == "plain" else ["-c", _AUTONOVEL_FIRST, __file__]
        command = [sys.executable, *program, "--side", name, "--stages", stage, *words]
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        done = threading.Event()
        peaks = [0.0]
        watcher = threading.Thread(target=self._watch, args=(done, peaks))
        watcher.start()
        started = time.perf_counter()
        try:
            first = self._listen()  # the first epoch: everything is allocated, nothing is timed
        finally:
            done.set()
            watcher.join()
        self.start_up_s = time.perf_counter() - started
        self.resident_gib = peaks[0] / 2**30
        self.how, self.steps, self.measured = first["how"], first["steps"], first["measured"]
        self.seconds: list[float] = []
        self.device_gib: float | None = None

    def epoch(self) -> None:
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        figures = self._listen()
        self.seconds.append(figures["epoch_s"])
        self.device_gib = figures["peak_gib"]

    def close(self) -> None:
        """Its standard input ends, and so it does."""
        self._process.stdin.close()
        self._process.wait()

    def summary(self) -> dict:
        return {
            "epoch_s": float(np.median(self.seconds)),
            "epochs_s": self.seconds,
            "steps": self.steps,
            "steps_measured": self.measured,
            "process_start_and_first_epoch_s": self.start_up_s,
            "resident_gib": self.resident_gib,
            "device_gib": self.device_gib,
            **self.how,
        }

    def _listen(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"The side '{self.name}' of the comparison failed; its own message stands above.")
        return json.loads(line)

    def _watch(self, done: threading.Event, peaks: list[float]) -> None:
        while not done.wait(0.05):
            peaks[0] = max(peaks[0], resident_bytes(self._process.pid))


def resident_bytes(pid: int) -> float:
    """Resident memory of a process and its descendants, shared pages counted once; 0 where the system does not tell."""
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident_bytes(int(child)) for child in (thread / "children").read_text().split())
    except OSError:  # ended meanwhile, or another kind of system
        pass
    return total


def compare(stage: str, options: argparse.Namespace) -> dict:
    """Both sides of a stage, epoch by epoch."""
    with ExitStack() as stack:
        sides = []
        for name in ("ours", "plain"):
            sides.append(Side(name, stage, options))
            stack.callback(sides[-1].close)
        ours, plain = sides
        for round_number in range(options.rounds):
            # in turn, and in turn who comes first
            for side in sides if round_number % 2 == 0 else sides[::-1]:
                side.epoch()
    return {
        "stage": stage,
        "ratio": float(np.median(plain.seconds) / np.median(ours.seconds)),
        "ratio_by_round": [p / o for p, o in zip(plain.seconds, ours.seconds, strict=True)],
        "ours": ours.summary(),
        "plain": plain.summary(),
    }


def hardware(device: torch.device) -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        model = next(li for li in Path("/proc/cpuinfo").read_text().splitlines() if li.startswith("model name"))
        processor = model.partition(":")[2].strip()
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    card = f"{torch.cuda.get_device_name(device)}, " if device.type == "cuda" else ""
    return f"{card}{cores} cores of {processor}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 pixels, 1,797 images, width 16: for a CPU")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--images", type=int, default=0)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=-1, help="of the plain loop; one per core, at most 8")
    parser.add_argument("--most-steps", type=int, default=-1, help="of the plain loop in an epoch; 0: all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="", help="to be noted with the figures")
    parser.add_argument("--side", choices=("ours", "plain"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        options.stage = options.stages[0]
        return (run_ours if options.side == "ours" else run_plain)(options)
    quick = options.quick
    device = Mode.of(options.device).device
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    options.images = options.images or (1797 if quick else 50_000)
    options.size = options.size or (16 if quick else 32)
    options.width = options.width or (16 if quick else 64)
    if options.workers < 0:
        options.workers = min(8, cores)
    if options.most_steps < 0:
        options.most_steps = 0 if quick else 100
    results = {
        "benchmark": "speed.py",
        "hardware": hardware(device),
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "commit": options.commit,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "network": f"{options.backbone}, width {options.width}",
        "images": options.images,
        "size": options.size,
        "stages": [],
    }
    print(f"{results['hardware']}; {results['software']}")
    print(
        f"{results['network']}; {options.images:,} images of {options.size} pixels; median of {options.rounds} epochs"
    )
    print(f"{'':12}{'seconds per epoch':>22}{'':>9}{'peak memory, GiB':>22}")
    print(f"{'stage':12}{'plain':>11}{'ours':>11}{'ratio':>9}{'plain':>11}{'ours':>11}")
    for stage in options.stages:
        row = compare(stage, options)
        results["stages"].append(row)
        memory = [side["device_gib"] or side["resident_gib"] for side in (row["plain"], row["ours"])]
        times = [row["plain"]["epoch_s"], row["ours"]["epoch_s"]]
        print(
            f"{stage:12}{times[0]:11.3f}{times[1]:11.3f}{row['ratio']:9.2f}{memory[0]:11.2f}{memory[1]:11.2f}",
            flush=True,
        )
    if any(row["plain"]["steps_measured"] < row["plain"]["steps"] for row in results["stages"]):
        print(f"The plain loop did at most {options.most_steps} steps of an epoch; its time is scaled to a whole one.")
    print(json.dumps(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
