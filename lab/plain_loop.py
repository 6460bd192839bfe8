"""The three stages as one would write them straight from the paper: the loop that lab/speed.py measures against.

It is in the manner of its time: worker processes vary one image after the other with Pillow, everything is float32, rows
are picked by boolean indexing, pairs are written out one by one, running means read a number from the device every step.
The network, the settings and what is computed are those of the package; a test compares the losses.
"""

from __future__ import annotations

import random
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from autonovel.data.augment import PAD
from autonovel.models.net import Net
from autonovel.settings.joint import PairsSettings
from autonovel.settings.stages import Training
from autonovel.training.optimiser import MOMENTUM


def random_view(image: Image.Image, pad: int) -> Image.Image:
    """A crop of the image with a black border, mirrored by chance."""
    width, height = image.size
    left, top = random.randint(0, 2 * pad), random.randint(0, 2 * pad)
    image = ImageOps.expand(image, pad).crop((left, top, left + width, top + height))
    return ImageOps.mirror(image) if random.random() < 0.5 else image


def to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


class Pictures(Dataset):
    """Images as Pillow sees them; an item is its views (one, two, or one in four rotations), its label."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, stage: str, pad: int) -> None:
        keep = labels >= 0 if stage == "supervised" else np.ones(len(labels), dtype=bool)
        self.images, self.labels, self.stage, self.pad = images[keep], labels[keep], stage, pad

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[list[Tensor], int]:
        image = Image.fromarray(self.images[place])
        if self.stage == "rotation":
            view = random_view(image, self.pad)
            views = [view.rotate(90 * turns) for turns in range(4)]
        else:
            views = [random_view(image, self.pad) for _ in range(2 if self.stage == "joint" else 1)]
        return [to_tensor(view) for view in views], int(self.labels[place])


def all_pairs(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Every ordered pair of rows (n, d), written out: twice (n^2, d)."""
    n = len(rows)
    return rows.repeat_interleave(n, 0), rows.repeat(n, 1)


def same_top_k(features: Tensor, k: int) -> Tensor:
    """For every ordered pair of rows whether their k largest features are the same set: bool (n^2,)."""
    ranking = features.argsort(1, descending=True)
    first, second = all_pairs(ranking)
    first, second = first[:, :k].sort(1).values, second[:, :k].sort(1).values
    return (first - second).abs().sum(1) == 0


def pairwise_loss(first_view: Tensor, second_view: Tensor, same: Tensor) -> Tensor:
    """Binary cross-entropy of the inner products of class probabilities, over all ordered pairs."""
    left, _ = all_pairs(first_view)
    _, right = all_pairs(second_view)
    score = (left * right).sum(1)
    return -torch.log(torch.where(same, score, 1 - score) + 1e-7).mean()


def losses_of(stage: str, net: Net, views: list[Tensor], labels: Tensor, settings: Training, ramp: float) -> dict:
    """The weighted losses of a batch, by name."""
    if stage == "rotation":
        turns = torch.arange(4, device=labels.device).repeat_interleave(len(labels))
        return {"rotation": F.cross_entropy(net.head("pretext", net.features(torch.cat(views))), turns)}
    if stage == "supervised":
        return {"known": F.cross_entropy(net.head("known", net.features(views[0])), labels)}
    assert isinstance(settings, PairsSettings)
    known = labels >= 0
    features = [net.features(view) for view in views]
    known_scores = [net.head("known", z) for z in features]
    p_known = [scores.softmax(1) for scores in known_scores]
    p_new = [net.head("new", z)[0].softmax(1) for z in features]
    same = same_top_k(features[0][~known].detach(), settings.top_k)
    agreement = F.mse_loss(p_known[0], p_known[1]) + F.mse_loss(p_new[0], p_new[1])
    return {
        "pairs": pairwise_loss(p_new[0][~known], p_new[1][~known], same),
        "known": F.cross_entropy(known_scores[0][known], labels[known]),
        "consistency": settings.consistency * ramp * agreement,
    }


class RunningMean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float, n: int) -> None:
        self.total, self.count = self.total + value * n, self.count + n


class PlainLoop:
    """Training of one stage, epoch by epoch."""

    def __init__(
        self, stage: str, net: Net, images: np.ndarray, labels: np.ndarray, settings: Training, *, workers: int
    ) -> None:
        self.stage, self.net, self.settings = stage, net, settings
        self.device = next(net.parameters()).device
        pictures = Pictures(images, labels, stage, PAD)
        pinned = self.device.type == "cuda"
        self.loader = DataLoader(pictures, settings.batch, shuffle=True, num_workers=workers, pin_memory=pinned)
        net.freeze(settings.train_from)
        net.train()
        weights: list[nn.Parameter] = [p for p in net.parameters() if p.requires_grad]
        self.optimiser = torch.optim.SGD(
            weights,
            settings.lr,
            MOMENTUM,
            weight_decay=settings.weight_decay,
            nesterov=settings.optimiser == "nesterov",
        )

    def epoch(self, number: int, most_steps: int | None = None) -> tuple[float, float, int]:
        """Train for an epoch, or its first steps: seconds until the first batch is there, seconds of the steps, steps."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.lr_at(number)
        ramp = self.settings.ramp_at(number) if isinstance(self.settings, PairsSettings) else 1.0
        means: dict[str, RunningMean] = {}
        steps = len(self.loader) if most_steps is None else min(most_steps, len(self.loader))
        start = time.perf_counter()
        batches = iter(self.loader)
        views, labels = next(batches)
        first_batch = time.perf_counter()
        for step in range(steps):
            if step:
                views, labels = next(batches)
            views = [view.to(self.device) for view in views]
            labels = labels.to(self.device)
            losses = losses_of(self.stage, self.net, views, labels, self.settings, ramp)
            self.optimiser.zero_grad()
            sum(losses.values()).backward()
            self.optimiser.step()
            for name, loss in losses.items():
                means.setdefault(name, RunningMean()).update(loss.item(), len(labels))
        return first_batch - start, time.perf_counter() - first_batch, steps
