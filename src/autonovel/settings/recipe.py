"""Every setting of a run, as a tree of frozen dataclasses with the meaning of each field.

A recipe is the whole truth about a run: two runs with the same recipe, data and seed are the same run. An ablation is a
:func:`dataclasses.replace` of one field. Nothing here imports torch, so that the command line can show it at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from autonovel.settings.compared import DtcSettings, KclSettings, MclSettings, SimilaritySettings
from autonovel.settings.estimate import CalibratedSettings, Estimate
from autonovel.settings.fields import Open, Range, When, to_dict
from autonovel.settings.joint import Joint, PairsSettings
from autonovel.settings.stages import Pretrain, RotationSettings, Supervised

KEEP_LAYOUT = ("small", "vgg")
"""Backbones whose features keep the layout of the image: all images, and all views of them, must be squares of one size."""


@dataclass(frozen=True)
class Model:
    """The network."""

    backbone: Annotated[str, Open()] = "resnet18"
    """The network: auto takes what suits the images. efficientnet-lite0, -lite1 and -lite2 are pre-trained and need no download;
    timm:NAME, hf:NAME and FILE.safetensors are pre-trained too, and several with a + between them see every image side by side.
    resnet18: 3x3 stem, for images up to about 64 pixels. resnet18-large: the usual stem for photographs. vgg: four blocks for
    32x32 characters. small: for tiny grey images. pixels: none at all, for a baseline."""
    width: Annotated[int, Range(1, open=0)] = 64
    """Channels of the first block; 0 takes what suits the data."""
    shortcut: Literal["pool", "conv"] = "pool"
    """How a residual block changes its shape: average pooling and zero channels, or a 1x1 convolution."""
    head: Literal["linear", "mlp", "cosine"] = "linear"
    """What turns a feature into class scores. mlp has one hidden layer; cosine compares directions (for swap)."""
    temperature: Annotated[float, Range(0, above=True)] = 0.1
    """Divides the cosines of cosine heads, and of the heads of swap, before the softmax."""
    size: Annotated[int, Range(0)] = 0
    """Images are resized to this many pixels before training; 0 leaves them as they are."""
    networks: Annotated[int, Range(1)] = 1
    """Networks that are trained one after the other, each from first weights of its own. With more than one, all heads of
    all of them answer together: clusters are matched and probabilities averaged. Takes that many times as long."""


COMPARED = ("kmeans", "kcl", "mcl", "dtc")
"""Whole methods that cluster the pile alone, after the first stages: those that the paper compares."""
FIRST_STAGES = ("autonovel", "scratch", *COMPARED, "auto")
"""Whole methods with a pre-training and a stage for the known classes."""
LAST_STAGE = ("autonovel", "scratch", "auto")
"""Whole methods that learn known and new classes together."""


@dataclass(frozen=True)
class Recipe:
    """All settings of a run."""

    name: str = "cifar10"
    """What this recipe is called."""
    preset: str = "paper"
    """paper follows the text of the paper, reference what its authors ran, fast takes a fraction of the time."""
    method: Annotated[str, Open()] = "autonovel"
    """The method as a whole. auto takes pre-trained features where a network for them is installed and suits the
    images."""
    pile: Literal["new", "mixed", "auto"] = "new"
    """May the pile hold images of known classes too? auto decides from the images and says so."""
    mirror: Annotated[Literal["yes", "no", "auto"], Open(), When("method", *FIRST_STAGES)] = "yes"
    """Mirror images left and right by chance in training? auto does not where mirrored images of the known classes no longer
    look like their class (digits, letters)."""
    smallest_part: Annotated[float, Range(0, 1), When("method", *FIRST_STAGES)] = 0.0
    """The smallest share of an image that any crop shows: more where the object is small or stands beside others."""
    incremental: Annotated[bool, When("method", *LAST_STAGE, *COMPARED)] = False
    """Answer over known and new classes together. Objective pairs extends the head of the known classes by the new ones and
    trains it on both, other objectives do so always; methods kmeans, kcl, mcl and dtc add a stage that learns a classifier from
    labels and clusters, on features that stay as they are."""
    model: Model = Model()
    """The network."""
    pretrain: Annotated[Pretrain, When("method", *FIRST_STAGES)] = RotationSettings()
    """Stage 1: a representation from all images."""
    supervised: Annotated[Supervised, When("method", *FIRST_STAGES)] = Supervised()
    """Stage 2: the known classes."""
    estimate: Estimate = CalibratedSettings()
    """How the number of new classes is estimated, where it is not given."""
    similarity: Annotated[SimilaritySettings, When("method", "kcl", "mcl", also=When("joint.pairs", "learned"))] = (
        SimilaritySettings()
    )
    """Before clustering: which two images are of one class (kcl, mcl, joint.pairs learned)."""
    kcl: Annotated[KclSettings, When("method", "kcl")] = KclSettings()
    """The last stage of method kcl."""
    mcl: Annotated[MclSettings, When("method", "mcl")] = MclSettings()
    """The last stage of method mcl."""
    dtc: Annotated[DtcSettings, When("method", "dtc")] = DtcSettings()
    """The last stage of method dtc."""
    joint: Annotated[Joint, When("method", *LAST_STAGE)] = PairsSettings()
    """Stage 3: known and new classes together."""

    @property
    def learns_apart(self) -> bool:
        """Whether known and new classes are never taught together, so that no answer chooses between them."""
        apart = self.method in LAST_STAGE and isinstance(self.joint, PairsSettings)
        return (apart or self.method in COMPARED) and not self.incremental

    def to_dict(self) -> dict[str, Any]:
        """Every field that means something, as plain values."""
        return to_dict(self)
