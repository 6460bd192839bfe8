"""Joint training on a known alphabet of OmniGlot as plainly as can be, to check the package against.

    python lab/plain_omniglot.py --root DATA --start RUNS/counting --alphabet Latin --out plain.jsonl

The recipe is `omniglot` in preset `reference`, the loop is written out: torch's own layers, in float32, step by step, nothing
compiled, captured or masked. Views are cut from larger images and averaged down to 32 pixels, as the authors cut them from the
whole drawing. It starts from the first stage that `lab/omniglot.py` trained for counting and takes an alphabet that this
stage left out (as `lab/tune_omniglot.py` does), so the accuracy may be looked at on the way. Adds a line of JSON.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from common import add_row, say
from torch import Tensor, nn
from torch.nn import functional as F
from tune_omniglot import as_pile

from autonovel.data.benchmarks.alphabets import PROBE_ALPHABETS, classes_by_alphabet
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.maths.metrics import cluster_accuracy
from autonovel.runs.folder import Run

KNOWN, NEW = 68, 32
"""Images of each kind in a batch."""
LOOKED_AT = (10, 30, 60, 90)
"""Epochs after which the accuracy is taken, beside the last two."""


class Characters(nn.Module):
    """The authors' network: four blocks, of which the last learns, and two heads."""

    def __init__(self, n_known: int, n_new: int, state: dict[str, Tensor]) -> None:
        super().__init__()
        channels = (1, 64, 128, 256, 256)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))
            for i, o in itertools.pairwise(channels)
        )
        for number, block in enumerate(self.blocks, 1):
            name = f"backbone.layer{number}."
            own = {key.removeprefix(name): value for key, value in state.items() if key.startswith(name)}
            block.load_state_dict(own, strict=False)  # a counter of batches is not kept
            block.requires_grad_(number == len(self.blocks))
        self.known, self.new = (
            nn.Sequential(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, n))
            for n in (n_known, n_new)
        )

    def features(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.flatten(1)


def cut(images: Tensor, rng: np.random.Generator) -> Tensor:
    """A random part of each image (n, 1, h, h) in its full size: 85 to 100 % of its area, drawn again where it does not fit."""
    parts = []
    for _ in range(len(images)):
        for _ in range(10):
            area, ratio = rng.uniform(0.85, 1), math.exp(rng.uniform(-1, 1) * math.log(4 / 3))
            width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if max(width, height) <= 1:
                break
        else:
            width = height = 1.0
        x, y = (1 - width) * rng.uniform(-1, 1), (1 - height) * rng.uniform(-1, 1)
        parts.append([[width, 0, x], [0, height, y]])
    theta = torch.tensor(parts, dtype=torch.float32, device=images.device)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--start", type=Path, required=True, metavar="RUN", help="with the first stage")
    parser.add_argument("--alphabet", choices=PROBE_ALPHABETS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--side", type=int, default=96, help="of the images that views are cut from: 32, 64 or 96")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, help="of an epoch: to try the script")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", default="")
    parser.add_argument("--unverified", action="store_true")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    torch.backends.cudnn.allow_tf32 = False

    images, _ = load_benchmark("omniglot", args.root, size=args.side, unverified=args.unverified)
    pile, truth = as_pile(images, classes_by_alphabet(images.class_names)[args.alphabet])
    pixels = torch.from_numpy(np.array(pile.images[..., 0])).to(args.device)
    labels = torch.from_numpy(pile.labels).to(args.device)
    known, new = np.flatnonzero(pile.labels >= 0), np.flatnonzero(pile.labels < 0)
    state = {
        name: value.to(args.device) for name, value in Run(args.start).read_tensors("pretrain.safetensors")[0].items()
    }
    net = Characters(pile.n_known, len(truth.class_names) - pile.n_known, state).to(args.device)
    optimiser = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)

    def shown(index: np.ndarray, *, varied: bool) -> Tensor:
        x = pixels[torch.from_numpy(index).to(args.device)][:, None].float() / 255
        x = cut(x, rng) if varied else x
        return (F.avg_pool2d(x, args.side // 32) - state["mean"]) / state["std"]

    def accuracy() -> float:
        net.eval()
        with torch.no_grad():
            found = [
                net.new(net.features(shown(part, varied=False))).argmax(1).cpu() for part in np.array_split(new, 4)
            ]
        net.train()
        return cluster_accuracy(truth.labels[new], torch.cat(found).numpy())

    began, curve = time.perf_counter(), {}
    steps = args.steps or len(known) // KNOWN
    for epoch in range(args.epochs):
        for group in optimiser.param_groups:
            group["lr"] = 0.001 if epoch == args.epochs - 1 else 0.01
        weight = 100 * math.exp(-5 * (1 - min(1, epoch)) ** 2)
        order = rng.permutation(known)
        passes = np.concatenate([rng.permutation(new) for _ in range(steps * NEW // len(new) + 1)])
        for i in range(steps):
            index = np.concatenate([order[KNOWN * i :][:KNOWN], passes[NEW * i :][:NEW]])
            one, two = (net.features(shown(index, varied=True)) for _ in range(2))
            scores = [head(z) for head in (net.known, net.new) for z in (one, two)]
            p_known, q_known, p_new, q_new = (s.softmax(1) for s in scores)
            top = one[KNOWN:].detach().argsort(1, descending=True)[:, :5].sort(1).values
            same = (top[:, None] == top).all(2).float()
            together = p_new[KNOWN:] @ q_new[KNOWN:].T
            pairs = -(same * together + (1 - same) * (1 - together) + 1e-7).log().mean()
            agreement = F.mse_loss(p_known, q_known) + F.mse_loss(p_new, q_new)
            loss = F.cross_entropy(scores[0][:KNOWN], labels[index[:KNOWN]]) + pairs + weight * agreement
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if epoch + 1 in (*LOOKED_AT, args.epochs - 1, args.epochs):
            curve[epoch + 1] = accuracy()
            say(f"{args.alphabet} {epoch + 1}: {curve[epoch + 1]:.4f}, pairs called the same {same.mean():.4f}")
    row = {"alphabet": args.alphabet, "loop": "plain", "precision": "float32", "side": args.side, "seed": 0}
    row |= {"acc_new": accuracy(), "curve": curve, "seconds": round(time.perf_counter() - began)}
    add_row(args.out, row | {"commit": args.commit, "date": str(date.today())})


if __name__ == "__main__":
    main()
