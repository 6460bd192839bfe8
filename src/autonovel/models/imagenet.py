"""Which classes of ImageNet images may show, by features that were computed anyway."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.models.backbones import parts_of
from autonovel.models.efficientnet import LITE, N_FEATURES, load_classifier, weights_file

LIKELIEST = 5
LENGTH = 20.0
"""Features have this length where the classifiers of the packaged networks give probabilities that are about right; what was
brought to length 1 has lost its own. On small photographs 15 to 25 do equally well."""
CHUNK = 4096


def has_classifier(backbone: str) -> bool:
    """Whether this backbone consists of packaged networks, whose files hold a classifier."""
    return all(part in LITE and weights_file(LITE[part]) is not None for part in parts_of(backbone))


def likeliest(backbone: str, features: Tensor) -> npt.NDArray[np.uint16]:
    """(n, 5, 2) of features (n, d) by the untrained backbone: the likeliest classes, and their probabilities times 65,535.

    Several networks beside each other answer with the mean of their logits.
    """
    heads = [load_classifier(LITE[part]) for part in parts_of(backbone)]
    rows = []
    for some in features.float().split(CHUNK):
        parts = zip(some.split(N_FEATURES, 1), heads, strict=True)
        logits = [F.linear(LENGTH * F.normalize(own), weight, bias) for own, (weight, bias) in parts]
        best = torch.stack(logits).mean(0).softmax(1).topk(LIKELIEST)
        rows.append(torch.stack([best.indices.float(), (65535 * best.values).round()], 2).numpy().astype(np.uint16))
    return np.concatenate(rows)
