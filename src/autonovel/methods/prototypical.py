"""Pre-training by episodes over the known classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.chance import Chance, host_generator
from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_view, turned
from autonovel.data.loader import Batch
from autonovel.methods.base import Method, Seen, Task
from autonovel.models.net import Net
from autonovel.settings.stages import PrototypicalSettings


class Prototypical(Method):
    """Prototypical networks (Snell et al., 2017): recognise a known class by the nearest mean of a few examples."""

    sees = "labels"
    whole_batches = True
    settings: PrototypicalSettings
    families: Tensor | None

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        assert isinstance(task.recipe.pretrain, PrototypicalSettings)
        self.settings = task.recipe.pretrain
        families = task.families if self.settings.families else None
        self.register_buffer("families", None if families is None else torch.from_numpy(families), persistent=False)

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
        classes = [c for c, images in enumerate(members) if len(images) >= per_class]
        members = [members[c] for c in classes]
        if len(members) < 2:
            raise InputError(
                f"Prototypical pre-training needs two or more known classes with at least {per_class} images; "
                f"lower {option('pretrain.shots')} and {option('pretrain.queries')} "
                f"or use {option('pretrain.method', 'rotation')}."
            )
        ways = min(s.ways, len(members))
        families = None if self.families is None else self.families.cpu()[classes]
        rows = []
        for _ in range(s.episodes):
            chosen = torch.randperm(len(members), generator=generator)
            if families is not None and torch.rand((), generator=generator) < s.families:
                chosen = _family_by_family(chosen, families, generator)
            own = [members[c] for c in chosen[:ways].tolist()]
            picks = [images[torch.randperm(len(images), generator=generator)[:per_class]] for images in own]
            rows.append(torch.cat(picks))
        return torch.stack(rows)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """One of each image; with turns, all images of a class are turned alike, and differently in the next episode.

        Classes of one family are turned alike too: as different characters of an alphabet they would be easy to tell apart.
        """
        view = make_view(batch.images, key, batch.index, self.settings.augment, mirror=self.mirror)
        if not self.settings.turns:
            return [view]
        # where several processes share an episode, each has some of its images but the labels of all
        places = (batch.index[:, None] == batch.whole_index).int().argmax(1)
        classes = batch.labels[places]
        if self.families is not None:
            classes = self.families[classes]
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


def _family_by_family(classes: Tensor, families: Tensor, generator: torch.Generator) -> Tensor:
    """The same classes in the same order, but those of one family after the other; families come in random order."""
    rank = torch.randperm(int(families.max()) + 1, generator=generator)[families]
    return classes[rank[classes].argsort(stable=True)]
