"""Stage 3: known and new classes together, with one of two objectives."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.data.augment import make_views
from autonovel.data.loader import Batch, mixed, shuffled
from autonovel.maths.losses import balanced_targets, consistency, cross_entropy, pair_loss
from autonovel.maths.pairs import PAIR_RULES, PairInput
from autonovel.methods import Method
from autonovel.models.net import Heads, Net, ProjectedHeads, make_head
from autonovel.settings import Augment, Recipe


class _Joint:
    """What both objectives share: the order of images, the ramp, the number of classes."""

    def __init__(self, recipe: Recipe, n_known: int, n_new: int) -> None:
        self.settings = recipe.joint
        self._kind, self._n_known, self._n_new = recipe.model.head, n_known, n_new

    def order(self, labels: Tensor, *key: object) -> Tensor:
        """One shuffled pass over all images, or over the known ones with a fixed share of them in each batch."""
        s = self.settings
        if s.known_per_batch and self._n_known:
            known, new = torch.nonzero(labels >= 0).flatten(), torch.nonzero(labels < 0).flatten()
            return mixed(known, new, s.batch, s.known_per_batch, *key)
        return shuffled(torch.arange(len(labels)), s.batch, *key)

    def ramp(self, epoch: int) -> float:
        """The weight of consistency and incremental loss."""
        return self.settings.ramp_at(epoch)


class Pairs(_Joint):
    """The paper's objective: pairwise pseudo-labels from ranking statistics, cross-entropy, consistency (eq. 5)."""

    def prepare(self, net: Net) -> None:
        """Add a head for the new classes; extend that of the known ones if asked to."""
        temperature = self.settings.swap.temperature
        net.heads["new"] = Heads([make_head(self._kind, net.n_features, self._n_new, temperature)])
        if self.settings.incremental and self._n_known:
            net.extend_known(self._n_new)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Two of each image."""
        return make_views(batch.images, key, batch.index, self.settings.augment, views=range(2))

    def losses(self, net: Net, seen: list[Tensor], labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """All terms whose weight is not zero."""
        s = self.settings
        is_labelled = labels >= 0
        features = net.features_of(seen)
        new_scores = [scores[0] for scores in net.head_of("new", features)]
        new = [scores.softmax(1) for scores in new_scores]
        losses: dict[str, Tensor] = {}
        if s.pair_weight:
            given = PairInput(features[0].detach(), ~is_labelled, labels, self._n_new, s.top_k)
            same = PAIR_RULES[s.pairs](given)
            losses["pairs"] = s.pair_weight * pair_loss(new[0], new[1], same, ~is_labelled)
        agreement = consistency(*new)
        if "known" in net.heads:
            known_scores = net.head_of("known", features)
            agreement = agreement + consistency(*(scores.softmax(1) for scores in known_scores))
            if s.known_weight:
                losses["known"] = s.known_weight * cross_entropy(known_scores[0], labels, is_labelled)
            if s.incremental:
                guess = self._n_known + new_scores[0].argmax(1)
                losses["incremental"] = (
                    ramp * s.incremental_weight * cross_entropy(known_scores[0], guess, ~is_labelled)
                )
        if s.consistency:
            losses["consistency"] = ramp * s.consistency * agreement
        return losses


class Swapped(_Joint):
    """Swapped prediction (Caron et al., 2020; Fini et al., 2021): each view predicts the balanced assignment of the others.

    Scores of known and new classes stand in one softmax; known images have their label as target, new ones a balanced
    assignment to the new classes. Several heads learn side by side, each with a partner that has more clusters.
    """

    def prepare(self, net: Net) -> None:
        """Add the clustering heads and the over-clustering ones."""
        swap, d = self.settings.swap, net.n_features
        net.heads["new"] = ProjectedHeads(d, self._n_new, swap)
        if swap.over_factor:
            net.heads["over"] = ProjectedHeads(d, swap.over_factor * self._n_new, swap)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Those in full size, then the small ones."""
        s, swap = self.settings, self.settings.swap
        full, small = range(swap.views), range(swap.views, swap.views + swap.small_views)
        views = make_views(batch.images, key, batch.index, s.augment, views=full)
        if small:
            part = _part_of(s.augment, swap.small_area)
            views += make_views(batch.images, key, batch.index, part, views=small, size=swap.small_size)
        return views

    def losses(self, net: Net, seen: list[Tensor], labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """The mean swapped cross-entropy of each head, a vector for each kind of head."""
        features = net.features_of(seen)
        known = net.head_of("known", features) if "known" in net.heads else None
        kinds = [kind for kind in ("new", "over") if kind in net.heads]
        return {kind: self._swapped(net.head_of(kind, features), known, labels) / len(kinds) for kind in kinds}

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
            found = balanced_targets(
                scores[v].detach() * swap.temperature, ~is_labelled, epsilon=swap.epsilon, iterations=swap.iterations
            )
            target = torch.cat([given.expand(heads, -1, -1), found], 2)
            for w in range(len(log_p)):
                if w != v:
                    total = total - (target * log_p[w]).sum(2).mean(1)
                    count += 1
        return total / count / heads


def _part_of(augment: Augment, area: tuple[float, float]) -> Augment:
    """The same variations, but always of a scaled part of the image."""
    return replace(augment, crop="resized", area=area)


def joint_method(recipe: Recipe, n_known: int, n_new: int) -> Method:
    """The method of the recipe's objective."""
    return (Swapped if recipe.joint.objective == "swap" else Pairs)(recipe, n_known, n_new)
