"""How the methods that the paper compares are trained. Their homes are in ``autonovel.methods``.

KCL and MCL have no published settings but for OmniGlot, whose are in its recipe. Elsewhere the decision is ours: the similarity
network is the network of the stages before, trained further from its last block on; the clustering network starts from it and is
trained like the paper's own last stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from autonovel.settings.augment import Augment
from autonovel.settings.fields import Range, When
from autonovel.settings.joint import rise
from autonovel.settings.stages import Training


@dataclass(frozen=True)
class SimilaritySettings(Training):
    """Which two images are of one class, learned on the known classes."""

    HOME = "similarity:Similarity"
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 15, "milestones": (9, 12)}

    epochs: Annotated[int, Range(1)] = 50
    batch: Annotated[int, Range(4)] = 100
    milestones: Annotated[tuple[int, ...], Range(0), When("schedule", "steps")] = (30, 40)
    train_from: str = "layer4"
    ways: Annotated[int, Range(2)] = 20
    """Classes in a batch, or as many as there are; the batch has equally many images of each."""


@dataclass(frozen=True)
class PairedSettings(Training):
    """The unlabelled images, by the pair labels of the similarity network."""

    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 60, "milestones": (50,)}

    epochs: Annotated[int, Range(1)] = 200
    milestones: Annotated[tuple[int, ...], Range(0), When("schedule", "steps")] = (170,)
    train_from: str = "layer4"
    augment: Augment = Augment("reflect")
    start: Literal["learned", "fresh"] = "learned"
    """The first weights of the clustering network: those of the similarity network (learned), or random ones (fresh)."""


@dataclass(frozen=True)
class KclSettings(PairedSettings):
    """KCL: similar outputs for pairs that the similarity network calls alike, different ones for the others."""

    HOME = "paired:KCL"


@dataclass(frozen=True)
class MclSettings(PairedSettings):
    """MCL: the likelihood of the pair labels of the similarity network."""

    HOME = "paired:MCL"


@dataclass(frozen=True)
class DtcSettings(Training):
    """DTC: clusters that sharpen themselves, from k-means on what was learned before. As published for CIFAR-10, variant pi."""

    HOME = "dtc:DTC"
    HIDES = ("schedule", "warmup", "final")
    FAST: ClassVar[Mapping[str, Any]] = {"epochs": 40, "fit_epochs": 5}

    variant: Literal["baseline", "pi", "te", "tep"] = "pi"
    """What is added to the sharpened targets: nothing, agreement of two views (pi) or with the average of earlier answers (te),
    or targets from that average (tep)."""
    epochs: Annotated[int, Range(1)] = 110
    """Passes over the unlabelled images, those that fit the new layer included."""
    lr: Annotated[float, Range(0, above=True)] = 0.05
    fit_epochs: Annotated[int, Range(0)] = 10
    """The first epochs, in which the new layer is fitted to the clusters of k-means."""
    fit_lr: Annotated[float, Range(0, above=True)] = 0.1
    """The learning rate of these epochs. Milestones are counted from their end."""
    refresh: Annotated[int, Range(1)] = 5
    """Epochs between two sets of targets."""
    consistency: Annotated[float, Range(0)] = 10.0
    """Final weight of the agreement, for pi and te."""
    ramp: Annotated[int, Range(0)] = 5
    """Epochs until the agreement has its full weight."""
    augment: Augment = Augment("reflect")

    def lr_at(self, time: float) -> float:
        """The learning rate at a time in epochs."""
        done = int(time) - self.fit_epochs
        return self.fit_lr if done < 0 else self.lr * self.decay ** sum(done >= m for m in self.milestones)

    def ramp_at(self, epoch: int) -> float:
        """The ramp in an epoch: nothing before the main part."""
        return 0.0 if epoch < self.fit_epochs else rise(epoch - self.fit_epochs, self.ramp)


def stages_for(method: str, recipe: str, preset: str, plain: Augment, varied: Augment) -> dict[str, Training]:
    """The settings of a method's own stages for the data of a named recipe, by their places in it.

    Args:
        method: kcl, mcl or dtc; others bring none.
        recipe: its name.
        preset: fast takes a fraction of the time.
        plain: how the recipe varies images where it learns known classes.
        varied: how it varies them in its last stage.
    """
    fast = preset == "fast" or recipe == "digits-split"
    if method == "dtc":
        own: dict[str, Any] = dict(DtcSettings.FAST) if fast else {}
        own |= _DTC.get(recipe, {})
        if fast and recipe in _DTC:  # the published lengths, at the scale of preset fast
            usual = {**vars(DtcSettings()), **_DTC[recipe]}
            share = (DtcSettings.FAST["epochs"] - DtcSettings.FAST["fit_epochs"]) / (
                usual["epochs"] - usual["fit_epochs"]
            )
            own |= {**DtcSettings.FAST, "milestones": tuple(max(1, round(share * m)) for m in usual["milestones"])}
        return {"dtc": DtcSettings(**{"augment": varied, **own})}
    kinds = {"kcl": KclSettings, "mcl": MclSettings}
    if method not in kinds:
        return {}
    similarity, paired = (dict(kind.FAST) if fast else {} for kind in (SimilaritySettings, PairedSettings))
    if recipe == "omniglot":
        adam = {"optimiser": "adam", "lr": 1e-3, "weight_decay": 0.0, "train_from": "all"}
        similarity |= adam
        paired |= {"epochs": 150, "milestones": (100,), "batch": 100, "start": "fresh", **adam}
    return {
        "similarity": SimilaritySettings(**{"augment": plain, **similarity}),
        method: kinds[method](**{"augment": varied, **paired}),
    }


_DTC: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {
        **{"epochs": 130, "fit_epochs": 30, "weight_decay": 1e-5, "milestones": (20, 40, 60, 80)},
        **{"decay": 0.5, "refresh": 10},
    },
    "svhn": {"epochs": 70, "lr": 1e-3, "weight_decay": 0.0},
    "omniglot": {
        **{"epochs": 100, "optimiser": "adam", "lr": 1e-3, "fit_lr": 1e-3, "weight_decay": 0.0, "batch": 100},
        **{"consistency": 100.0, "refresh": 1},
    },
    "imagenet": {"epochs": 70, "weight_decay": 1e-5, "consistency": 100.0},
}  # fmt: skip
"""What DTC's authors ran where it differs from CIFAR-10; for CIFAR-100 with ten new classes and another network."""
