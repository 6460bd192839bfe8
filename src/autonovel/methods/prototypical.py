"""Pre-training by episodes over the known classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.chance import Chance, host_generator
from autonovel.data.augment import make_view, turned
from autonovel.data.loader import Batch
from autonovel.errors import InputError, option
from autonovel.methods.base import Method, Seen, Task
from autonovel.models.net import Net
from autonovel.settings import Pretrain


class Prototypical(Method):
    """Prototypical networks (Snell et al., 2017): recognise a known class by the nearest mean of a few examples."""

    sees = "labels"
    whole_batches = True
    settings: Pretrain

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.pretrain

    def check(self, shape: tuple[int, ...]) -> None:
        """Images that are turned must be square."""
        if self.settings.turns and shape[0] != shape[1]:
            raise InputError(
                f"{option('pretrain.turns', True)} needs square images; set {option('model.size')}, or use "
                f"{option('pretrain.turns', False)}."
            )

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
                f"lower {option('pretrain.shots')} and {option('pretrain.queries')} "
                f"or use {option('pretrain.method', 'rotation')}."
            )
        ways = min(s.ways, len(members))
        rows = []
        for _ in range(s.episodes):
            chosen = torch.randperm(len(members), generator=generator)[:ways].tolist()
            picks = [members[c][torch.randperm(len(members[c]), generator=generator)[:per_class]] for c in chosen]
            rows.append(torch.cat(picks))
        return torch.stack(rows)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image; with turns, all images of a class are turned alike, and differently in the next episode."""
        view = make_view(batch.images, key, batch.index, self.settings.augment)
        if not self.settings.turns:
            return [view]
        # where several processes share an episode, each has some of its images but the labels of all
        places = (batch.index[:, None] == batch.whole_index).int().argmax(1)
        classes = batch.labels[places]
        return [turned(view, Chance(key, classes, view=1).integer(0, 3))]

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """Cross-entropy of the queries over minus the squared distances to the prototypes."""
        per_class = self.settings.shots + self.settings.queries
        z = net.features_of(seen.views)[0].view(-1, per_class, net.n_features)
        prototypes = z[:, : self.settings.shots].mean(1)
        queries = z[:, self.settings.shots :].reshape(-1, net.n_features)
        # squared distances less the term that is the same for all classes
        scores = 2 * queries @ prototypes.T - prototypes.square().sum(1)
        classes = torch.arange(len(z), device=z.device).repeat_interleave(self.settings.queries)
        return {"prototypical": F.cross_entropy(scores, classes)}
