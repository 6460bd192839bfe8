"""The paper's objective: pairs of images that belong together."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.maths.kmeans import kmeans
from autonovel.maths.losses import consistency, cross_entropy, pair_loss
from autonovel.maths.pairs import PairInput, find_rule
from autonovel.methods.base import Look, Seen, Task
from autonovel.methods.joint import JointObjective
from autonovel.methods.similarity import LearnedPairs
from autonovel.models.heads import class_head
from autonovel.models.net import Net
from autonovel.settings.joint import PairsSettings


class Pairs(JointObjective):
    """Pairwise pseudo-labels from ranking statistics, cross-entropy and consistency (eq. 5 of the paper)."""

    INCREMENTAL_WEIGHT = 0.05
    """Final weight of the loss of new images at the extended head, as in the paper."""
    RESTARTS = 3
    """Of k-means over the whole pile."""
    settings: PairsSettings
    clusters: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._incremental = task.recipe.incremental
        self.learned = LearnedPairs() if self.settings.pairs == "learned" else None
        self._rule = find_rule("rank" if self.learned is not None else self.settings.pairs)
        self._clusters_pile = self.settings.pairs == "kmeans-all" and self.settings.pair_weight > 0

    def check(self, shape: tuple[int, ...]) -> None:
        """Some loss must be left, and the head must be one that can be extended if it is to be."""
        s = self.settings
        if self._incremental and self._model.head == "cosine":
            raise InputError(
                f"A cosine head cannot be extended by the pairs objective; use {option('model.head', 'linear')} "
                f"or {option('incremental', False)}."
            )
        if not any((s.known_weight, s.pair_weight, s.consistency, self._incremental)):
            raise InputError("Every loss of joint training is switched off; leave at least one weight above 0.")

    def prepare(self, net: Net) -> None:
        """Add a head for the new classes; extend that of the known ones if asked to."""
        super().prepare(net)
        if self.learned is not None:
            self.learned.take_from(net)
        net.add_head("new", class_head(self._model, net.n_features, self._n_new, stacked=True))
        if self._incremental and self._n_known:
            net.extend_known(self._n_new)
        if self._clusters_pile:
            self.register_buffer("clusters", torch.full((self._n_images,), -1))

    def start_epoch(self, net: Net, look: Look, epoch: int) -> None:
        """Cluster the whole pile, if the rule asks for that."""
        super().start_epoch(net, look, epoch)
        if self._clusters_pile:
            index, device = torch.nonzero(look.labels < 0).flatten(), self.clusters.device
            features = look.features(index).to(device)

            def cluster() -> Tensor:
                return kmeans(features, self._n_new, restarts=self.RESTARTS, seed=look.seed).labels.cpu()

            self.clusters[index.to(device)] = look.agreed(cluster).to(device)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Two of each image."""
        return make_views(batch.images, key, batch.index, self.settings.augment, views=range(2), mirror=self.mirror)

    def ramp(self, epoch: int) -> float:
        """The weight of consistency and incremental loss."""
        return self.settings.ramp_at(epoch)

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """All terms whose weight is not zero."""
        s, labels = self.settings, self.labels_of(seen)
        is_labelled = labels >= 0
        features = net.features_of(seen.views)
        new_scores = [scores[0] for scores in net.head_of("new", features)]
        new = [scores.softmax(1) for scores in new_scores]
        losses: dict[str, Tensor] = {}
        if s.pair_weight:
            if self.learned is not None:
                same = self.learned.labels(net, seen.views[0])
            else:
                same = self._rule(self._pair_input(features[0].detach(), labels, seen.index))
            losses["pairs"] = s.pair_weight * pair_loss(new[0], new[1], same, ~is_labelled)
        agreement = consistency(*new)
        if "known" in net.heads:
            known_scores = net.head_of("known", features)
            agreement = agreement + consistency(*(scores.softmax(1) for scores in known_scores))
            if s.known_weight:
                losses["known"] = s.known_weight * cross_entropy(known_scores[0], labels, is_labelled)
            if self._incremental:
                guess = self._n_known + new_scores[0].argmax(1)
                losses["incremental"] = (
                    ramp * self.INCREMENTAL_WEIGHT * cross_entropy(known_scores[0], guess, ~is_labelled)
                )
        if s.consistency:
            losses["consistency"] = ramp * s.consistency * agreement
        return losses

    def _pair_input(self, features: Tensor, labels: Tensor, index: Tensor) -> PairInput:
        s = self.settings
        clusters = self.clusters[index] if self._clusters_pile else torch.full_like(labels, -1)
        return PairInput(features, labels < 0, clusters, self._n_new, s.top_k, s.threshold)
