"""Several trained networks that answer as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from autonovel.data.augment import to_float
from autonovel.models.net import Net, Scores


class Consensus(nn.Module):
    """The mean of what all heads of all networks say, after their clusters were matched.

    Each network and head numbers the new classes in its own way, and errs in its own way; errors that the others do not
    share are outvoted.

    Args:
        nets: networks with the same heads.
        numbering: int64 (networks, heads, n_new), for each head which of its clusters is new class 0, 1, ...; see
            :func:`match_heads`.
    """

    numbering: Tensor

    def __init__(self, nets: Sequence[Net], numbering: Tensor) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        self.register_buffer("numbering", numbering)

    @classmethod
    @torch.no_grad()
    def of(cls, nets: Sequence[Net], images: Iterable[Tensor], precision: torch.dtype) -> Consensus:
        """The consensus of trained networks, clusters matched by their answers for images, uint8 parts (m, h, w, c)."""
        parts: list[Tensor] = []
        for net in nets:
            net.eval()
            net.precision = precision
        for part in images:
            x = to_float(part.to(nets[0].mean.device))
            parts.append(torch.cat([net.head("new", net.features(x)).softmax(2) for net in nets]).cpu())
        numbering = match_heads(torch.cat(parts, 1))
        return cls(nets, numbering.view(len(nets), -1, numbering.shape[1]).to(nets[0].mean.device))

    @property
    def precision(self) -> torch.dtype:
        """Of the matrix work, as in :class:`Net`."""
        return self._net(0).precision

    @precision.setter
    def precision(self, precision: torch.dtype) -> None:
        for i in range(len(self.nets)):
            self._net(i).precision = precision

    def forward(self, images: Tensor) -> Scores:
        """As :meth:`Net.forward`: features of all networks side by side, and logarithms of mean probabilities as scores."""
        x = to_float(images)
        features, joint, new = [], [], []
        for i in range(len(self.nets)):
            z = self._net(i).features(x)
            joint_scores, new_scores = self._net(i).scores(z, self.numbering[i])
            assert new_scores is not None
            features.append(z)
            joint.append(joint_scores.softmax(2).mean(0))
            new.append(new_scores.softmax(2).mean(0))
        return Scores(torch.cat(features, 1), torch.stack(joint).mean(0).log(), torch.stack(new).mean(0).log())

    def _net(self, i: int) -> Net:
        net = self.nets[i]
        assert isinstance(net, Net)
        return net


def match_heads(probabilities: Tensor) -> Tensor:
    """Number the clusters of several heads alike.

    Two heads agree as far as they give the same images to clusters that are matched one to one (Hungarian algorithm on the
    products of their probabilities). The head that agrees most with all others is the reference for them.

    Args:
        probabilities: (heads, n, clusters) for the same images.

    Returns:
        int64 (heads, clusters): entry (h, c) is the cluster of head h that is cluster c of the reference.
    """
    from scipy.optimize import linear_sum_assignment

    heads, n, clusters = probabilities.shape
    flat = probabilities.double().transpose(1, 2).reshape(heads * clusters, n)
    shared = (flat @ flat.T).view(heads, clusters, heads, clusters).transpose(1, 2).numpy()
    matched = [[linear_sum_assignment(table, maximize=True)[1] for table in row] for row in shared]
    rows = range(clusters)
    agreement = [sum(shared[a, b][rows, matched[a][b]].sum() for b in range(heads)) for a in range(heads)]
    reference = max(range(heads), key=lambda a: agreement[a])
    return torch.stack([torch.from_numpy(clusters).long() for clusters in matched[reference]])
