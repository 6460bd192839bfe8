"""Swapped prediction: balanced clusters in place of pairs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_view, make_views
from autonovel.data.loader import Batch, paired
from autonovel.maths.cluster_graph import merged, merging_order
from autonovel.maths.contrastive import is_filled, push
from autonovel.maths.grouping import clearer_groups
from autonovel.maths.known_space import components
from autonovel.maths.losses import (
    balanced_targets,
    crossed_entropy,
    log_picked,
    mean_entropy_loss,
    moved_prior,
    moved_pull,
    pulled,
    relaxed_targets,
    set_divergence,
    view_divergence,
    with_past,
)
from autonovel.methods.base import Look, Losses, Seen
from autonovel.methods.joint import JointObjective
from autonovel.models.heads import HeadSpec, ProjectedHeads
from autonovel.models.net import Net
from autonovel.settings.limits import Limits, check_limits
from autonovel.settings.recipe import KEEP_LAYOUT, Augment, Swap, rise

_LIMITS: Limits = (
    ("parts", 1, math.inf, "be at least 1"),
    ("regroups", 0, math.inf, "be at least 0"),
    ("by_class", 0.0, 1.0, "lie between 0 and 1, or be -1 to leave it to the number of classes"),
    ("balance", 0.0, 1.0, "lie between 0 and 1"),
    ("carry", 0.0, math.inf, "be at least 0"),
    ("carry_until", 0.0, 1.0, "lie between 0 and 1"),
    ("prior_rate", 0.0, 1.0, "lie between 0 and 1"),
    ("mean_entropy", 0.0, math.inf, "be at least 0"),
    ("divergence", 0.0, math.inf, "be at least 0"),
    ("divergence_ramp", 0.0, 1.0, "lie between 0 and 1"),
    ("view_divergence", 0.0, math.inf, "be at least 0"),
    ("divergence_bound", -math.inf, 0.0, "be below 0, as log-probabilities are, or 0 for no bound"),
)
LOOKED_AT = 10_000
"""Images of each kind, labelled and new, in whose features groups are looked for."""
AT_ONCE = 4096
"""Images that pass through the heads together between epochs."""


class Swapped(JointObjective):
    """Each view predicts the balanced assignment of the others (Caron et al., 2020; Fini et al., 2021).

    Scores of known and new classes stand in one softmax; labelled images have their label as target, the others a balanced
    assignment to the new classes. Several heads learn side by side, each with a partner that has more clusters.
    """

    doubts = True

    def check(self, shape: tuple[int, ...]) -> None:
        """Each view needs another one to predict; shares are shares, and a queue holds a batch."""
        swap = self.settings.swap
        if swap.views < 2:
            raise InputError(f"{option('joint.swap.views')} must be at least 2: each view predicts the other.")
        check_limits(swap, "joint.swap", _LIMITS)
        self._check_views(self._model.backbone)
        if swap.regroups and swap.parts > 1:
            raise InputError(
                f"{option('joint.swap.parts', swap.parts)} goes with {option('joint.swap.regroups', 0)} only: both are ways to "
                "find classes of different sizes."
            )
        if swap.carry and swap.balance < 1:
            raise InputError(
                f"{option('joint.swap.carry')} enforces the wanted sizes and {option('joint.swap.balance')} below 1 relaxes "
                "them; leave one of them out."
            )
        if swap.queue and swap.queue < self.settings.batch:
            raise InputError(
                f"{option('joint.swap.queue')} is {swap.queue}; it must be 0 or at least as long as a batch "
                f"({self.settings.batch})."
            )

    def _check_views(self, backbone: str) -> None:
        if self.settings.swap.small_views and backbone in KEEP_LAYOUT:
            raise InputError(
                f"The {backbone} network takes images of one size, so there can be no small views; set "
                f"{option('joint.swap.small_views', 0)}, or choose another {option('model.backbone')}."
            )

    def prepare(self, net: Net) -> None:
        """Add the clustering heads and the over-clustering ones, and what is remembered of earlier batches."""
        super().prepare(net)
        self._check_views(net.settings.backbone)  # that of a file says what it is only once it is read
        swap = self.settings.swap
        if swap.carry:
            # on the device, because a captured step must see it change
            self.register_buffer("carrying", torch.tensor(swap.carry * swap.epsilon))
        self._add_heads(net, "new", self._n_new, swap.parts)
        if swap.over_factor:
            self._add_heads(net, "over", swap.over_factor * swap.parts * self._n_new)

    def _add_heads(self, net: Net, kind: str, classes: int, parts: int = 1) -> None:
        swap, clusters = self.settings.swap, classes * parts
        spec = HeadSpec(
            "projected",
            net.n_features,
            classes,
            temperature=self._model.temperature,
            count=swap.heads,
            hidden=swap.hidden,
            projection=swap.projection,
            parts=parts,
        )
        net.add_head(kind, spec)
        if self._estimates_sizes(kind):
            self.register_buffer(f"prior_{kind}", torch.full((swap.heads, clusters), 1 / clusters))
        if swap.carry:
            self.register_buffer(f"pull_{kind}", torch.zeros(swap.heads, clusters))
        if swap.queue:
            self.register_buffer(f"queue_{kind}", torch.zeros(swap.queue, swap.heads, clusters))
            self.register_buffer(f"written_{kind}", torch.zeros((), dtype=torch.int64))

    def _estimates_sizes(self, kind: str) -> bool:
        """Whether the targets of these heads may aim at clusters of different sizes."""
        swap = self.settings.swap
        return swap.prior_rate > 0 or (swap.regroups > 0 and kind == "new")

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Look for groups of different sizes, and leave sizes to the scores, if that is wanted and it is time."""
        super().start_epoch(net, look, epoch)
        swap, times, epochs = self.settings.swap, self.settings.swap.regroups, self.settings.epochs
        if swap.carry and epoch >= swap.carry_until * epochs:
            for name in ("carrying", *(f"pull_{kind}" for kind in ("new", "over") if kind in net.heads)):
                self.get_buffer(name).zero_()
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
        if self.settings.swap.carry:
            self.get_buffer("pull_new").masked_fill_(clearer[:, None], 0.0)
        if self.settings.swap.queue and clearer.any():  # it holds scores of other clusters
            self.get_buffer("written_new").zero_()

    def _new_images(self, look: Look) -> Tensor:
        """Where the images of the pile are that are not taken for known classes."""
        free = look.labels < 0
        if self._pile != "new":
            free &= self.taken_for.cpu() < 0
        return torch.nonzero(free).flatten()

    @property
    def single_process(self) -> str:  # type: ignore[override]
        """Where the views have labelled images of their own, a part of the batch is not a batch."""
        return "joint.swap.known_once" if self._shows_known_once else ""

    @property
    def _shows_known_once(self) -> bool:
        return self.settings.swap.known_once and self._n_known > 0

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """As other objectives have it; where labelled images are shown once, the rows of one view and then of the other."""
        if not self._shows_known_once:
            return super().order(labels, *key)
        s = self.settings
        labelled, unlabelled = torch.nonzero(labels >= 0).flatten(), torch.nonzero(labels < 0).flatten()
        return paired(labelled, unlabelled, s.batch, s.known_per_batch or s.batch // 2, *key)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Those in full size, then the small ones."""
        s, swap = self.settings, self.settings.swap
        full, small = range(swap.views), range(swap.views, swap.views + swap.small_views)
        part = _part_of(s.augment, swap.small_area)
        if self._shows_known_once:
            rows = (_taking_turns(whole, swap) for whole in (batch.images, batch.index))
            return [
                make_view(
                    images,
                    key,
                    index,
                    s.augment if view in full else part,
                    view=view,
                    size=None if view in full else swap.small_size,
                )
                for view, (images, index) in enumerate(zip(*rows, strict=True))
            ]
        views = make_views(batch.images, key, batch.index, s.augment, views=full)
        if small:
            views += make_views(batch.images, key, batch.index, part, views=small, size=swap.small_size)
        return views

    def ramp(self, epoch: int) -> float:
        """The weight of the divergences."""
        return rise(epoch, self.settings.swap.divergence_ramp * self.settings.epochs)

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The mean swapped cross-entropy of each head, a vector for each kind of head; other terms by their own names."""
        swap = self.settings.swap
        features = net.features_of(seen.views)
        known = net.head_of("known", features) if "known" in net.heads else None
        kinds = [kind for kind in ("new", "over") if kind in net.heads]
        labels = self.labels_of(seen)
        # by view: each may have labelled images of its own, but unlabelled ones are in the same places
        given = _taking_turns(labels, swap) if self._shows_known_once else [labels] * len(features)
        is_new = given[0] < 0
        losses: dict[str, Tensor] = {}
        entropy, divergence, between = (seen.views[0].new_zeros(()) for _ in range(3))
        for kind in kinds:
            scores = net.head_of(kind, features)
            joined = _joined(known, scores)
            log_p = [logits.log_softmax(2) for logits in joined]
            found = self._targets(kind, scores, is_new)
            picked = [log_picked(logits, swap.by_class) for logits in joined] if swap.by_class else log_p
            losses[kind] = self._swapped(picked, found, given) / len(kinds)
            if swap.mean_entropy:
                entropy = entropy + self._entropy(scores, is_new) / len(kinds)
            if swap.divergence and known is not None:
                divergence = divergence + self._apart(log_p, is_new) / len(kinds)
            if swap.view_divergence:
                between = between + self._between_views(log_p, seen.labels) / len(kinds)
            self._remember(kind, scores, is_new)
        if swap.mean_entropy:
            losses["mean_entropy"] = swap.mean_entropy * entropy
        if swap.divergence and known is not None:
            losses["divergence"] = -swap.divergence * ramp * divergence
        if swap.view_divergence:
            losses["view_divergence"] = swap.view_divergence * ramp * between
        return losses

    def _swapped(self, log_p: list[Tensor], found: list[Tensor], labels: list[Tensor]) -> Tensor:
        """Cross-entropy of each view against its labels and the targets of the other full-size views, by head: (heads,)."""
        heads, _, clusters = found[0].shape
        given = [_one_hot(of_view, log_p[0].shape[2] - clusters) for of_view in labels]
        total, count = log_p[0].new_zeros(heads), 0
        for v, assigned in enumerate(found):
            for w in range(len(log_p)):
                if w != v:
                    target = torch.cat([given[w].expand(heads, -1, -1), assigned], 2)
                    total = total - (target * log_p[w]).sum(2).mean(1)
                    count += 1
        return total / count / heads

    def _targets(self, kind: str, scores: list[Tensor], mask: Tensor) -> list[Tensor]:
        """The assignment of the unlabelled rows to clusters that each full-size view gives: (heads, n, clusters)."""
        swap = self.settings.swap
        prior = self.get_buffer(f"prior_{kind}") if self._estimates_sizes(kind) else None
        options: dict[str, Any] = {"epsilon": swap.epsilon, "iterations": swap.iterations, "prior": prior}
        found = []
        for view in scores[: swap.views]:
            cosines, rows = self._cosines(view), mask
            if swap.queue:
                past, written = (self.get_buffer(f"{name}_{kind}") for name in ("queue", "written"))
                cosines, rows = with_past(cosines, mask, past, is_filled(past, written))
            if swap.carry:
                pull, rate = self.get_buffer(f"pull_{kind}"), self.get_buffer("carrying")
                cosines = torch.where(rate > 0, pulled(cosines, pull, swap.epsilon), cosines)
            if swap.balance < 1:
                targets = relaxed_targets(cosines, rows, strength=swap.balance, **options)
            else:
                targets = balanced_targets(cosines, rows, **options)
            found.append(targets[:, : len(mask)])
        if swap.carry:
            pull.copy_(moved_pull(pull, torch.stack(found).mean(0), mask, rate, prior=prior))
        return found

    def _cosines(self, scores: Tensor) -> Tensor:
        return scores.detach() * self._model.temperature

    def _entropy(self, scores: list[Tensor], mask: Tensor) -> Tensor:
        """How far the mean prediction of the full-size views is from using all clusters equally."""
        full = scores[: self.settings.swap.views]
        return torch.stack([mean_entropy_loss(view.softmax(2), mask) for view in full]).mean()

    def _apart(self, log_p: list[Tensor], is_new: Tensor) -> Tensor:
        """How far apart the predictions of labelled and unlabelled images are, in the mean over views and heads."""
        swap = self.settings.swap
        bound = -swap.divergence_bound or math.inf
        apart = set_divergence if swap.divergence_form == "whole" else crossed_entropy
        return torch.stack([apart(view, ~is_new, is_new, bound=bound) for view in log_p]).mean()

    def _between_views(self, log_p: list[Tensor], labels: Tensor) -> Tensor:
        """How far the full-size views of an image differ in what they predict, in the mean over images and heads."""
        full = log_p[: self.settings.swap.views]
        same = torch.ones_like(labels, dtype=torch.bool)
        if self._shows_known_once:  # labelled rows of two views show different images
            same = _taking_turns(labels, self.settings.swap)[0] < 0
        return torch.stack([view_divergence(a, b, same) for a, b in itertools.combinations(full, 2)]).mean()

    @torch.no_grad()
    def _remember(self, kind: str, scores: list[Tensor], mask: Tensor) -> None:
        """Move the estimate of the cluster sizes, and put the scores of the unlabelled rows (first view) into the queue."""
        swap = self.settings.swap
        if swap.prior_rate:
            prior = self.get_buffer(f"prior_{kind}")
            said = torch.stack([view.softmax(2) for view in scores[: swap.views]]).mean(0)
            prior.copy_(moved_prior(prior, said, mask, swap.prior_rate))
        if swap.queue:
            past, written = (self.get_buffer(f"{name}_{kind}") for name in ("queue", "written"))
            rows, count = push(past, written, self._cosines(scores[0]).transpose(0, 1), mask)
            past.copy_(rows)
            written.copy_(count)

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Let the head with the lowest loss in the last epoch answer; put the parts of classes together."""
        net.answering_head.fill_(int(np.argmin(losses["new"])))
        if self.settings.swap.parts > 1:
            self._put_together(net, look)

    @torch.no_grad()
    def _put_together(self, net: Net, look: Look) -> None:
        """In every head, merge the parts between which most images of the pile lie, until as many are left as classes."""
        head = net.heads["new"]
        assert isinstance(head, ProjectedHeads)
        features = look.features(self._new_images(look)).to(head.weight.device)
        said = torch.cat([head.of_parts(some).softmax(2) for some in features.split(AT_ONCE)], 1)
        groups = [merged(merging_order(one), self._n_new).unique(return_inverse=True)[1] for one in said]
        head.put_together(torch.stack(groups).to(head.weight.device))


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


def _taking_turns(rows: Tensor, swap: Swap) -> list[Tensor]:
    """For each view, one half of the rows or the other, in turn."""
    n = len(rows) // 2
    halves = rows[:n], rows[n : 2 * n]
    return [halves[view % 2] for view in range(swap.views + swap.small_views)]


def _some(index: Tensor) -> Tensor:
    """At most `LOOKED_AT` of these, evenly spread."""
    return index[:: max(1, -(-len(index) // LOOKED_AT))]


def _part_of(augment: Augment, area: tuple[float, float]) -> Augment:
    """The same variations, but always of a scaled part of the image."""
    return replace(augment, crop="resized", area=area)
