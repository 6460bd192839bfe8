"""The trained network as other programs want it: uint8 pixels in, probabilities of the classes as they are called now out."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from autonovel.answers.judge import FILE as JUDGE
from autonovel.answers.judge import Judge
from autonovel.answers.network import restore
from autonovel.base.errors import AutonovelWarning, InputError, TrainingError
from autonovel.export.pictures import picture
from autonovel.machine.device import Mode
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net
from autonovel.runs.classes import Outputs, outputs_of

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

CHECKED = 8
"""Images that a written network is tried on."""

ABSURD = 1e15
"""Weights beyond this were not learned."""


class Said(NamedTuple):
    """What an exported network says of images.

    Attributes:
        probabilities: (n, classes), over known and new classes together.
        probabilities_new: (n, classes), if the images can only be of new classes: the known ones have nothing.
        features: (n, d).
    """

    probabilities: Tensor
    probabilities_new: Tensor
    features: Tensor


class Classifier(nn.Module):
    """The network of a run, in float32, with the classes in which a person sees its outputs.

    Args:
        net: one network, or several as one.
        table: (outputs of the network, classes), 1 where an output counts towards a class.
        n_known: how many of the outputs are known classes.
        power, doubt: of the calibration, as in :class:`autonovel.answers.judge.Judge`.
    """

    table: Tensor

    def __init__(
        self, net: Net | Consensus, table: Tensor, n_known: int, power: float = 1.0, doubt: float = 0.0
    ) -> None:
        super().__init__()
        self.net, self.n_known = net, n_known
        self.power, self.doubt = power, doubt
        self.net.precision = torch.float32
        self.register_buffer("table", table)
        self.eval()

    def forward(self, images: Tensor) -> Said:
        """What is seen in images uint8 (n, h, w, c) of the size that the network was trained on."""
        features, joint, new = self.net(images)
        # a network that learned no known classes has outputs for the new ones alone, which are the last rows
        together = self._calibrated(joint) @ self.table[len(self.table) - joint.shape[1] :]
        return Said(together, self._calibrated(new) @ self.table[self.n_known :], features)

    def _calibrated(self, scores: Tensor) -> Tensor:
        return Judge(scores, 0.0, self.power, self.doubt).calibrated(scores.softmax(1))


class Exported(NamedTuple):
    """A network that is ready to be written.

    Attributes:
        model: the network.
        outputs: its classes.
        shape: (height, width, channels) of its input.
        tells_known: whether it has learned the known classes.
    """

    model: Classifier
    outputs: Outputs
    shape: tuple[int, int, int]
    tells_known: bool


def network_of(run: Run) -> Exported:
    """The network of a finished run, on the CPU."""
    outputs = outputs_of(run)
    trained = restore(run, Mode.of("cpu"))
    first = nets_of(trained.net)[0]
    height, width = (trained.size,) * 2 if trained.size else run.config["run"]["data"]["shape"][:2]
    judge = Judge.read(run) if run.has(JUDGE) else None  # earlier versions kept none
    calibration = (judge.power, judge.doubt) if judge is not None else (1.0, 0.0)
    model = Classifier(trained.net, torch.from_numpy(outputs.table), len(run.machine.known), *calibration)
    shape = (int(height), int(width), first.channels)
    with torch.no_grad():
        _, joint, new = trained.net(torch.zeros((1, *shape), dtype=torch.uint8))
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
    return Exported(model, outputs, shape, joint.shape[1] > n_new)


@torch.no_grad()
def clear_unused(model: Classifier, images: Tensor) -> None:
    """Set weights to zero that hold no number: rubbish in places that no pixel ever meets.

    Where an image has become smaller than a kernel, training in bfloat16 on a CPU can leave anything in the weights that hang
    over its edges. Torch mostly does not look at them; other programs multiply them by zero.
    """
    rubbish = [(weight, ~(weight.abs() < ABSURD)) for weight in model.parameters()]
    if not any(bool(places.any()) for _, places in rubbish):
        return
    before = model(images).probabilities
    for weight, places in rubbish:
        weight.masked_fill_(places, 0)
    if not torch.allclose(model(images).probabilities, before, atol=1e-5):
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
            "resize": "to this size, bilinear with antialiasing; everything else is inside the network",
        },
        "outputs": list(Said._fields),
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
