"""k-means on the features of the first stages: the baseline that a method for discovery has to beat."""

from __future__ import annotations

import torch

from autonovel.discovery.plan import Stage
from autonovel.maths.kmeans import kmeans
from autonovel.methods.autonovel import first_stages
from autonovel.methods.base import Look, Losses, Method, Task
from autonovel.methods.compared import with_classifier
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.settings.recipe import Recipe
from autonovel.settings.stages import Training


class KMeans(Method):
    """A class is what lies nearest to a centre: that of a known class is its mean, those of the new ones come by k-means."""

    sees = "both"
    needs_number = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = Training(epochs=0)
        self._n_known, self._n_new = task.n_known, task.n_new

    def prepare(self, net: Net) -> None:
        """Add heads of nearest centres."""
        if self._n_known:
            net.add_head("known", HeadSpec("nearest", net.n_features, self._n_known))
        net.add_head("new", HeadSpec("nearest", net.n_features, self._n_new, stacked=True))

    def finish(self, net: Net, look: Look, losses: Losses) -> None:
        """Find the centres."""
        labels = look.labels
        found = kmeans(look.features(torch.nonzero(labels < 0).flatten()), self._n_new, seed=look.seed)
        net.heads["new"][0].centres.copy_(found.centres)  # type: ignore[index]
        if self._n_known:
            index = torch.nonzero(labels >= 0).flatten()
            features, classes = look.features(index), labels[index]
            means = [features[classes == c].mean(0) for c in range(self._n_known)]
            net.heads["known"].centres.copy_(torch.stack(means))  # type: ignore[operator]


def plan(recipe: Recipe, n_known: int) -> list[Stage]:
    """The first stages, then k-means."""
    return with_classifier([*first_stages(recipe, n_known), Stage("kmeans", KMeans)], recipe, n_known)
