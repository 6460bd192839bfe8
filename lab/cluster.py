"""How long a hundred million images take on a cluster, what they cost and what breaks first: a simulation, and on paper.

    python lab/cluster.py                       the two clusters of the docs, with failures at several rates
    python lab/cluster.py --images 1e6 --failures 0

Shards are given to workers as they become free. A worker reads a shard, decodes and describes it, and writes its features;
reading goes on while the shard before is decoded and described. What many share is shared: the network of a machine, the cores
of a machine, the store. A worker that fails loses the shard that it is at, which goes back to the others, and comes back after a
while. What one machine does afterwards is added up from its measured cost. What was measured or assumed is in `MEASURED` and
`CLUSTERS`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Measured:
    """Costs of an image, of this laboratory unless it says otherwise.

    Attributes:
        bytes: of a JPEG of 500 x 375 pixels; an assumption, since it is the user's.
        decode: seconds of a core to read and shrink it (rows/predict-h200: 1.5 ms of processor time an image).
        core: seconds of a core for the packaged networks (100,000 photographs in 17 minutes of two cores, less decoding).
        gpu: seconds of a GPU for them (rows/predict-h200: 5,156 images a second from memory).
        width: features of an image, two bytes each.
        learn: seconds of the two samples; sum, answer: seconds of a core for a row of features.
    """

    bytes: float = 40e3
    decode: float = 1.5e-3
    core: float = 18.5e-3
    gpu: float = 1 / 5156
    width: int = 1280
    learn: float = 120.0
    sum: float = 37e-6
    answer: float = 60e-6


@dataclass(frozen=True)
class Cluster:
    """Machines, and what an hour of one costs.

    Attributes:
        machines: how many, and the `workers` (GPUs, or cores) and `cores` of each.
        gpu: whether workers are GPUs.
        network: bytes a second into a machine; `store`: out of the store.
        price: of a machine and hour. Assumed: about what EC2 lists on demand for p5.48xlarge and c7i.16xlarge, not looked up.
    """

    name: str
    machines: int
    workers: int
    cores: int
    gpu: bool
    network: float
    store: float
    price: float


CLUSTERS = (
    Cluster("8 machines of 8 GPUs", 8, 8, 96, True, 12.5e9, 10e9, 55.0),
    Cluster("1,000 cores", 16, 62, 64, False, 3e9, 10e9, 2.86),
)
MEASURED = Measured()
ONE = 2.86
"""Price of an hour of the one machine that learns and answers, with 64 cores."""
REQUESTS = 0.4e-6
"""Price of one read request."""
BACK = 300.0
"""Seconds until a failed worker is there again."""


@dataclass(frozen=True)
class Result:
    """What a run of the simulation gives: seconds to describe, seconds of one machine, money, bytes, and what was lost."""

    cluster: str
    failures: float
    describe: float
    one: float
    money: float
    read: float
    written: float
    lost: int
    busy: dict[str, float]


def rates(cluster: Cluster, cost: Measured) -> dict[str, float]:
    """Images a second that each part of the cluster could do alone: the least of them is what saturates first."""
    workers = cluster.machines * cluster.workers
    cores = cluster.machines * cluster.cores
    compute = workers / cost.gpu if cluster.gpu else cores / (cost.core + cost.decode)
    found = {"networks": compute, "store": cluster.store / cost.bytes}
    found["network of machines"] = cluster.machines * cluster.network / cost.bytes
    return found | ({"decoding": cores / cost.decode} if cluster.gpu else {})


def on_paper(cluster: Cluster, cost: Measured, images: float) -> tuple[float, str]:
    """Seconds to describe all images, and what they wait for."""
    found = rates(cluster, cost)
    slowest = min(found, key=lambda name: found[name])
    return images / found[slowest], slowest


def simulate(cluster: Cluster, cost: Measured, *, images: float, shard: int, failures: float, seed: int = 0) -> Result:
    """Give shards to workers until all are described. `failures` are of a worker and hour."""
    chance = random.Random(seed)
    workers = cluster.machines * cluster.workers
    shards = max(1, round(images / shard))
    alone = rates(cluster, cost)
    each = {
        name: shard / (rate / workers) for name, rate in alone.items()
    }  # seconds of a shard for the share of a worker
    slowest = max(each.values())
    first = each["store"] + each["network of machines"]  # the first shard of a worker is not read beside another one
    free = [(chance.random() * slowest + first, number) for number in range(workers)]
    heapq.heapify(free)
    waiting, lost, end = shards, 0, 0.0
    back: list[tuple[float, int]] = []
    while waiting or back:
        now, worker = heapq.heappop(free)
        while back and (back[0][0] <= now or not waiting):
            now = max(now, heapq.heappop(back)[0])
            waiting += 1
        seconds = slowest * chance.uniform(0.9, 1.2)
        until = chance.expovariate(failures / 3600) if failures else float("inf")
        waiting -= 1
        if until < seconds:  # the shard goes back when the failure is noticed
            lost += 1
            heapq.heappush(back, (now + until, lost))
            heapq.heappush(free, (now + until + BACK + first, worker))
        else:
            end = max(end, now + seconds)
            heapq.heappush(free, (now + seconds, worker))
    one = cost.learn + images * (cost.sum + cost.answer)
    read, written = (shards + lost) * shard * cost.bytes, images * (2 * cost.width + 200)
    money = end / 3600 * cluster.machines * cluster.price + one / 3600 * ONE + (shards + lost) * REQUESTS
    busy = {name: min(1.0, images / rate / end) for name, rate in alone.items()}
    return Result(cluster.name, failures, end, one, money, read, written, lost, busy)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--images", type=float, default=1e8)
    words.add_argument("--shard", type=int, default=5000, help="images of a shard")
    words.add_argument("--failures", type=float, nargs="*", default=[0.0, 0.01, 0.1, 1.0], help="of a worker and hour")
    words.add_argument("--width", type=int, default=MEASURED.width)
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    cost = replace(MEASURED, width=asked.width)
    for cluster in CLUSTERS:
        seconds, slowest = on_paper(cluster, cost, asked.images)
        if not asked.json:
            print(f"{cluster.name}: on paper {seconds / 3600:.2f} h, waiting for {slowest}")
        for failures in asked.failures:
            found = simulate(cluster, cost, images=asked.images, shard=asked.shard, failures=failures)
            if asked.json:
                print(json.dumps(vars(found) | {"paper": seconds, "slowest": slowest}))
                continue
            busy = ", ".join(f"{name} {share:.0%}" for name, share in found.busy.items())
            print(
                f"  {failures:g} failures an hour: {found.describe / 3600:.2f} h, then one machine {found.one / 3600:.1f} h; "
                f"{found.money:,.0f} $, {found.read / 1e12:.1f} TB read, {found.written / 1e9:.0f} GB written, "
                f"{found.lost:,} shards again; busy: {busy}"
            )


if __name__ == "__main__":
    main()
