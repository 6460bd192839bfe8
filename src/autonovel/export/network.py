"""The trained network as other programs want it: uint8 pixels in, probabilities of the classes as they are called now out."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.answers.edited import Edited
from autonovel.answers.judge import Judge
from autonovel.answers.network import restore
from autonovel.base.errors import AutonovelWarning, InputError, TrainingError
from autonovel.export.pictures import picture
from autonovel.machine.device import Mode
from autonovel.maths.known_space import Space
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net
from autonovel.runs.classes import Outputs, outputs_of
from autonovel.runs.summary import holds_known

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

CHECKED = 8
"""Images that a written network is tried on."""

ABSURD = 1e15
"""Weights beyond this were not learned."""


class Classifier(nn.Module):
    """The network of a run, in float32, from pixels as the run had them to the classes in which a person sees its outputs.

    Args:
        net: one network, or several as one.
        judge: of the run.
        edited: which output is which class.
        shape: (height, width, channels) of the images that it takes.
    """

    centres: Tensor
    mean: Tensor | None
    matrix: Tensor | None
    down: Tensor
    across: Tensor

    OUTPUTS = ("probabilities", "probabilities_new", "features", "unlike")
    """What it says of n images: (n, classes) over known and new classes together; the same if the images can only be of new
    classes, and known ones have nothing; (n, d); bool (n,), unlike anything that the run has seen."""

    def __init__(self, net: Net | Consensus, judge: Judge, edited: Edited, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.net, self.edited = net, edited
        self.net.precision = torch.float32
        self.numbers = (judge.least, judge.power, judge.doubt)
        for name in ("centres", "mean", "matrix"):
            self.register_buffer(name, judge.tensors().get(name))
        size = nets_of(net)[0].settings.size
        self.resizes = size != 0 and shape[:2] != (size, size)
        for name, side in (("down", shape[0]), ("across", shape[1])):
            self.register_buffer(name, _weights(side, size or side), persistent=False)
        self.eval()

    @property
    def judge(self) -> Judge:
        """What turns its scores into answers."""
        space = None if self.mean is None or self.matrix is None else Space(self.mean, self.matrix)
        return Judge(self.centres, *self.numbers, space=space)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is seen in images uint8 (n, h, w, c)."""
        scores, judge = self.net(self._resized(images)), self.judge
        together, alone = (
            self.edited(judge.probabilities(scores, mixed=mixed), scores.features) for mixed in (True, False)
        )
        return together, alone, scores.features, judge.unlike(scores.features)

    def _resized(self, images: Tensor) -> Tensor:
        """As :func:`autonovel.data.loader.resize`, in operations that every program has."""
        if not self.resizes:
            return images
        pixels = self.down @ images.permute(0, 3, 1, 2).float() @ self.across.T
        return pixels.round().clamp(0, 255).permute(0, 2, 3, 1).to(torch.uint8)


def _weights(side: int, size: int) -> Tensor:
    """(size, side): how much every pixel of a line counts in each pixel of the resized one."""
    line = torch.eye(side)[:, None, None]  # resizing is linear, so the lines with a single bright pixel tell all of it
    return F.interpolate(line, (1, size), mode="bilinear", antialias=True)[:, 0, 0].T.contiguous()


class Exported(NamedTuple):
    """A network that is ready to be written.

    Attributes:
        model: the network.
        outputs: its classes.
        shape: (height, width, channels) of its input.
        tells_known: whether it has learned the known classes.
        mixed: whether the pile of the run held images of known classes too.
    """

    model: Classifier
    outputs: Outputs
    shape: tuple[int, int, int]
    tells_known: bool
    mixed: bool


def network_of(run: Run) -> Exported:
    """The network of a finished run, on the CPU."""
    outputs = outputs_of(run)
    trained = restore(run, Mode.of("cpu"))
    height, width, _ = run.config["run"]["data"]["shape"]
    shape = (int(height), int(width), nets_of(trained.net)[0].channels)
    model = Classifier(trained.net, Judge.read(run), Edited.of(outputs), shape)
    side = trained.size or shape[0]
    with torch.no_grad():
        _, joint, new = trained.net(torch.zeros((1, side, trained.size or shape[1], shape[2]), dtype=torch.uint8))
    n_known, n_new = len(run.machine.known), run.machine.n_new
    if new is None or new.shape[1] != n_new or joint.shape[1] not in (n_new, n_known + n_new):
        raise InputError(
            f"The network in {run.path} has {joint.shape[1]} outputs and the run {n_known + n_new} classes; "
            "it cannot be exported."
        )
    clear_unused(model, sample_images(run, shape))
    if outputs.silent:
        warnings.warn(
            f"The network does not tell {', '.join(outputs.silent)}: made by hand, not learned; its output is always 0.",
            AutonovelWarning,
        )
    return Exported(model, outputs, shape, joint.shape[1] > n_new, holds_known(run.summary))


@torch.no_grad()
def clear_unused(model: Classifier, images: Tensor) -> None:
    """Set weights to zero that hold no number: rubbish in places that no pixel ever meets.

    Where an image has become smaller than a kernel, training in bfloat16 on a CPU can leave anything in the weights that hang
    over its edges. Torch mostly does not look at them; other programs multiply them by zero.
    """
    rubbish = [(weight, ~(weight.abs() < ABSURD)) for weight in model.parameters()]
    if not any(bool(places.any()) for _, places in rubbish):
        return
    before = model(images)[0]
    for weight, places in rubbish:
        weight.masked_fill_(places, 0)
    if not torch.allclose(model(images)[0], before, atol=1e-5):
        raise TrainingError("The weights of the network are not finite, and it says nothing of use; train it again.")


def nets_of(net: Net | Consensus) -> list[Net]:
    """The networks that answer as one."""
    return [net] if isinstance(net, Net) else [part for part in net.nets if isinstance(part, Net)]


def describe(exported: Exported) -> dict[str, Any]:
    """What a program needs to know to use the network, as plain values."""
    height, width, channels = exported.shape
    return {
        "input": {
            "name": "images",
            "type": "uint8",
            "shape": ["n", height, width, channels],
            "channels": "RGB" if channels == 3 else "grey",
            "resize": "as the model card says; everything else is inside the network",
        },
        "outputs": list(Classifier.OUTPUTS),
        "answer": "probabilities" if exported.mixed else "probabilities_new",
        "classes": describe_classes(exported.outputs),
    }


def describe_classes(outputs: Outputs) -> list[dict[str, Any]]:
    """The content of classes.json: the classes in the order of the probabilities."""
    return [{"name": c.name, "kind": c.kind, "clusters": list(c.clusters)} for c in outputs.classes]


def sample_images(run: Run, shape: tuple[int, int, int]) -> Tensor:
    """Some images of the run from its thumbnails, uint8 (n, h, w, c); noise where it has none."""
    height, width, channels = shape
    thumbnails = run.thumbnails
    if thumbnails is None or not thumbnails.count:
        noise = np.random.default_rng(0).integers(0, 256, (CHECKED, *shape), dtype=np.uint8)
        return torch.from_numpy(noise)
    chosen = thumbnails.rows[np.linspace(0, thumbnails.count - 1, CHECKED).astype(np.int64)].tolist()
    mode, bilinear = "RGB" if channels == 3 else "L", Image.Resampling.BILINEAR
    pictures = [picture(run, row).convert(mode).resize((width, height), bilinear) for row in chosen]
    return torch.from_numpy(np.stack([np.asarray(p).reshape(shape) for p in pictures]))
