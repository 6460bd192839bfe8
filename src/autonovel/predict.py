"""What a trained network says of images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.data.loader import Images
from autonovel.engine import not_captured
from autonovel.machine.device import Mode
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net


@dataclass(frozen=True)
class Answers:
    """What the network says of images, in float32 on the CPU.

    Attributes:
        features: (n, d).
        joint: probabilities over known and new classes (n, n_known + n_new).
        new: probabilities over the new classes (n, n_new); None before there is a head for them.
    """

    features: Tensor
    joint: Tensor
    new: Tensor | None


@torch.no_grad()
def answer(net: Net | Consensus, images: Iterable[Tensor], mode: Mode) -> Answers:
    """Run the network over parts of a data set, uint8 (m, h, w, c), as they are, in evaluation mode."""
    net.eval()
    features, joint, new = [], [], []
    with not_captured(mode):
        for part in images:
            net.precision = mode.precision_for(part.shape[1])
            z, scores, new_scores = net(part.to(mode.device))
            features.append(z.cpu())
            joint.append(scores.softmax(1).cpu())
            if new_scores is not None:
                new.append(new_scores.softmax(1).cpu())
    return Answers(torch.cat(features), torch.cat(joint), torch.cat(new) if new else None)


def answer_together(
    net: Net | Consensus, images: Images, mode: Mode, places: npt.NDArray[np.int64] | None = None
) -> Answers:
    """:func:`answer` for images of a data set (all when no places are given), which the processes share among them."""
    places = np.arange(len(images.labels)) if places is None else places
    world, n = mode.world, len(places)
    if not world.several or n < world.size:
        return answer(net, images.chunks(places), mode)
    part = answer(net, images.chunks(places[world.rows(n)]), mode)
    new = None if part.new is None else world.join_rows(part.new, n)
    return Answers(world.join_rows(part.features, n), world.join_rows(part.joint, n), new)
