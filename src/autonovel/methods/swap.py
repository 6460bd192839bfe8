"""Swapped prediction: balanced clusters in place of pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.errors import InputError, option
from autonovel.maths.losses import balanced_targets
from autonovel.methods.base import Look, Losses, Seen
from autonovel.methods.joint import JointObjective
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.settings import Augment


class Swapped(JointObjective):
    """Each view predicts the balanced assignment of the others (Caron et al., 2020; Fini et al., 2021).

    Scores of known and new classes stand in one softmax; labelled images have their label as target, the others a balanced
    assignment to the new classes. Several heads learn side by side, each with a partner that has more clusters.
    """

    def check(self, shape: tuple[int, ...]) -> None:
        """Each view needs another one to predict."""
        if self.settings.swap.views < 2:
            raise InputError(f"{option('joint.swap.views')} must be at least 2: each view predicts the other.")

    def prepare(self, net: Net) -> None:
        """Add the clustering heads and the over-clustering ones."""
        swap = self.settings.swap
        net.add_head("new", self._spec(net, self._n_new))
        if swap.over_factor:
            net.add_head("over", self._spec(net, swap.over_factor * self._n_new))

    def _spec(self, net: Net, clusters: int) -> HeadSpec:
        swap = self.settings.swap
        return HeadSpec(
            "projected",
            net.n_features,
            clusters,
            temperature=self._model.temperature,
            count=swap.heads,
            hidden=swap.hidden,
            projection=swap.projection,
        )

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Those in full size, then the small ones."""
        s, swap = self.settings, self.settings.swap
        full, small = range(swap.views), range(swap.views, swap.views + swap.small_views)
        views = make_views(batch.images, key, batch.index, s.augment, views=full)
        if small:
            part = _part_of(s.augment, swap.small_area)
            views += make_views(batch.images, key, batch.index, part, views=small, size=swap.small_size)
        return views

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The mean swapped cross-entropy of each head, a vector for each kind of head."""
        features = net.features_of(seen.views)
        known = net.head_of("known", features) if "known" in net.heads else None
        kinds = [kind for kind in ("new", "over") if kind in net.heads]
        return {kind: self._swapped(net.head_of(kind, features), known, seen.labels) / len(kinds) for kind in kinds}

    def _swapped(self, scores: list[Tensor], known: list[Tensor] | None, labels: Tensor) -> Tensor:
        """Cross-entropy of each view against the targets of the other full-size views, by head: (heads,)."""
        swap, heads = self.settings.swap, len(scores[0])
        is_labelled = labels >= 0
        if known is not None:
            joint = [torch.cat([k.expand(heads, -1, -1), s], 2) for k, s in zip(known, scores, strict=True)]
            given = F.one_hot(torch.where(is_labelled, labels, 0), self._n_known).float() * is_labelled[:, None]
        else:
            joint, given = scores, scores[0].new_zeros(len(labels), 0)
        log_p = [logits.log_softmax(2) for logits in joint]
        total, count = scores[0].new_zeros(heads), 0
        for v in range(swap.views):
            cosines = scores[v].detach() * self._model.temperature
            found = balanced_targets(cosines, ~is_labelled, epsilon=swap.epsilon, iterations=swap.iterations)
            target = torch.cat([given.expand(heads, -1, -1), found], 2)
            for w in range(len(log_p)):
                if w != v:
                    total = total - (target * log_p[w]).sum(2).mean(1)
                    count += 1
        return total / count / heads

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Let the head with the lowest loss in the last epoch answer."""
        net.answering_head.fill_(int(np.argmin(losses["new"])))


def _part_of(augment: Augment, area: tuple[float, float]) -> Augment:
    """The same variations, but always of a scaled part of the image."""
    return replace(augment, crop="resized", area=area)
