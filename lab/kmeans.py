"""Speed and memory of k-means and of the sweep over k, as ratios to scikit-learn in the same run.

    python lab/kmeans.py --quick          a minute on two cores
    python lab/kmeans.py                  50,000 x 512, k = 1..100, and 1,000,000 x 128
    python lab/kmeans.py --device cuda    the sweep on a GPU (scikit-learn stays on the CPU)

scikit-learn runs at a few k only; its time for the whole sweep is the area under the line through these points.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from autonovel.maths.kmeans import kmeans
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep


def mixture(n: int, dim: int, classes: int = 60, distance: float = 0.6) -> torch.Tensor:
    """Overlapping Gaussian classes, (n, dim)."""
    generator = torch.Generator().manual_seed(0)
    centres = distance * torch.randn(classes, dim, generator=generator)
    return centres[torch.randint(classes, (n,), generator=generator)].add_(torch.randn(n, dim, generator=generator))


def our_sweep(points: torch.Tensor, ks: list[int], restarts: int, mode: str, sample: int | None) -> dict[str, Any]:
    """k-means and silhouette for `ks`: `coarse` looks at every 8th and around the best, the others at all."""
    begin = time.perf_counter()
    sweep = Sweep(points, restarts=restarts)
    run = sweep.fresh if mode == "fresh" else sweep.chain
    scores: dict[int, float] = {}
    inertia: dict[int, float] = {}
    clustering = 0.0

    def look(numbers: list[int]) -> None:
        nonlocal clustering
        start = time.perf_counter()
        results = dict(run(numbers))
        labels = torch.stack([result.labels for result in results.values()])
        clustering += time.perf_counter() - start
        found = silhouette(points, labels, sample=sample).score.tolist()
        scores.update(zip(results, found, strict=True))
        inertia.update({k: result.inertia for k, result in results.items()})

    if mode == "coarse":
        look(sorted({*ks[::8], ks[-1]}))
        best = max(scores, key=lambda k: -1 if np.isnan(scores[k]) else scores[k])
        look([k for k in ks if abs(k - best) < 8 and k not in scores])
    else:
        look(ks)
    seconds = time.perf_counter() - begin
    best = max(scores, key=lambda k: -1 if np.isnan(scores[k]) else scores[k])
    return {"seconds": seconds, "kmeans_seconds": clustering, "best_k": best, "inertia": inertia, "scores": scores}


def reference_sweep(points: np.ndarray, ks: list[int], looked_at: list[int], restarts: int) -> dict[str, Any]:
    """scikit-learn at `looked_at`, and what that makes for all of `ks`."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    kmeans_seconds, silhouette_seconds, inertia, scores = [], [], {}, {}
    for k in looked_at:
        start = time.perf_counter()
        model = KMeans(k, n_init=restarts, random_state=0).fit(points)
        middle = time.perf_counter()
        scores[k] = float(silhouette_score(points, model.labels_))
        kmeans_seconds.append(middle - start)
        silhouette_seconds.append(time.perf_counter() - middle)
        inertia[k] = float(model.inertia_)
    whole = [float(np.interp(ks, looked_at, seconds).sum()) for seconds in (kmeans_seconds, silhouette_seconds)]
    return {"seconds": sum(whole), "kmeans_seconds": whole[0], "inertia": inertia, "scores": scores}


def in_own_process(work: Callable[..., float], *arguments: Any) -> tuple[float, float]:
    """(seconds, peak resident GiB) of `work` in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(send, work, arguments))
    process.start()
    seconds, peak = receive.recv()
    process.join()
    return seconds, peak


def _report(send: Any, work: Callable[..., float], arguments: tuple[Any, ...]) -> None:
    seconds = work(*arguments)
    send.send((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def our_large(n: int, dim: int, k: int, restarts: int, iterations: int) -> float:
    points = mixture(n, dim)
    start = time.perf_counter()
    kmeans(points, k, restarts=restarts, max_iter=iterations)
    return time.perf_counter() - start


def reference_large(n: int, dim: int, k: int, restarts: int, iterations: int) -> float:
    from sklearn.cluster import KMeans

    points = mixture(n, dim).numpy()
    start = time.perf_counter()
    KMeans(k, n_init=restarts, max_iter=iterations, random_state=0).fit(points)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--points", type=int, help="points of the sweep")
    parser.add_argument(
        "--modes", nargs="+", default=["coarse", "chain", "fresh"], choices=["coarse", "chain", "fresh"]
    )
    parser.add_argument("--no-reference", action="store_true", help="leave scikit-learn out")
    parser.add_argument("--no-large", action="store_true", help="leave the memory test out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    n, dim, k_max, looked_at = (
        (3000, 64, 40, [2, 10, 20, 30, 40]) if options.quick else (50_000, 512, 100, [2, 25, 50, 75, 100])
    )
    n = options.points or n
    ks, restarts = list(range(1, k_max + 1)), 10
    device = torch.device(options.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    report: dict[str, Any] = {"points": n, "dim": dim, "k": k_max, "restarts": restarts, "device": name}
    report["threads"] = options.threads
    points = mixture(n, dim)
    moved = points.to(device)
    if device.type == "cuda":  # the first product loads the library
        kmeans(moved[:1000], 3, restarts=1)

    rows: dict[str, dict[str, Any]] = {}
    for mode in options.modes:
        rows[f"ours, {mode}"] = our_sweep(moved, ks, restarts, mode, None)
    rows[f"ours, {options.modes[0]}, silhouette of 5,000"] = our_sweep(moved, ks, restarts, options.modes[0], 5000)
    reference = None if options.no_reference else reference_sweep(points.numpy(), ks, looked_at, restarts)
    print(f"\nSweep k = 1..{k_max}, {restarts} restarts, {n:,} x {dim}, {name}, {options.threads} threads")
    print(f"{'':40} {'seconds':>9} {'k-means':>9} {'ratio':>7} {'inertia':>9} {'best k':>7}")
    for title, row in rows.items():
        ratio = reference["seconds"] / row["seconds"] if reference else float("nan")
        shared = [k for k in looked_at if k in row["inertia"]] if reference else []
        excess = max((row["inertia"][k] / reference["inertia"][k] for k in shared), default=float("nan"))
        row.update(ratio=ratio, worst_inertia_ratio=excess)
        line = f"{title:40} {row['seconds']:9.2f} {row['kmeans_seconds']:9.2f} {ratio:6.1f}x {excess:9.4f}"
        print(f"{line} {row['best_k']:7d}")
    if reference:
        print(f"{'scikit-learn':40} {reference['seconds']:9.2f} {reference['kmeans_seconds']:9.2f}")
    report["sweep"] = rows
    report["scikit-learn"] = reference

    if not options.no_large and device.type == "cpu":
        size = (50_000, 64, 20, 2, 10) if options.quick else (1_000_000, 128, 50, 2, 10)
        seconds, peak = in_own_process(our_large, *size)
        report["large"] = {"size": size, "seconds": seconds, "peak_gib": peak}
        print(f"\n{size[0]:,} x {size[1]}, k = {size[2]}, {size[3]} restarts, {size[4]} iterations at most")
        print(f"ours         {seconds:8.2f} s  {peak:5.2f} GiB peak, data included")
        if not options.no_reference:
            theirs, their_peak = in_own_process(reference_large, *size)
            report["large"].update(reference_seconds=theirs, reference_peak_gib=their_peak, ratio=theirs / seconds)
            print(f"scikit-learn {theirs:8.2f} s  {their_peak:5.2f} GiB   ratio {theirs / seconds:.1f}x")
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
