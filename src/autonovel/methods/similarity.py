"""Which two images are of one class, learned on the known classes: the similarity network of KCL and MCL."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.base.chance import host_generator
from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_view
from autonovel.data.loader import Batch
from autonovel.methods.base import Method, Seen, Task
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.models.views import Chain
from autonovel.settings.compared import SimilaritySettings

WIDER = 4
"""Hidden units of the head for each feature of an image, as published."""


class Similarity(Method):
    """Cross-entropy over all ordered pairs of a batch, each image with itself included, of class-balanced batches.

    In batches drawn at random hardly any two images are alike where classes are many, and the network learns to say never.
    """

    sees = "labels"
    settings: SimilaritySettings

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.similarity

    def prepare(self, net: Net) -> None:
        """Add the head that compares two images."""
        net.add_head("alike", HeadSpec("alike", net.n_features, 2, hidden=WIDER * net.n_features))

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """As many classes in a batch as the settings ask for or as there are, as many images of each as fit."""
        batch, generator = self.settings.batch, host_generator(*key)
        members = [torch.nonzero(labels == c).flatten() for c in range(int(labels.max()) + 1)]
        members = [images for images in members if len(images)]
        ways = min(self.settings.ways, len(members))
        per_class = batch // ways
        if per_class < 2:
            raise InputError(
                f"{option('similarity.batch')} {batch} holds fewer than two images of each of {ways} classes; raise it, or lower "
                f"{option('similarity.ways')}."
            )
        rows = []
        for _ in range(max(1, sum(map(len, members)) // batch)):
            classes = torch.randperm(len(members), generator=generator)[:ways].tolist()
            rows.append(torch.cat([_some(members[c], per_class, generator) for c in classes]))
        return torch.stack(rows)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image."""
        return [make_view(batch.images, key, batch.index, self.settings.augment)]

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """Whether the two images of a pair have one label."""
        scores = net.heads["alike"](net.features_of(seen.views)[0])
        alike = (seen.labels[:, None] == seen.labels[None, :]).long()
        return {"similarity": F.cross_entropy(scores.flatten(0, 1), alike.flatten())}


def _some(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """This many of the images in random order; where there are fewer, all of them several times."""
    order = images[torch.randperm(len(images), generator=generator)]
    return order.repeat(-(-count // len(order)))[:count]


class LearnedPairs(nn.Module):
    """A copy of the similarity network, which labels the pairs of a batch while another network learns from them.

    It sees the same views. Nothing in it learns, but its batch statistics are those of the new images.
    """

    backbone: Chain
    head: nn.Module

    def take_from(self, net: Net) -> None:
        """Copy a network whose head "alike" is trained, and take that head away from it."""
        self.backbone = copy.deepcopy(net.backbone).requires_grad_(False).train()
        self.head = copy.deepcopy(net.heads["alike"]).requires_grad_(False).train()
        net.drop_head("alike")

    @torch.no_grad()
    def labels(self, net: Net, view: Tensor) -> Tensor:
        """1 where two images of a view, behind the frozen blocks, are taken for one class, else 0: (n, n)."""
        features = net.whole(net.through_learning(view, backbone=self.backbone))
        scores: Tensor = self.head(features)
        return (scores[..., 1] > scores[..., 0]).float()
