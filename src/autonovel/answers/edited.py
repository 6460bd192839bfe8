"""From the outputs of a network to the classes as a person left them: added up, divided, called something else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from autonovel.runs.classes import Outputs


class Edited(nn.Module):
    """The table of :func:`autonovel.runs.classes.outputs_of` as tensors.

    Args:
        parts: the output of every part and the place of its class, in the order of the outputs.
        n_classes: how many classes there are.
        middles: (parts, d), the middles of parts of a divided output; None where none is divided.
    """

    owner: Tensor
    place: Tensor
    table: Tensor
    middles: Tensor

    def __init__(self, parts: Sequence[tuple[int, int]], n_classes: int, middles: Tensor | None) -> None:
        super().__init__()
        owner, place = (torch.tensor(column, dtype=torch.int64) for column in zip(*parts, strict=True))
        self.register_buffer("owner", owner, persistent=False)
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("table", torch.eye(n_classes)[place], persistent=False)
        self.register_buffer("middles", middles)
        starts = torch.unique(owner, return_inverse=True)[1].bincount().cumsum(0).tolist()
        self._spans = [(a, b) for a, b in zip([0, *starts], starts, strict=False) if b - a > 1]

    @classmethod
    def of(cls, outputs: Outputs) -> Edited:
        """The table of a run."""
        parts = [(part.output, part.place) for part in outputs.parts]
        return cls(parts, len(outputs.classes), torch.from_numpy(outputs.middles) if outputs.divided else None)

    def parts(self, likely: Tensor, features: Tensor) -> Tensor:
        """Probabilities (n, parts) from those of the outputs (n, k): a divided one gives all it has to the nearest part."""
        of_parts = likely.index_select(1, self.owner)
        if not self._spans:
            return of_parts
        inside, done = [], 0
        for start, end in self._spans:
            middles = self.middles[start:end]
            apart = middles.square().sum(1) - 2 * features.float() @ middles.T
            nearest = apart.argmin(1, keepdim=True) == torch.arange(end - start, device=apart.device)
            inside += [torch.ones_like(of_parts[:, done:start]), nearest.to(of_parts)]
            done = end
        return of_parts * torch.cat([*inside, torch.ones_like(of_parts[:, done:])], 1)

    def forward(self, likely: Tensor, features: Tensor) -> Tensor:
        """Probabilities (n, classes) from those of the outputs (n, k)."""
        return self.parts(likely, features) @ self.table
