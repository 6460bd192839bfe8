"""Stage 1: a representation before any class is learned."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.chance import host_generator
from autonovel.data.augment import make_view, quarter_turns
from autonovel.data.loader import Batch, shuffled
from autonovel.errors import InputError
from autonovel.models.layers import Linear
from autonovel.models.net import Net
from autonovel.settings import Pretrain


class Rotation:
    """RotNet (Gidaris et al., 2018): tell by how many quarter turns an image was rotated. Uses no labels."""

    def __init__(self, settings: Pretrain) -> None:
        self.settings = settings

    def prepare(self, net: Net) -> None:
        """Add a head for the four rotations."""
        net.heads["pretext"] = Linear(net.n_features, 4)

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """One shuffled pass over all images."""
        return shuffled(torch.arange(len(labels)), self.settings.batch, *key)

    def ramp(self, epoch: int) -> float:
        """Not used."""
        return 1.0

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image, in all four rotations."""
        return [quarter_turns(make_view(batch.images, key, batch.index, self.settings.augment))]

    def losses(self, net: Net, seen: list[Tensor], labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy over the four rotations of every image in the batch."""
        scores = net.head("pretext", net.features_of(seen)[0])
        turns = torch.arange(4, device=scores.device).repeat_interleave(len(labels))
        return {"rotation": F.cross_entropy(scores, turns)}


class Prototypical:
    """Prototypical networks (Snell et al., 2017): recognise a known class by the nearest mean of a few examples."""

    def __init__(self, settings: Pretrain) -> None:
        self.settings = settings

    def prepare(self, net: Net) -> None:
        """No head: classes are recognised by distance."""

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """Episodes: rows of ways x (shots + queries) images, class by class."""
        s = self.settings
        per_class = s.shots + s.queries
        generator = host_generator(*key)
        members = [torch.nonzero(labels == c).flatten() for c in range(int(labels.max()) + 1)]
        members = [m for m in members if len(m) >= per_class]
        if len(members) < 2:
            raise InputError(
                f"Prototypical pre-training needs two or more known classes with at least {per_class} images; "
                "lower --pretrain.shots and --pretrain.queries or use --pretrain.method rotation."
            )
        ways = min(s.ways, len(members))
        rows = []
        for _ in range(s.episodes):
            chosen = torch.randperm(len(members), generator=generator)[:ways].tolist()
            picks = [members[c][torch.randperm(len(members[c]), generator=generator)[:per_class]] for c in chosen]
            rows.append(torch.cat(picks))
        return torch.stack(rows)

    def ramp(self, epoch: int) -> float:
        """Not used."""
        return 1.0

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image."""
        # the step number is not in the key, so an image's variation would repeat within an epoch: mix in its neighbour
        index = batch.index + 7919 * batch.whole_index[:1]
        return [make_view(batch.images, key, index, self.settings.augment)]

    def losses(self, net: Net, seen: list[Tensor], labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy of the queries over minus the squared distances to the prototypes."""
        per_class = self.settings.shots + self.settings.queries
        z = net.features_of(seen)[0].view(-1, per_class, net.n_features)
        prototypes = z[:, : self.settings.shots].mean(1)
        queries = z[:, self.settings.shots :].reshape(-1, net.n_features)
        # squared distances less the term that is the same for all classes
        scores = 2 * queries @ prototypes.T - prototypes.square().sum(1)
        classes = torch.arange(len(z), device=z.device).repeat_interleave(self.settings.queries)
        return {"prototypical": F.cross_entropy(scores, classes)}
