"""How fast a finished run sorts further images, beside its bare network; images a second.

    python lab/predict.py --work WORK [--device cuda] [--json FILE]

Two runs are made on the spot: `trained`, a ResNet-18 on images of 32 pixels, and `photos`, heads on features of the packaged
EfficientNet (224 pixels). Each then sorts images that it has not seen, and the same images pass through

- the bare network, pixels decoded beforehand, as one array: what no program around it can beat,
- the bare network, fed by torch's DataLoader, which reads the same files with as many processes as there are cores.

All have the same batches, precision and device. The ways take turns, and the best of the rounds counts: other programs only
ever take time. `predict` counts as a whole, with restoring the network, naming every image and writing the table; nothing that
it needs is in a cache. What a first call costs once in a process (starting CUDA, choosing kernels) is done beforehand for all.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from autonovel.answers.network import Trained, images_at_once, restore
from autonovel.api import discover
from autonovel.data.images import ImageSet
from autonovel.data.loader import resize
from autonovel.data.reading.decode import Form, decode
from autonovel.discovery.finish import describe_device
from autonovel.machine.device import Mode
from autonovel.models import feature_store
from autonovel.models.net import Net
from autonovel.runs.folder import Run
from autonovel.settings.recipes import get_recipe

KNOWN, NEW = 5, 5
FILES_AT_ONCE = 1024
SIDES = {"trained": 32, "photos": 224}
COUNTS = {
    "cpu": {"trained": (512, 512), "photos": (320, 320)},
    "cuda": {"trained": (400_000, 20_000), "photos": (20_000, 3_000)},
}
"""How many images of an array, and how many files."""


def pictures(count: int, side: int, seed: int, distinct: int = 500) -> np.ndarray:
    """Colour images, coarse noise enlarged; every one another, of few distinct ones, for making them takes longest."""
    rng = np.random.default_rng(seed)
    some = [
        np.asarray(
            Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
        )
        for _ in range(min(count, distinct))
    ]
    images = np.stack(some)[np.arange(count) % len(some)]
    images[:, 0, :4, 0] = np.arange(count)[:, None] >> (8 * np.arange(4)) & 255
    return images


def make_run(kind: str, folder: Path, device: str, cache: Path) -> Run:
    """A run that has learned next to nothing, which takes as long to ask as any other."""
    base = get_recipe("folder")
    if kind == "photos":
        recipe = replace(
            base, method="features", pile="new", model=replace(base.model, backbone="efficientnet-lite0", size=224)
        )
    else:
        best = get_recipe("best")
        recipe = replace(
            best, supervised=replace(best.supervised, epochs=1, batch=64), joint=replace(best.joint, epochs=1, batch=64)
        )
    each = 8 if kind == "photos" else 20
    labels = np.repeat(np.arange(KNOWN + NEW), each)
    data = ImageSet.from_arrays(pictures(len(labels), SIDES[kind], seed=1), np.where(labels < KNOWN, labels, -1))
    return discover(data, out=folder, n_new=NEW, recipe=recipe, device=device, cache=cache, report=False)


def write_files(folder: Path, images: np.ndarray) -> list[str]:
    """As PNG up to 32 pixels, as JPEG above; a thousand in a folder."""
    ending = "png" if images.shape[1] <= 32 else "jpg"
    paths = [folder / f"{i // 1000:03d}" / f"{i:06d}.{ending}" for i in range(len(images))]
    for shelf in {path.parent for path in paths}:
        shelf.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: Image.fromarray(pair[1]).save(pair[0]), zip(paths, images, strict=True)))
    return [str(path) for path in paths]


class Files(torch.utils.data.Dataset[torch.Tensor]):
    """What torch's DataLoader reads."""

    def __init__(self, paths: list[str], side: int) -> None:
        self.paths, self.form = paths, Form(side, 3)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, position: int) -> torch.Tensor:
        return torch.from_numpy(np.array(decode(Path(self.paths[position]).read_bytes(), self.form)))


class Bare:
    """The network of a run, and nothing around it: the classes of images, uint8 batches."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.device = trained, trained.mode.device
        net, self.features = trained.net, None
        if isinstance(net, Net) and net.identity:
            self.features = feature_store._Network(net.as_backbone(), self.device, trained.mode.precision)

    def __call__(self, batches: Any) -> torch.Tensor:
        found = []
        with torch.inference_mode():
            for batch in batches:
                found.append(self._classes(batch))
        return torch.cat(found).cpu()

    def _classes(self, batch: torch.Tensor) -> torch.Tensor:
        net = self.trained.net
        if self.features is not None:
            z = torch.from_numpy(self.features(batch.numpy()))
            return net.scores(z.to(self.device))[0][0].argmax(1)
        images = resize(batch.to(self.device, non_blocking=True), self.trained.size)
        net.precision = self.trained.mode.precision_for(images.shape[1])
        return net(images).joint.argmax(1)


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended: on a CPU that others use too, it says more than a clock."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def of_bare(rate: dict[str, float]) -> dict[str, float]:
    """How fast `predict` is beside the bare network: on an array, on files, and on files that both have to read."""
    return {
        "array": round(rate["predict, array"] / rate["bare, array"], 3),
        "files": round(rate["predict, files"] / rate["bare, array"], 3),
        "files, of bare on files": round(rate["predict, files"] / rate["bare, files"], 3),
    }


def measure(kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Both inputs of a run, each with its references."""
    work: Path = args.work / kind
    shutil.rmtree(work, ignore_errors=True)
    run = make_run(kind, work / "run", args.device, work / "first-cache")
    mode = Mode.of(args.device)
    n_array, n_files = (max(1, round(args.share * n)) for n in COUNTS[mode.device.type][kind])
    pixels = pictures(n_array, SIDES[kind], seed=2)
    paths = write_files(work / "files", pixels[:n_files])
    bare = Bare(restore(run, mode))
    at_once = images_at_once(mode.device, SIDES[kind]) if bare.features is None else FILES_AT_ONCE
    cores = len(os.sched_getaffinity(0))
    loader = torch.utils.data.DataLoader(
        Files(paths, SIDES[kind]), FILES_AT_ONCE, num_workers=cores, pin_memory=mode.device.type == "cuda"
    )  # fmt: skip
    calls = iter(range(1_000))

    def predict(images: Any) -> Callable[[], Any]:
        return lambda: run.predict(
            images, to=work / "found.csv", device=args.device, cache=work / f"cache-{next(calls)}"
        )

    print(f"{kind}: {n_array} images and {n_files} files are ready", flush=True)
    ways = {
        "bare, array": (n_array, lambda: bare(torch.from_numpy(pixels).split(at_once))),
        "predict, array": (n_array, predict(pixels)),
        "bare, files": (n_files, lambda: bare(loader)),
        "predict, files": (n_files, predict(work / "files")),
    }
    bare(torch.from_numpy(pixels[: 2 * at_once]).split(at_once))
    predict(pixels[: 2 * at_once])()
    best, work_of = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, float("inf"))
    for _ in range(args.rounds):
        for name, (count, do) in ways.items():
            started, cpu = time.perf_counter(), cpu_seconds()
            do()
            best[name] = max(best[name], count / (time.perf_counter() - started))
            work_of[name] = min(work_of[name], (cpu_seconds() - cpu) / count)
    shutil.rmtree(work, ignore_errors=True)
    return {
        "run": kind,
        "images": {"array": n_array, "files": n_files},
        "device": describe_device(mode, SIDES[kind]),
        "cores": cores,
        "images_a_second": {name: round(rate, 1) for name, rate in best.items()},
        "of_bare": of_bare(best),
        "cpu_ms_an_image": {name: round(1000 * seconds, 3) for name, seconds in work_of.items()},
        "of_bare_in_cpu_time": of_bare({name: 1 / seconds for name, seconds in work_of.items()}),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for runs and images, which is emptied")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runs", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of images")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    rows = []
    for kind in args.runs:
        row = measure(kind, args)
        rows.append(row)
        print(f"{kind}: {row['device']}, {row['cores']} cores, images {row['images']}")
        for name, rate in row["images_a_second"].items():
            print(f"  {name:<16} {rate:>12,.0f} images/s")
        for text, shares in (("", row["of_bare"]), (" in CPU time", row["of_bare_in_cpu_time"])):
            print(
                f"  predict of bare{text}: {', '.join(f'{name} {share:.2f}' for name, share in shares.items())}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
