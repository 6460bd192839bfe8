"""How fast images come in, and how much memory that takes; every figure beside a reference from the same run.

    python lab/loading.py [--quick] [--json results.json]

1. Decoding into the cache, against a plain Pillow loop times the cores, and against torch's DataLoader over Pillow.
2. An epoch of training from the cache, against the same epoch from an array in memory and from the DataLoader.
3. Very many images: peak memory while decoding and while passing over them, and the time to open their cache again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 128


def make_photos(folder: Path, count: int, width: int = 500, height: int = 375, distinct: int = 50) -> None:
    """JPEG files; a few distinct pictures, each file made unique by what follows the end of its image."""
    contents = []
    for seed in range(min(count, distinct)):
        rng = np.random.default_rng(seed)
        coarse = Image.fromarray(rng.integers(0, 256, (height // 12 + 2, width // 12 + 2, 3), np.uint8))
        buffer = io.BytesIO()
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
        contents.append(buffer.getvalue())
    for number in range(count):
        shelf = folder / f"{number // 1000:04d}"
        shelf.mkdir(parents=True, exist_ok=True)
        (shelf / f"{number:07d}.jpg").write_bytes(contents[number % len(contents)] + f"{number:07d}".encode())


def pillow_pixels(path: Path, size: int = SIZE) -> np.ndarray:
    """What everyone writes: open, draft, resize by the shorter side, crop, convert."""
    with Image.open(path) as image:
        image.draft("RGB", (size, size))
        scale = size / min(image.size)
        width, height = (max(size, round(side * scale)) for side in image.size)
        image = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        return np.asarray(image.crop((left, top, left + size, top + size)))


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_ms(work, n: int) -> float:
    """Milliseconds of CPU time per image: what other programs on the machine take does not count."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start) / n


def simultaneous_loops(folder: Path, cores: int) -> float:
    """Images per second of one plain loop per core, all at once: what the cores give when they share the machine."""
    program = (
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from loading import Path, pillow_pixels\n"
        f"paths = sorted(Path({str(folder)!r}).rglob('*.jpg'))[int(sys.argv[1])::{cores}]; pillow_pixels(paths[0])\n"
        "print('ready', flush=True); sys.stdin.readline(); start = time.perf_counter()\n"
        "for path in paths: pillow_pixels(path)\n"
        "print(len(paths) / (time.perf_counter() - start))"
    )
    loops = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for i in range(cores)
    ]
    for loop in loops:
        loop.stdout.readline()
    for loop in loops:
        loop.stdin.write("go\n")
        loop.stdin.flush()
    return sum(float(loop.communicate()[0]) for loop in loops)


def torch_loader(paths: list[Path], workers: int, batch: int = 128):
    import torch

    class Photos(torch.utils.data.Dataset):
        def __len__(self):
            return len(paths)

        def __getitem__(self, position):
            return torch.from_numpy(pillow_pixels(paths[position]).copy())

    return torch.utils.data.DataLoader(Photos(), batch_size=batch, shuffle=True, num_workers=workers)


def decoding(folder: Path, cores: int) -> dict:
    from autonovel.data.reading.decode import Form
    from autonovel.data.reading.inputs import load_images
    from autonovel.data.reading.workers import Chunk, PixelFile, decode_chunk

    paths = sorted(folder.rglob("*.jpg"))
    for path in paths:  # into the system's file cache, the same for everyone
        path.read_bytes()
    one_loop, together, cached, loader = [], [], [], []
    for trial in range(3):  # in turn, so that other work on the machine hits all alike
        one_loop.append(len(paths) / seconds(lambda: [pillow_pixels(path) for path in paths]))
        together.append(simultaneous_loops(folder, cores))
        with tempfile.TemporaryDirectory() as cache:
            work = lambda: load_images(None, folder, size=SIZE, channels=3, cache=Path(cache), workers=cores)  # noqa: E731
            cached.append(len(paths) / seconds(work))
        if trial == 0:
            loader.append(len(paths) / seconds(lambda: [None for _ in torch_loader(paths, cores)]))
    chunk = Chunk(list(range(len(paths))), list(map(str, paths)))
    with tempfile.NamedTemporaryFile() as pixels:
        target = PixelFile(Path(pixels.name), Form(SIZE, 3))
        ours = cpu_ms(lambda: decode_chunk(chunk, pixels, target), len(paths))
    plain = cpu_ms(lambda: [pillow_pixels(path) for path in paths], len(paths))
    best = {name: max(rates) for name, rates in
            {"loop": one_loop, "loops": together, "cache": cached, "loader": loader}.items()}  # fmt: skip
    return {
        "images": len(paths),
        "one Pillow loop, images/s": best["loop"],
        f"{cores} Pillow loops at once, images/s": best["loops"],
        "decode and cache, images/s": best["cache"],
        "torch DataLoader over Pillow, images/s": best["loader"],
        "Pillow loop, CPU ms per image": plain,
        "decode and cache, CPU ms per image": ours,
        "decode and cache / (one loop x cores)": best["cache"] / (best["loop"] * cores),
        "decode and cache / loops at once": best["cache"] / best["loops"],
        "decode and cache / DataLoader": best["cache"] / best["loader"],
    }


def epochs(folder: Path, cores: int) -> dict:
    """One epoch of a small network from the cache, from memory and from the DataLoader."""
    import torch

    from autonovel.data.reading.inputs import load_images
    from autonovel.data.reading.store import gather

    torch.set_num_threads(cores)
    with tempfile.TemporaryDirectory() as cache:
        mapped = load_images(None, folder, size=SIZE, channels=3, cache=Path(cache), workers=cores).images.images
        in_memory = np.array(mapped)
        network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 2), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10),
        )  # fmt: skip
        optimiser = torch.optim.SGD(network.parameters(), 0.01)

        def step(pixels) -> None:
            loss = network(pixels.permute(0, 3, 1, 2).float() / 255).logsumexp(1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

        def epoch(images, train: bool) -> None:
            order = np.random.default_rng(0).permutation(len(images))
            for start in range(0, len(order), 128):
                pixels = torch.from_numpy(gather(images, order[start : start + 128]))
                if train:
                    step(pixels)

        times = {"cache": [], "memory": [], "gather cache": [], "gather memory": []}
        epoch(mapped, True)
        for _ in range(3):
            times["cache"].append(seconds(lambda: epoch(mapped, True)))
            times["memory"].append(seconds(lambda: epoch(in_memory, True)))
            times["gather cache"].append(seconds(lambda: epoch(mapped, False)))
            times["gather memory"].append(seconds(lambda: epoch(in_memory, False)))
        best = {name: min(values) for name, values in times.items()}

        def loader_epoch() -> None:
            for pixels in torch_loader(sorted(folder.rglob("*.jpg")), cores):
                step(pixels)

        loader = seconds(loader_epoch)
    return {
        "images": len(mapped),
        "epoch from the cache, s": best["cache"],
        "epoch from memory, s": best["memory"],
        "epoch from DataLoader over Pillow, s": loader,
        "cache / memory": best["cache"] / best["memory"],
        "DataLoader / cache": loader / best["cache"],
        "reading alone from the cache, s": best["gather cache"],
        "reading alone from memory, s": best["gather memory"],
    }


_BUILD = """
import json, sys, time
import numpy as np
from pathlib import Path
from autonovel.data.reading.store import gather
from autonovel.data.reading.inputs import load_images
folder, cache, size, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
start = time.perf_counter()
images = load_images(None, folder, size=size, channels=3, cache=cache, workers=workers).images
loaded = time.perf_counter() - start
print("decoded", flush=True)
if len(sys.argv) > 5:
    order = np.random.default_rng(0).permutation(len(images))
    for first in range(0, len(order), 256):
        gather(images.images, order[first:first + 256])
print(json.dumps([len(images), images.images.nbytes, loaded]))
"""


def watch(process: subprocess.Popen, decoded: threading.Event, peaks: list[float]) -> None:
    """Note the largest sum of resident memory over a process and its children, before and after it has decoded."""
    import psutil

    tree = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            resident = sum(p.memory_info().rss for p in [tree, *tree.children(recursive=True)])
        except psutil.Error:
            continue
        peaks[decoded.is_set()] = max(peaks[decoded.is_set()], resident)
        time.sleep(0.02)


def many(folder: Path, count: int, cores: int) -> dict:
    """Peak resident memory of this many images, and the time to open their cache again in a fresh process."""
    make_photos(folder, count, 80, 64)
    with tempfile.TemporaryDirectory(dir=folder.parent) as cache:

        def run(*more: str) -> tuple[float, float, list]:
            """Peak resident bytes of the process and its workers while decoding and afterwards, and what it printed."""
            command = [sys.executable, "-c", _BUILD, str(folder), cache, "64", str(cores), *more]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            peaks = [0.0, 0.0]
            decoded = threading.Event()
            watcher = threading.Thread(target=watch, args=(process, decoded, peaks))
            watcher.start()
            process.stdout.readline()
            decoded.set()
            answer = json.loads(process.communicate()[0])
            watcher.join()
            return *peaks, answer

        while_decoding, afterwards, (n, n_bytes, built) = run("and pass over them")
        reopened = min(run()[2][2] for _ in range(3))
    return {
        "images": n,
        "pixels, GiB": n_bytes / 2**30,
        "decode and cache, s": built,
        "peak resident while decoding, all processes, GiB": while_decoding / 2**30,
        "peak resident in a pass over all images, GiB": afterwards / 2**30,
        "open the cache again, s": reopened,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer images: under a minute, figures less exact")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--many", type=int, help="how many images for the memory figures (200,000; quick 5,000)")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    results: dict = {
        "machine": f"{platform.machine()}, {cores} cores",
        "software": f"Python {platform.python_version()}, Pillow {Image.__version__}",
        "load of the machine before": os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0,
        "quick": options.quick,
    }
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        make_photos(photos, 1000 if options.quick else 4000)
        results["decoding, 500 x 375 JPEG to 128 x 128"] = decoding(photos, cores)
        results["an epoch on CPU"] = epochs(photos, cores)
        results["very many images, 80 x 64 JPEG to 64 x 64"] = many(
            Path(folder) / "many", options.many or (5_000 if options.quick else 200_000), cores
        )
    for title, figures in results.items():
        print(title if isinstance(figures, dict) else f"{title}: {figures}")
        if isinstance(figures, dict):
            for name, value in figures.items():
                print(f"    {name:<55} {value:>12,.3f}" if isinstance(value, float) else f"    {name:<55} {value:>12,}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
