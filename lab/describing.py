"""How fast describe is, and how much memory all of its processes take: ``python lab/describing.py PILE --engine ray``.

Memory is the sum of the proportional shares of every process that the command started, the store of Ray included (in its pages
of /dev/shm, which each process shares). Seconds leave out the start: they count from the first shard that is finished.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def family(session: int) -> list[int]:
    """The processes of a session and of the sessions that they began."""
    parents: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            parents[int(folder.name)] = int(fields[1]), int(fields[3])
        except (OSError, ValueError):
            continue
    ours = {pid for pid, (_, own) in parents.items() if own == session}
    while more := {pid for pid, (parent, _) in parents.items() if parent in ours} - ours:
        ours |= more
    return sorted(ours)


def memory(pids: list[int]) -> int:
    """Bytes: the proportional share of each process."""
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (OSError, ValueError):
            continue
    return total


def measure(pile: str, engine: str, size: int, out: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "autonovel", "describe", pile, "--out", str(out), "--engine", engine]
    words += ["--backbone", "efficientnet-lite0", "--size", str(size), "--device", "cpu"]
    begun, first, last, most = time.time(), 0.0, 0.0, 0
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    known: set[int] = set()
    while process.poll() is None:
        known |= set(family(process.pid))  # Ray's own processes lose their parent
        most = max(most, memory([pid for pid in known if os.path.exists(f"/proc/{pid}")]))
        time.sleep(0.5)
    seconds = time.time() - begun
    files = sorted(file.stat().st_mtime for file in out.glob("part-*.parquet"))
    shards = json.loads((out / "features.json").read_text())["shards"]
    first, last, each = files[0], files[-1], sum(shard["rows"] for shard in shards) / len(shards)
    workers = len(os.sched_getaffinity(0))  # which finish their first shards at about the same time
    rate = (len(files) - workers) * each / (last - first) if last > first else 0.0
    images = sum(shard["rows"] for shard in shards)
    return {"images": images, "seconds": seconds, "rate": rate, "memory": most / 2**20}


def measure_in_memory(pile: str, size: int) -> dict[str, float]:
    """The way of discover: everything decoded into one file, then through the network."""
    import torch

    from autonovel.data.loader import as_tensor, resize
    from autonovel.data.reading.inputs import open_input
    from autonovel.machine.device import Mode
    from autonovel.models.backbones import build_backbone
    from autonovel.models.feature_store import stream_features
    from autonovel.settings.recipe import Model

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model, mode = Model(backbone="efficientnet-lite0", size=size, width=64), Mode.of("cpu")
    backbone = build_backbone(model, channels=3, size=size)
    begun = time.time()
    images = open_input(None, pile).load(size=64, channels=3).images.images
    parts = (resize(as_tensor(images[i : i + 1024]), size) for i in range(0, len(images), 1024))
    for _ in stream_features(backbone, parts, device=mode.device, precision=mode.precision):
        pass
    seconds = time.time() - begun
    return {"images": len(images), "seconds": seconds, "rate": len(images) / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pile")
    parser.add_argument("--engine", choices=("local", "ray", "memory"), nargs="+", default=["local", "ray"])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    for _ in range(args.rounds):
        for engine in args.engine:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out"
                memory = engine == "memory"
                found = (
                    measure_in_memory(args.pile, args.size) if memory else measure(args.pile, engine, args.size, out)
                )
            load = os.getloadavg()[0]
            print(
                json.dumps({"engine": engine, **{k: round(v, 1) for k, v in found.items()}, "load": round(load, 1)}),
                flush=True,
            )


if __name__ == "__main__":
    main()
