"""Groups of the pile in the space that the known classes teach: nothing is trained, and it takes seconds.

On the features of a pre-trained network this is the whole method; after training from scratch it answers in place of the
heads, which cut a small pile in the first steps and then keep to it (docs/features.md).
"""

from __future__ import annotations

import torch

from autonovel.answers.space import answer_from_features
from autonovel.base.errors import InputError, option
from autonovel.discovery.plan import ESTIMATE, Stage, before_estimate
from autonovel.methods import autonovel
from autonovel.methods.base import Look, Losses, Method, PileAnswer, Task
from autonovel.models.heads import HeadSpec
from autonovel.models.net import Net
from autonovel.settings.recipe import Recipe
from autonovel.settings.registry import home_of
from autonovel.settings.stages import Training

CHECKED = 10_000
"""In piles up to this size a number that was given is held against what the images look like; it takes as long again."""


class KnownSpace(Method):
    """Whitening by what differs within a known class, groups that repeated runs agree on, old images separated from new ones."""

    sees = "both"
    needs_number = True

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = Training(epochs=0)
        self._n_known, self._n_new, self._pile = task.n_known, task.n_new, task.recipe.pile

    def prepare(self, net: Net) -> None:
        """Add heads in that space; a head that was trained before goes."""
        net.drop_head("over")
        for name, outputs in (("known", self._n_known), ("new", self._n_new)):
            if outputs:
                net.add_head(name, HeadSpec("space", net.n_features, outputs, stacked=name == "new"))
        net.answering_head.zero_()

    def finish(self, net: Net, look: Look, losses: Losses) -> PileAnswer:
        """Find the space and the groups."""
        labelled, unlabelled = torch.nonzero(look.labels >= 0).flatten(), torch.nonzero(look.labels < 0).flatten()
        device = net.mean.device
        found = answer_from_features(
            look.features(labelled).to(device),
            look.labels[labelled].to(device),
            look.features(unlabelled).to(device),
            self._n_new,
            pile_kind=self._pile,
            check_number=len(unlabelled) <= CHECKED,
            trained=not net.identity,
            seed=look.seed,
        )
        model = found.model
        for name, part in (("known", slice(self._n_known)), ("new", slice(self._n_known, None))):
            if name in net.heads:
                head = net.heads[name]
                head = head[0] if name == "new" else head  # type: ignore[index]
                head.fill(model.space.mean, model.space.matrix, model.centres[part], model.sharpness)  # type: ignore[operator]
        facts = {"grouping": found.method, "pile": "mixed" if bool(found.is_old.any()) else "new", **found.how_sure}
        return PileAnswer(found.probabilities.cpu(), found.unlike.cpu(), found.notes, facts, model.doubt)


def plan(recipe: Recipe, n_known: int) -> list[Stage]:
    """On the features of the backbone as it is."""
    return [ESTIMATE, Stage("features", KnownSpace)]


def plan_after_training(recipe: Recipe, n_known: int) -> list[Stage]:
    """Trained on these images, answered in the space.

    An objective that makes no clusters learns the known classes itself and need not know the number of new ones, which is then
    estimated from what it has learned. Without an objective the first stages are all.
    """
    if home_of(recipe.joint) is None:
        first = autonovel.first_stages(recipe, n_known)
        if first == [ESTIMATE]:
            raise InputError(
                f"With {option('joint.objective', 'none')} nothing would be learned from these images: stages "
                f"pretrain and supervised are left out too ({option('pretrain.method')}, {option('pretrain.epochs')}, "
                f"{option('supervised.epochs')}). Switch one of them on, or choose an objective."
            )
        return [*first, Stage("features", KnownSpace)]
    stages = autonovel.plan(recipe, n_known)
    *_, joint = stages
    if joint.method is not None and not joint.method.needs_number:
        stages = [*before_estimate(stages), joint, ESTIMATE]
    return [*stages, Stage("features", KnownSpace)]
