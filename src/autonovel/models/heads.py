"""Heads: what turns features into class scores. Each is made from a :class:`HeadSpec`, which a weights file can hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.maths.sharpening import student_scores
from autonovel.models.layers import Linear
from autonovel.models.views import BatchNorm, Chain, PerView, pass_through
from autonovel.settings.recipe import Model

COMPONENTS = 128
"""Dimensions of the space of a :class:`SpaceHead`."""


_PAIRED_AT_ONCE = 2**20
"""Hidden units of pairs that a CPU has in hand together."""


@dataclass(frozen=True)
class HeadSpec:
    """All that is needed to make a head of the same shape again.

    Attributes:
        kind: one of :data:`KINDS`.
        inputs: features.
        outputs: classes.
        temperature: divides the scores of cosine heads.
        stacked: a list of ``count`` heads, with scores (count, n, classes).
        count: heads side by side (stacked, projected).
        hidden: hidden units (projected, perceptron, mlp; for the last, 0 takes half the features).
        projection: outputs of the projection (projected).
        extended_by: how many of the outputs are new classes that the head of the known ones has learned too.
    """

    kind: str
    inputs: int
    outputs: int
    temperature: float = 1.0
    stacked: bool = False
    count: int = 1
    hidden: int = 0
    projection: int = 0
    extended_by: int = 0


def class_head(model: Model, inputs: int, outputs: int, *, stacked: bool = False, count: int = 1) -> HeadSpec:
    """A head of the kind that the settings ask for, or a list of ``count`` of them."""
    return HeadSpec(model.head, inputs, outputs, temperature=model.temperature, stacked=stacked, count=count)


def make_head(spec: HeadSpec) -> nn.Module:
    """A fresh head (under the caller's random seed)."""
    make = KINDS[spec.kind]
    return Heads([make(spec) for _ in range(spec.count)]) if spec.stacked else make(spec)


class Cosine(nn.Module):
    """Class scores as cosines between the feature and one direction per class, divided by a temperature."""

    def __init__(self, inputs: int, outputs: int, temperature: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.temperature = temperature
        nn.init.normal_(self.weight, std=inputs**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d) to scores (n, classes)."""
        return cosines(x, self.weight) / self.temperature


def cosines(x: Tensor, directions: Tensor) -> Tensor:
    """Cosines between vectors (..., n, d) and directions (..., c, d): (..., n, c).

    In float32 always: the balanced targets divide them by a small epsilon, which would show the rounding of bfloat16.
    """
    return F.normalize(x.float(), dim=-1) @ F.normalize(directions, dim=-1).transpose(-1, -2)


class Nearest(nn.Module):
    """Scores that fall with the squared distance to one centre per class. Nothing in it is trained by gradients."""

    centres: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("centres", torch.zeros(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d) to scores (n, classes)."""
        x, scale = x.float(), x.shape[1] ** -0.5
        # less the term that is the same for all classes
        scores: Tensor = (2 * x @ self.centres.T - self.centres.square().sum(1)) * scale
        return scores


class SpaceHead(nn.Module):
    """Scores as similarities to one centre per class in a space that was computed, not trained.

    The feature is brought to length 1, moved, multiplied and brought to length 1 again.
    """

    mean: Tensor
    matrix: Tensor
    centres: Tensor
    sharpness: Tensor

    def __init__(self, inputs: int, outputs: int, components: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("matrix", torch.zeros(inputs, components))
        self.register_buffer("centres", torch.zeros(outputs, components))
        self.register_buffer("sharpness", torch.ones(()))

    def fill(self, mean: Tensor, matrix: Tensor, centres: Tensor, sharpness: float) -> None:
        """Set all of it; the space may have fewer components than there is room for."""
        used = matrix.shape[1]
        self.mean.copy_(mean)
        self.matrix.zero_()[:, :used].copy_(matrix)
        self.centres.zero_()[:, :used].copy_(centres)
        self.sharpness.fill_(sharpness)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d) to scores (n, classes)."""
        placed = F.normalize((F.normalize(x.float(), dim=1) - self.mean) @ self.matrix, dim=1)
        return self.sharpness * (placed @ self.centres.T)


class Heads(nn.ModuleList, PerView):
    """Several heads side by side: features (n, d) to scores (heads, n, classes)."""

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """The scores of every head."""
        return torch.stack([pass_through(head, x, views) for head in self])


class ProjectedHeads(PerView):
    """Several heads side by side, each a projection with one hidden layer and cosine scores: (n, d) to (heads, n, classes).

    The heads share nothing, but their work is done together: the hidden layers are one wide layer, what follows are
    batched products. That is a fifth of the operations of separate modules, which matters where operations are small.
    """

    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        heads, hidden, projection = spec.count, spec.hidden, spec.projection
        self.hidden = Chain(Linear(spec.inputs, heads * hidden), BatchNorm(heads * hidden), nn.ReLU())
        bound = hidden**-0.5
        self.weight = nn.Parameter(torch.empty(heads, hidden, projection).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(heads, 1, projection).uniform_(-bound, bound))
        self.classes = nn.Parameter(torch.randn(heads, spec.outputs, projection) * projection**-0.5)
        self.temperature = spec.temperature

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """The scores of every head."""
        return cosines(self._projected(x, views), self.classes) / self.temperature

    def _projected(self, x: Tensor, views: int = 1) -> Tensor:
        heads, hidden, _ = self.weight.shape
        h = self.hidden(x, views).view(x.shape[0], heads, hidden).transpose(0, 1)
        return torch.baddbmm(self.bias.to(h.dtype), h, self.weight.to(h.dtype))

    @torch.no_grad()
    def settle(self, x: Tensor, counts: Tensor, at_once: int) -> None:
        """Bring the statistics of the hidden layer to what batches have in which features (n, d) come so often (n,)."""
        linear, norm, _ = self.hidden
        assert isinstance(norm, BatchNorm)
        mean, square = torch.zeros_like(norm.running_mean), torch.zeros_like(norm.running_var)
        for some, own in zip(x.split(at_once), (counts / counts.sum()).split(at_once), strict=True):
            passed = linear(some).float()
            mean += own @ passed
            square += own @ passed.square()
        norm.running_mean.copy_(mean)
        norm.running_var.copy_((square - mean.square()).clamp(min=0))

    @torch.no_grad()
    def start_from(self, x: Tensor, groups: Tensor, which: Tensor, at_once: int) -> None:
        """Turn the classes of some heads, bool (heads,), to the middles of these groups (n,) of features (n, d)."""
        middles = torch.zeros_like(self.classes)
        for some, own in zip(x.split(at_once), groups.split(at_once), strict=True):
            members = F.one_hot(own, self.classes.shape[1]).float()  # a product is summed alike everywhere
            middles += members.T @ F.normalize(self._projected(some).float(), dim=2)
        turned = F.normalize(middles, dim=2) * self.classes.norm(dim=2, keepdim=True)
        self.classes.copy_(torch.where(which[:, None, None], turned, self.classes))


class Student(PerView):
    """Scores by Student's t: how near a point with as many coordinates as there are clusters lies to each centre."""

    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        self.place = _mlp(spec) if spec.hidden else Linear(spec.inputs, spec.outputs)
        self.centres = nn.Parameter(torch.zeros(spec.outputs, spec.outputs))

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """Features (n, d) to scores (n, clusters)."""
        return student_scores(pass_through(self.place, x, views).float(), self.centres)


class Alike(nn.Module):
    """Scores for "different" and "alike" of every ordered pair of a batch: one hidden layer over both images' features.

    The first layer of two features side by side is the sum of a part for each, and its mean and variance over all pairs are
    sums too. So the hidden layer is normalised without a product for every pair. There are no running statistics: the batch
    itself is the measure, in training and after it.
    """

    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        self.sides = nn.Linear(spec.inputs, 2 * spec.hidden, bias=False)
        self.weight, self.bias = nn.Parameter(torch.ones(spec.hidden)), nn.Parameter(torch.zeros(spec.hidden))
        self.answer = Linear(spec.hidden, spec.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d) to scores (n, n, 2)."""
        sides = self.sides(x.float())
        centred = sides - sides.mean(0)
        first, second = centred.square().mean(0).chunk(2)
        scale = self.weight * torch.rsqrt(first + second + 1e-5)
        first, second = (centred * scale.repeat(2)).chunk(2, 1)
        # on a CPU a few rows at a time, which stay in its caches: a quarter of the time
        rows = max(1, _PAIRED_AT_ONCE // second.numel()) if x.device.type == "cpu" else len(x)
        scores = [self.answer((some[:, None] + second).relu_()) for some in (first + self.bias).split(rows)]
        return torch.cat(scores)


def _mlp(spec: HeadSpec) -> nn.Module:
    hidden = spec.hidden or max(1, spec.inputs // 2)
    return Chain(Linear(spec.inputs, hidden), BatchNorm(hidden), nn.ReLU(), Linear(hidden, spec.outputs))


KINDS: dict[str, Callable[[HeadSpec], nn.Module]] = {
    "linear": lambda spec: Linear(spec.inputs, spec.outputs),
    "mlp": _mlp,
    "perceptron": lambda spec: Chain(Linear(spec.inputs, spec.hidden), nn.ReLU(), Linear(spec.hidden, spec.outputs)),
    "cosine": lambda spec: Cosine(spec.inputs, spec.outputs, spec.temperature),
    "nearest": lambda spec: Nearest(spec.inputs, spec.outputs),
    "projected": ProjectedHeads,
    "student": Student,
    "alike": Alike,
    "space": lambda spec: SpaceHead(spec.inputs, spec.outputs, COMPONENTS),
}
