"""Deep transfer clustering (DTC, Han et al., 2019): clusters that sharpen themselves, from k-means on what was learned before."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.maths.kmeans import kmeans
from autonovel.maths.losses import masked_mean
from autonovel.maths.sharpening import (
    divergence_from,
    moved_average,
    principal_axes,
    sharpened,
    student_scores,
    unbiased,
)
from autonovel.methods.base import Look, Seen, Task
from autonovel.methods.pile import PileMethod
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.settings.compared import DtcSettings

RESTARTS = 20
"""Of k-means at the start, as published."""
MOMENTUM = 0.6
"""Of the averages of te and tep, as published."""


class DTC(PileMethod):
    """Each image moves towards a sharpened copy of what the network says of all of them.

    The features of the stages before are clustered by k-means on as many principal axes as there are clusters. A new last layer
    is fitted to those clusters. Then targets are made again every few epochs from what the network says of the images as they
    are, and the whole network learns them. Variants: pi adds that two views agree, te that a view agrees with the average of
    earlier ones, tep makes targets of the average of what was said before.
    """

    settings: DtcSettings
    targets: Tensor
    average: Tensor
    """What was said of each image so far, as a running average that begins at zero (te, tep)."""
    averaged: Tensor
    """How often that average was moved."""
    said: Tensor
    """What is said of each image in this epoch (te)."""
    before: Tensor
    """The average up to the last epoch, which views of this one are to agree with (te)."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = task.recipe.dtc

    def prepare(self, net: Net) -> None:
        """A layer with as many outputs as clusters, and centres among them; room for targets and averages."""
        super().prepare(net)
        hidden = net.n_features // 2 if self._model.head == "mlp" else 0
        net.add_head("new", HeadSpec("student", net.n_features, self._n_new, stacked=True, hidden=hidden))
        shape = (self._n_images, self._n_new)
        self.register_buffer("targets", torch.zeros(shape))
        if self.settings.variant in ("te", "tep"):
            self.register_buffer("average", torch.zeros(shape))
            self.register_buffer("averaged", torch.zeros((), dtype=torch.int64))
        if self.settings.variant == "te":
            self.register_buffer("said", torch.zeros(shape))
            self.register_buffer("before", torch.zeros(shape))

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Cluster before the first epoch; make targets again when it is time; move the averages."""
        s = self.settings
        index = torch.nonzero(look.labels < 0).flatten()
        if epoch == 0:
            self._cluster(net, look, index)
            return
        done = epoch - s.fit_epochs  # epochs of the main part that are over
        if done < 0:
            return
        if s.variant == "te" and done > 0:
            self._move_average(self.said)
            self.before.copy_(unbiased(self.average, MOMENTUM, int(self.averaged)))
        if done == 0 or (done - 1) % s.refresh == 0:
            q = net.head("new", look.features(index).to(self.targets.device))[0].softmax(1)
            if s.variant == "tep":
                now = torch.zeros_like(self.average)
                now[index.to(now.device)] = q
                self._move_average(now)
                q = unbiased(self.average, MOMENTUM, int(self.averaged))[index.to(now.device)]
            self._aim(index, look, q)

    def _cluster(self, net: Net, look: Look, index: Tensor) -> None:
        """The first centres and targets: k-means on the principal axes."""
        features = look.features(index)

        def start() -> tuple[Tensor, Tensor]:
            points = principal_axes(features, self._n_new)
            return points, kmeans(points, self._n_new, restarts=RESTARTS, seed=look.seed).centres

        points, centres = look.agreed(start)
        with torch.no_grad():
            net.heads["new"][0].centres.zero_()[:, : centres.shape[1]].copy_(centres)  # type: ignore[index]
        self._aim(index, look, student_scores(points, centres).softmax(1))

    @torch.no_grad()
    def _aim(self, index: Tensor, look: Look, q: Tensor) -> None:
        targets = look.agreed(lambda: sharpened(q).cpu())
        self.targets[index.to(self.targets.device)] = targets.to(self.targets)

    @torch.no_grad()
    def _move_average(self, now: Tensor) -> None:
        self.average.copy_(moved_average(self.average, now, MOMENTUM))
        self.averaged += 1

    def ramp(self, epoch: int) -> float:
        """The weight of agreement, which begins with the main part."""
        return self.settings.ramp_at(epoch)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Two of each image where they are to agree, otherwise one."""
        count = 2 if self.settings.variant == "pi" else 1
        return make_views(batch.images, key, batch.index, self.settings.augment, views=range(count))

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The divergence from the targets, and the agreement of the variant."""
        s, mask = self.settings, seen.labels < 0
        scores = [score[0] for score in net.head_of("new", net.features_of(seen.views))]
        losses = {"clusters": divergence_from(self.targets[seen.index], scores[0], mask)}
        q = scores[0].softmax(1)
        if s.variant == "pi":
            losses["consistency"] = ramp * s.consistency * _distance(q, scores[1].softmax(1), mask)
        if s.variant == "te":
            losses["consistency"] = ramp * s.consistency * _distance(q, self.before[seen.index], mask)
            self.said.index_copy_(0, seen.index, q.detach())
        return losses


def _distance(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """The mean squared difference of rows of the mask."""
    return masked_mean(F.mse_loss(first, second, reduction="none").mean(1), mask)
