"""Swapped prediction: balanced clusters in place of pairs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.maths.grouping import clearer_groups
from autonovel.maths.known_space import components
from autonovel.maths.losses import balanced_targets, log_picked, set_divergence
from autonovel.methods.base import Look, Losses, Seen, Task
from autonovel.methods.joint import JointObjective
from autonovel.models.heads import HeadSpec, ProjectedHeads
from autonovel.models.net import Net
from autonovel.settings.augment import Augment
from autonovel.settings.joint import SwapSettings, rise
from autonovel.settings.recipe import KEEP_LAYOUT

VIEWS = 2
"""Full-size views of each image; each predicts the targets of the other."""
EPSILON, ROUNDS = 0.05, 3
"""How soft the balanced targets are, and the rounds of balancing."""
SMALL_SIDE, SMALLEST_SIDE = 9 / 16, 8
"""The side of a small view as a share of the image's (18 of 32 pixels, as in UNO's second version), and the fewest pixels."""
SMALL_AREA = (0.3, 0.8)
"""The share of the image that a small view covers."""
LOOKED_AT = 10_000
"""Images of each kind, labelled and new, in whose features groups are looked for."""
AT_ONCE = 4096
"""Images that pass through the heads together between epochs."""


class Swap(JointObjective):
    """Each view predicts the balanced assignment of the others (Caron et al., 2020; Fini et al., 2021).

    Scores of known and new classes stand in one softmax; labelled images have their label as target, the others a balanced
    assignment to the new classes. Several heads learn side by side, each with a partner that has more clusters.
    """

    doubts = True
    settings: SwapSettings

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._smallest_part = task.recipe.smallest_part

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a network that cannot take what it is shown."""
        self._check_views(self._model.backbone)

    def _check_views(self, backbone: str) -> None:
        if self.settings.small_views and backbone in KEEP_LAYOUT:
            raise InputError(
                f"The {backbone} network takes images of one size, so there can be no small views; set "
                f"{option('joint.small_views', 0)}, or choose another {option('model.backbone')}."
            )

    def prepare(self, net: Net) -> None:
        """Add the clustering heads and the over-clustering ones, and the sizes that targets aim at."""
        super().prepare(net)
        self._check_views(net.settings.backbone)  # that of a file says what it is only once it is read
        swap, n_new = self.settings, self._n_new
        self._add_heads(net, "new", n_new)
        if swap.regroups:
            self.register_buffer("prior_new", torch.full((swap.heads, n_new), 1 / n_new))
        if swap.over_factor:
            self._add_heads(net, "over", swap.over_factor * n_new)

    def _add_heads(self, net: Net, kind: str, classes: int) -> None:
        swap = self.settings
        spec = HeadSpec(
            "projected",
            net.n_features,
            classes,
            temperature=self._model.temperature,
            count=swap.heads,
            hidden=swap.hidden,
            projection=swap.projection,
        )
        net.add_head(kind, spec)

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Look for groups of different sizes, if that is wanted and it is time."""
        super().start_epoch(net, look, epoch)
        times, epochs = self.settings.regroups, self.settings.epochs
        if epoch in {turn * epochs // (times + 1) for turn in range(1, times + 1)}:
            self._regroup(net, look)

    @torch.no_grad()
    def _regroup(self, net: Net, look: Look) -> None:
        """Where groups of the features are clearer than the clusters of a head, start these again from them, with their sizes.

        Clusters of one size cut large classes, and training makes them surer of it; the features keep the classes apart all the
        same. The heads with more clusters stay: a large class may have more of them.
        """
        head = net.heads["new"]
        assert isinstance(head, ProjectedHeads)
        device = head.weight.device
        labelled, free = torch.nonzero(look.labels >= 0).flatten(), self._new_images(look)
        if len(free) < 2 * self._n_new:
            return
        some_labelled, some = _some(labelled), _some(free)
        pile = look.features(some).to(device)
        known = look.features(some_labelled).to(device) if len(labelled) else pile[:0]
        # the middles of groups must lie where training, which goes by the statistics of its batches, will see them
        counts = [
            seen.new_full((len(seen),), of / max(1, len(seen)))
            for seen, of in ((known, len(labelled)), (pile, len(free)))
        ]
        head.settle(torch.cat([known, pile]), torch.cat(counts), AT_ONCE)
        own = torch.cat([head(part).argmax(2) for part in pile.split(AT_ONCE)], 1)
        places, labels = components(known, pile), look.labels[some_labelled].to(device)

        def decide() -> list[Tensor]:
            return [
                part.cpu() for part in clearer_groups(places[0], labels, places[1], own, self._n_new, seed=look.seed)
            ]

        groups, clearer = (part.to(device) for part in look.agreed(decide))
        head.start_from(pile, groups, clearer, AT_ONCE)
        sizes = torch.bincount(groups, minlength=self._n_new)
        prior = self.get_buffer("prior_new")
        prior.copy_(torch.where(clearer[:, None], sizes / sizes.sum(), prior))

    def _new_images(self, look: Look) -> Tensor:
        """Where the images of the pile are that are not taken for known classes."""
        free = look.labels < 0
        if self._pile != "new":
            free &= self.taken_for.cpu() < 0
        return torch.nonzero(free).flatten()

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Those in full size, then the small ones."""
        vary, count = self.settings.augment, self.settings.small_views
        views = make_views(batch.images, key, batch.index, vary, views=range(VIEWS), mirror=self.mirror)
        if count:
            side = max(SMALLEST_SIDE, round(SMALL_SIDE * batch.images.shape[1]))
            small = range(VIEWS, VIEWS + count)
            part = _part_of(vary, self._smallest_part)
            views += make_views(batch.images, key, batch.index, part, views=small, mirror=self.mirror, size=side)
        return views

    def ramp(self, epoch: int) -> float:
        """The weight of the divergence."""
        return rise(epoch, self.settings.divergence_ramp * self.settings.epochs)

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The mean swapped cross-entropy of each head, a vector for each kind of head; the divergence by its own name."""
        swap, labels = self.settings, self.labels_of(seen)
        features = net.features_of(seen.views)
        known = net.head_of("known", features) if "known" in net.heads else None
        kinds = [kind for kind in ("new", "over") if kind in net.heads]
        losses: dict[str, Tensor] = {}
        divergence = seen.views[0].new_zeros(())
        for kind in kinds:
            scores = net.head_of(kind, features)
            joined = _joined(known, scores)
            log_p = [logits.log_softmax(2) for logits in joined]
            picked = [log_picked(logits, swap.by_class) for logits in joined] if swap.by_class else log_p
            losses[kind] = self._swapped(picked, self._targets(kind, scores, labels < 0), labels) / len(kinds)
            if swap.divergence and known is not None:
                divergence = divergence + self._apart(log_p, labels < 0) / len(kinds)
        if swap.divergence and known is not None:
            losses["divergence"] = -swap.divergence * ramp * divergence
        return losses

    def _swapped(self, log_p: list[Tensor], terms: list[Tensor], labels: Tensor) -> Tensor:
        """Cross-entropy of each view against the labels and the targets of the other full-size views, by head: (heads,)."""
        heads, _, clusters = terms[0].shape
        given = _one_hot(labels, log_p[0].shape[2] - clusters).expand(heads, -1, -1)
        total, count = log_p[0].new_zeros(heads), 0
        for v, assigned in enumerate(terms):
            target = torch.cat([given, assigned], 2)
            for w in range(len(log_p)):
                if w != v:
                    total = total - (target * log_p[w]).sum(2).mean(1)
                    count += 1
        return total / count / heads

    def _targets(self, kind: str, scores: list[Tensor], mask: Tensor) -> list[Tensor]:
        """The assignment of the unlabelled rows to clusters that each full-size view gives: (heads, n, clusters)."""
        prior = self.get_buffer("prior_new") if kind == "new" and self.settings.regroups else None
        cosines = [view.detach() * self._model.temperature for view in scores[:VIEWS]]
        return [balanced_targets(view, mask, epsilon=EPSILON, iterations=ROUNDS, prior=prior) for view in cosines]

    def _apart(self, log_p: list[Tensor], is_new: Tensor) -> Tensor:
        """How far apart the predictions of labelled and unlabelled images are, in the mean over views and heads."""
        bound = -self.settings.divergence_bound or math.inf
        return torch.stack([set_divergence(view, ~is_new, is_new, bound=bound) for view in log_p]).mean()

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Let the head with the lowest loss in the last epoch answer."""
        net.answering_head.fill_(int(np.argmin(losses["new"])))


def _joined(known: list[Tensor] | None, scores: list[Tensor]) -> list[Tensor]:
    """Scores of known and new classes side by side, for each view: (heads, n, n_known + clusters)."""
    if known is None:
        return scores
    return [torch.cat([k.expand(len(s), -1, -1), s], 2) for k, s in zip(known, scores, strict=True)]


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    """Float32 (n, classes), rows of zeros where there is no label."""
    if not classes:
        return torch.zeros(len(labels), 0, device=labels.device)
    is_labelled = labels >= 0
    return F.one_hot(torch.where(is_labelled, labels, 0), classes).float() * is_labelled[:, None]


def _some(index: Tensor) -> Tensor:
    """At most `LOOKED_AT` of these, evenly spread."""
    return index[:: max(1, -(-len(index) // LOOKED_AT))]


def _part_of(augment: Augment, smallest: float) -> Augment:
    """The same variations, but always of a scaled part of the image."""
    kind = augment.kind if augment.kind in ("redrawn", "drawing", "scan") else "crop"
    least, most = (max(share, smallest) for share in SMALL_AREA)
    return replace(augment, kind=kind, area=(least, most))
