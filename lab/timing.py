"""Seconds and memory, each beside a reference from the same run; a line of JSON for each figure.

    python lab/timing.py epochs --stages joint --processes 1 2     an epoch of every stage, with one process or several
    python lab/timing.py epochs --together 4                       ... and of so many runs at once on one device
    python lab/timing.py discover --images 1000 10000              from an array to a finished run, by the size of the pile
    python lab/timing.py predict                                   a finished run sorting further images, beside its bare network
    python lab/timing.py decode                                    files into the cache, beside plain Pillow loops
    python lab/timing.py kmeans                                    the sweep over k, beside scikit-learn

Images are made on the spot; speed hardly depends on what they show. Every line has the load of the machine in it: measure where
nothing else runs, and compare only what one command measured.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import speed
import torch
from compare import commit
from PIL import Image

from autonovel.answers.network import restore
from autonovel.api.discover import discover
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import DeviceImages
from autonovel.data.reading.inputs import load_images
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.machine.processes import end, join, leave
from autonovel.maths.kmeans import kmeans
from autonovel.maths.sweep import Sweep
from autonovel.methods.base import Method
from autonovel.models import feature_store
from autonovel.models.net import Net
from autonovel.settings.recipes import get_recipe, with_fields
from autonovel.settings.resolve import Asked, Facts, resolve
from autonovel.training.engine import Epoch, train

CLASSES = 10
STAGES = ("rotation", "supervised", "joint", "incremental", "swap")
Row = dict[str, Any]


def pictures(count: int, side: int, seed: int = 0, distinct: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Colour images (count, side, side, 3) and their classes, which differ in direction, width and colour of stripes.

    Each is another, of few that are drawn, for drawing them takes longest.
    """
    rng = np.random.default_rng(seed)
    classes = np.arange(count) % CLASSES
    y, x = (np.mgrid[:side, :side] / side).astype(np.float32)
    some = np.empty((min(count, distinct), side, side, 3), np.uint8)
    for i in range(len(some)):
        angle, hue = np.pi * classes[i] / CLASSES, classes[i] / CLASSES + np.array([0, 1 / 3, 2 / 3])
        wave = np.sin(2 * np.pi * (2 + classes[i] % 3) * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6.28))
        colour = 0.5 + 0.5 * np.cos(2 * np.pi * hue)
        noise = rng.normal(0, 12, (side, side, 1))
        some[i] = (128 + 60 * wave[..., None] * colour + 40 * (colour - 0.5) + noise).clip(0, 255)
    images = some[np.arange(count) % len(some)]
    images[:, 0, :4, 0] = np.arange(count)[:, None] >> (8 * np.arange(4)) & 255
    return images, classes


def half_known(images: np.ndarray, classes: np.ndarray) -> ImageSet:
    """The first half of the classes labelled."""
    return ImageSet.from_arrays(images, np.where(classes < CLASSES // 2, classes, -1))


def spent() -> tuple[float, float]:
    """Now, by the clock and in CPU time of this process and its children: on a shared machine the latter says more."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    clock, cpu = spent()
    work()
    return spent()[0] - clock, spent()[1] - cpu


# ---- epochs of training


def stage(name: str, args: argparse.Namespace) -> tuple[Net, Method]:
    """A network and the method of a stage, as a run on CIFAR-10 has them."""
    facts = Facts(50_000, known_classes=5, new_classes=5, side=32, channels=3, gpu=True)
    recipe = resolve(Asked("best" if name == "swap" else "cifar10"), facts).recipe
    kind = name if name in ("rotation", "supervised") else "joint"
    part = {"rotation": "pretrain"}.get(name, kind)
    fields: dict[str, Any] = {"model.width": args.width, f"{part}.epochs": args.epochs + 1}
    if name == "incremental":
        fields["incremental"] = True
    if args.batch:
        fields[f"{part}.batch"] = args.batch
    return speed.prepare(kind, with_fields(recipe, fields), 32)


def epochs(args: argparse.Namespace) -> Iterator[Row]:
    """Seconds of an epoch; with several processes, of one of all of them together."""
    if args.processes != [1] and "RANK" not in os.environ:
        for n in args.processes:
            line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), __file__, *sys.argv[1:]]
            if subprocess.run(line, env={"OMP_NUM_THREADS": "1"} | os.environ).returncode:
                sys.exit(f"The work of {n} processes failed; their own messages stand above.")
        return
    world = join(args.device) if "RANK" in os.environ else None
    # the few epochs here would not pay for compiling
    mode = replace(Mode.of(args.device, *([world] if world else [])), compile_from=0.0)
    images = DeviceImages(half_known(*pictures(args.images[0], 32)), mode.device)
    for name in args.stages:
        runs = dict.fromkeys((1, args.together))
        for count in runs:
            ready, began, ended = threading.Barrier(count), [0.0] * count, [0.0] * count

            def run(place: int, ready: Any = ready, began: Any = began, ended: Any = ended, name: str = name) -> None:
                def on_epoch(epoch: Epoch) -> None:
                    if epoch.number == 0:  # it compiles, captures and allocates
                        ready.wait()
                        began[place] = time.perf_counter()
                    ended[place] = time.perf_counter()

                net, method = stage(name, args)
                net.to(mode.device, memory_format=torch.channels_last)
                train(net, method, images, mode, key=(place, "joint"), on_epoch=on_epoch)

            side_by_side([lambda p=place: run(p) for place in range(count)])
            seconds = (max(ended) - min(began)) / args.epochs
            if mode.world.first:
                yield {"stage": name, "epoch_s": round(seconds, 4), "together": count, "processes": mode.world.size}
    if world:
        leave()
        end(0)


# ---- a whole discovery


def discoveries(args: argparse.Namespace) -> Iterator[Row]:
    """A whole discover with its pictures and report, on packaged features, with an empty cache."""
    for count in args.images:
        images, classes = pictures(count, args.side)
        truth = Truth(classes, tuple(map(str, range(CLASSES))))
        data = half_known(images, classes)
        clock, cpu = spent()
        with tempfile.TemporaryDirectory() as folder:
            out, cache = Path(folder) / "run", Path(folder) / "cache"
            summary = discover(data, out=out, cache=cache, n_new=5, device=args.device, truth=truth).summary
            seconds, cpu = (now - then for now, then in zip(spent(), (clock, cpu), strict=True))
        yield {"images": count, "side": args.side, "method": summary["method"], "seconds": round(seconds, 2)} | {
            "cpu_seconds": round(cpu, 2), "acc_new": summary.get("acc_new"), "stages": summary["seconds"],
        }  # fmt: skip


# ---- further images


class Bare:
    """The network of a run, and nothing around it: the classes of images, uint8 batches."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        from autonovel.api.run import Run

        self.trained, self.mode = restore(Run(folder), mode), mode
        net = self.trained.net
        backbone = isinstance(net, Net) and net.identity
        self.features = feature_store._Network(net.as_backbone(), mode.device, mode.precision) if backbone else None

    def __call__(self, images: np.ndarray, batch: int = 256) -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([self._classes(part) for part in torch.from_numpy(images).split(batch)]).cpu()

    def _classes(self, batch: torch.Tensor) -> torch.Tensor:
        net = self.trained.net
        if self.features is not None:
            z = torch.from_numpy(self.features(batch.numpy()))
            return net.scores(z.to(self.mode.device))[0][0].argmax(1)
        net.precision = self.mode.precision_for(batch.shape[1])
        return net(batch.to(self.mode.device)).joint.argmax(1)


def predictions(args: argparse.Namespace) -> Iterator[Row]:
    """`predict` as a whole, with restoring, naming and writing, in turn with the bare network on decoded pixels."""
    ways = {
        "features": (64, {"method": "features", "pile": "new", "model.backbone": "efficientnet-lite0"}, "folder"),
        "trained": (32, {"supervised.epochs": 1, "joint.epochs": 1, "supervised.batch": 64, "joint.batch": 64}, "best"),
    }
    for kind, (side, fields, name) in ways.items():
        if kind not in args.runs:
            continue
        count = args.images[0]
        with tempfile.TemporaryDirectory() as folder:
            work, recipe = Path(folder), with_fields(get_recipe(name), fields)
            data = half_known(*pictures(200, side, seed=1))
            run = discover(
                data, out=work / "run", n_new=5, recipe=recipe, device=args.device, cache=work / "first", report=False
            )
            pixels, _ = pictures(count, side, seed=2)
            (work / "files").mkdir()
            for place, image in enumerate(pixels):
                Image.fromarray(image).save(work / "files" / f"{place:06d}.png")
            bare = Bare(run.path, Mode.of(args.device))
            calls = iter(range(1_000))

            def predict(images: Any, run: Any = run, work: Path = work, calls: Any = calls) -> None:
                cache = work / f"cache-{next(calls)}"
                run.predict(images, to=work / "found.csv", device=args.device, cache=cache)

            tried = {
                "bare": lambda b=bare, p=pixels: b(p),
                "array": lambda p=pixels: predict(p),
                "files": lambda w=work: predict(w / "files"),
            }
            bare(pixels[:2])  # what a first call costs is none of anyone's
            best = {way: (float("inf"), float("inf")) for way in tried}
            for _ in range(args.rounds):
                for way, do in tried.items():
                    best[way] = tuple(map(min, best[way], timed(do)))  # type: ignore[assignment]
        rates = {way: round(count / seconds, 1) for way, (seconds, _) in best.items()}
        of_bare = {way: round(rates[way] / rates["bare"], 3) for way in ("array", "files")}
        cpu = {way: round(1000 * seconds / count, 3) for way, (_, seconds) in best.items()}
        yield {"run": kind, "images": count, "images_a_second": rates, "of_bare": of_bare, "cpu_ms_an_image": cpu}


# ---- decoding


def decoding(args: argparse.Namespace) -> Iterator[Row]:
    """JPEG files of 500 x 375 into the cache at 128 pixels, beside one plain Pillow loop per core, all at once.

    Both sides start their processes themselves.
    """
    cores, count = len(os.sched_getaffinity(0)), args.images[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        folder.mkdir()
        some = [_jpeg(seed) for seed in range(min(count, 50))]
        for place in range(count):  # each another file: what follows the end of an image is no part of it
            (folder / f"{place:06d}.jpg").write_bytes(some[place % len(some)] + f"{place:06d}".encode())
        paths = sorted(folder.iterdir())
        loops, cached = [], []
        for trial in range(args.rounds):  # in turn, so that other work on the machine hits both alike
            loops.append(timed(lambda: _plain_loops(folder, cores))[0])
            cache = Path(name) / f"cache-{trial}"
            cached.append(
                timed(lambda c=cache: load_images(None, folder, size=128, channels=3, cache=c, workers=cores))[0]
            )
    yield {"images": len(paths), "cores": cores, "pillow_loops_s": min(loops), "into_the_cache_s": min(cached)} | {
        "ratio": round(min(loops) / min(cached), 3)
    }


def _jpeg(seed: int) -> bytes:
    coarse = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (33, 43, 3), np.uint8))
    buffer = io.BytesIO()
    coarse.resize((500, 375), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


_LOOP = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
for path in sorted(Path(sys.argv[1]).iterdir())[int(sys.argv[2])::int(sys.argv[3])]:
    with Image.open(path) as image:
        image.draft("RGB", (128, 128))
        scale = 128 / min(image.size)
        width, height = (max(128, round(side * scale)) for side in image.size)
        image = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - 128) // 2, (height - 128) // 2
        np.asarray(image.crop((left, top, left + 128, top + 128)))
"""


def _plain_loops(folder: Path, cores: int) -> None:
    words = [sys.executable, "-c", _LOOP, str(folder)]
    loops = [subprocess.Popen([*words, str(place), str(cores)]) for place in range(cores)]
    if sum(abs(loop.wait()) for loop in loops):
        sys.exit("A plain Pillow loop failed; its own message stands above.")


# ---- k-means


def sweeps(args: argparse.Namespace) -> Iterator[Row]:
    """k-means for k = 1 ... 40 on overlapping classes; scikit-learn at five of them, the others interpolated."""
    from sklearn.cluster import KMeans

    count, dim, ks, looked_at = args.images[0], 64, list(range(1, 41)), [2, 10, 20, 30, 40]
    generator = torch.Generator().manual_seed(0)
    centres = 0.6 * torch.randn(60, dim, generator=generator)
    points = centres[torch.randint(60, (count,), generator=generator)] + torch.randn(count, dim, generator=generator)
    moved = points.to(Mode.of(args.device).device)
    kmeans(moved[:100], 3, restarts=1)
    found: dict[int, Any] = {}
    ours = timed(lambda: found.update(Sweep(moved, restarts=10).chain(ks)))[0]
    theirs, inertia = [], []
    for k in looked_at:
        model = KMeans(k, n_init=10, random_state=0)
        theirs.append(timed(lambda m=model: m.fit(points.numpy()))[0])
        inertia.append(found[k].inertia / model.inertia_)
    whole = float(np.interp(ks, looked_at, theirs).sum())
    yield {"points": count, "dim": dim, "k": len(ks), "seconds": round(ours, 3), "scikit_learn_s": round(whole, 3)} | {
        "ratio": round(whole / ours, 1), "worst_inertia_ratio": round(max(inertia), 4),
    }  # fmt: skip


WHAT: dict[str, tuple[Callable[[argparse.Namespace], Iterator[Row]], list[int]]] = {
    "epochs": (epochs, [50_000]),
    "discover": (discoveries, [1_000, 10_000]),
    "predict": (predictions, [512]),
    "decode": (decoding, [4_000]),
    "kmeans": (sweeps, [3_000]),
}
"""By name: what makes the rows, and how many images where none are said."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--images", type=int, nargs="+", help="how many, or points of kmeans")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=3, help="of predict and decode; the best counts")
    parser.add_argument("--side", type=int, default=64, help="of the images of discover")
    parser.add_argument("--runs", nargs="+", default=["features", "trained"], help="of predict")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES, help="of epochs")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, help="as the recipe has it when left out")
    parser.add_argument("--together", type=int, default=1, help="runs at once")
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, help="add the lines to this file too")
    args = parser.parse_args(arguments)
    work, usual = WHAT[args.what]
    args.images = args.images or usual
    hardware = speed.hardware(torch.device("cuda" if torch.cuda.is_available() and args.device != "cpu" else "cpu"))
    about = {
        "benchmark": f"timing.py {args.what}",
        "hardware": hardware,
        "torch": torch.__version__,
        "commit": commit(),
    }
    for row in work(args):
        line = json.dumps(about | row | {"load": round(os.getloadavg()[0], 1)})
        print(line, flush=True)
        if args.out:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
