"""A space for known and new classes, without clusters: each view finds its partner, a labelled one its class too."""

from __future__ import annotations

import torch
from torch import Tensor

from autonovel.base.errors import InputError, option
from autonovel.data.augment import make_views
from autonovel.data.loader import Batch
from autonovel.maths.contrastive import labelled_nt_xent
from autonovel.maths.losses import cross_entropy
from autonovel.methods.base import Seen, Task
from autonovel.methods.joint import JointObjective
from autonovel.methods.simclr import PROJECTION
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.settings.joint import ContrastSettings


class Contrast(JointObjective):
    """SimCLR on all images and supervised contrast on the labelled ones (Vaze et al., 2022), with the known classes beside.

    Heads that cluster decide in the first steps what a cluster is, from features that know nothing yet, and then keep to it.
    Here nothing is decided before the space is learned; the number of new classes need not even be known.
    """

    needs_number = False
    settings: ContrastSettings

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._method = task.recipe.method
        # images of known classes compete with nobody for a cluster here, and are found at the end
        self._pile = "new"

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse methods that would wait for clusters."""
        if self._method != "scratch":
            raise InputError(
                f"{option('joint.objective')} contrast learns a space and no clusters; use {option('method', 'scratch')}, "
                "which finds them in it."
            )

    def prepare(self, net: Net) -> None:
        """Add the projection, which no later stage keeps, and the head of the known classes."""
        net.add_head("pretext", HeadSpec("mlp", net.n_features, PROJECTION, hidden=2 * net.n_features))
        super().prepare(net)

    def views(self, batch: Batch, key: Tensor) -> list[Tensor]:
        """Two of each image."""
        return make_views(batch.images, key, batch.index, self.settings.augment, views=range(2), mirror=self.mirror)

    def losses(self, net: Net, seen: Seen, ramp: Tensor) -> dict[str, Tensor]:
        """The contrast of all views, and the cross-entropy of labelled ones over the known classes."""
        contrast = self.settings
        features = net.features_of(seen.views)
        first, second = net.head_of("pretext", features)
        losses = {"contrast": labelled_nt_xent(first, second, seen.labels, contrast.temperature, contrast.known_share)}
        if self._n_known and self.settings.known_weight:
            scores = net.head_of("known", features)
            known = [cross_entropy(view, seen.labels, seen.labels >= 0) for view in scores]
            losses["known"] = self.settings.known_weight * torch.stack(known).mean()
        return losses
