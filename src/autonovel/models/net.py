"""Backbone and heads as one network, the same for every stage and objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autonovel.data.augment import to_float
from autonovel.errors import InputError
from autonovel.machine.processes import Share
from autonovel.models import resnet, vgg
from autonovel.models.layers import Linear
from autonovel.models.views import BatchNorm, Chain, PerView, pass_through
from autonovel.settings import Model, Swap


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


class Heads(nn.ModuleList, PerView):
    """Several heads side by side: features (n, d) to scores (heads, n, classes)."""

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """The scores of every head."""
        return torch.stack([pass_through(head, x, views) for head in self])


class Net(nn.Module):
    """A backbone of named blocks with named heads.

    Heads: 'pretext' (stage 1), 'known' (the known classes, or known and new ones once extended), 'new' (one or more
    heads for the new classes), 'over' (heads with more clusters than classes).

    Args:
        backbone: blocks in order; the last gives features (n, d).
        n_features: d.
        channels: of the images.
    """

    mean: Tensor
    std: Tensor
    answering_head: Tensor

    def __init__(self, backbone: Chain, n_features: int, channels: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.n_features = n_features
        self.heads = nn.ModuleDict()
        self.register_buffer("mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("std", torch.ones(1, channels, 1, 1))
        self.register_buffer("answering_head", torch.zeros((), dtype=torch.int64))
        self.precision = torch.float32
        """Of the matrix work inside the blocks and heads; what goes in and comes out is float32."""
        self.sync_norm = True
        """Whether batch statistics are those of the whole batch where several processes share it."""
        self._n_frozen = 0
        self._share: Share | None = None

    def set_statistics(self, images: Iterable[Tensor]) -> None:
        """Remember mean and standard deviation of the pixels, uint8 parts (m, h, w, c); inputs are normalised by them."""
        total, squares, count = torch.zeros(1), torch.zeros(1), 0
        for part in images:
            pixels = part.reshape(-1, part.shape[-1]).double() / 255
            total = total.to(pixels) + pixels.sum(0)
            squares = squares.to(pixels) + pixels.square().sum(0)
            count += len(pixels)
        mean = total / count
        std = (squares / count - mean.square()).clamp(min=1e-6).sqrt()
        self.mean.copy_(mean.view_as(self.mean))
        self.std.copy_(std.view_as(self.std))

    def freeze(self, train_from: str) -> None:
        """Let gradients reach the block of this name and all after it ('all' or 'heads' for the two ends).

        Batch-norm of frozen blocks stays in training mode and its statistics go on moving.
        """
        names = [name for name, _ in self.backbone.named_children()]
        choices = {"all": 0, **{name: i for i, name in enumerate(names)}, "heads": len(names)}
        if train_from not in choices:
            raise InputError(f"There is no block '{train_from}' to train from; choose one of {', '.join(choices)}.")
        self._n_frozen = choices[train_from]
        for i, block in enumerate(self.backbone):
            block.requires_grad_(i >= self._n_frozen)

    def divide(self, share: Share | None) -> None:
        """In training, let several processes take a part of each batch through the backbone; None: each for itself.

        Features then come out for the whole batch, so heads and losses see what they would see in one process.
        """
        self._share = share
        for layer in self.backbone.modules():
            if isinstance(layer, BatchNorm):
                layer.share = share if self.sync_norm else None

    def features(self, x: Tensor, views: int = 1) -> Tensor:
        """Images (n, c, h, w) in [0, 1] to features (n, d); several views of a batch follow each other in n."""
        return self._learning(self._frozen(x, views), views)

    @torch.no_grad()
    def _frozen(self, x: Tensor, views: int) -> Tensor:
        x = self._lowered((x - self.mean) / self.std)
        for block in list(self.backbone)[: self._n_frozen]:
            x = pass_through(block, x, views)
        return x

    def _learning(self, x: Tensor, views: int) -> Tensor:
        for block in list(self.backbone)[self._n_frozen :]:
            x = pass_through(block, x, views)
        return x.float() if self._share is None or not self.training else self._share.gather(x.float())

    def head(self, name: str, features: Tensor, views: int = 1) -> Tensor:
        """Scores of the head of this name."""
        return pass_through(self.heads[name], self._lowered(features), views).float()

    def _lowered(self, x: Tensor) -> Tensor:
        return x if self.precision == torch.float32 else x.to(self.precision)

    def through_frozen(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Each view of a batch, images (n, c, h, w) in [0, 1], behind the frozen blocks: what learning does not change."""
        return _each_view(self._frozen, views)

    def features_of(self, seen: Sequence[Tensor]) -> list[Tensor]:
        """Features of each view of a batch, from what :meth:`through_frozen` gives, as if each passed alone."""
        return _each_view(self._learning, seen)

    def head_of(self, name: str, features: Sequence[Tensor]) -> list[Tensor]:
        """Scores of each view, as if it passed alone: (..., n, classes)."""
        if features[0].device.type != "cuda":
            return [self.head(name, z) for z in features]
        return self._head_together(name, features)

    def _head_together(self, name: str, features: Sequence[Tensor]) -> list[Tensor]:
        return list(self.head(name, torch.cat(list(features)), len(features)).chunk(len(features), -2))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What prediction needs, from uint8 images (n, h, w, c): features, joint scores and scores of the new classes.

        Returns:
            Features (n, d); scores over known and new classes together (n, n_known + n_new), or over what heads there are;
            scores of the answering head for the new classes (n, n_new), or None before there is one.
        """
        z = self.features(to_float(images))
        new = self.head("new", z)[self.answering_head] if "new" in self.heads else None
        parts = []
        if "known" in self.heads:
            parts.append(self.head("known", z))
        if new is not None and not self.extended:
            parts.append(new)
        return z, torch.cat(parts, 1) if parts else z.new_zeros(len(z), 0), new

    @property
    def extended(self) -> bool:
        """Whether the head of the known classes answers for the new ones too."""
        return bool(getattr(self.heads["known"], "extended", False)) if "known" in self.heads else False

    def extend_known(self, n_new: int) -> None:
        """Add rows for the new classes to the known head: random weights, bias below all old ones."""
        old = _last_linear(self.heads["known"])
        wide = Linear(old.in_features, old.out_features + n_new)
        with torch.no_grad():
            wide.weight[: old.out_features] = old.weight
            wide.bias[: old.out_features] = old.bias
            wide.bias[old.out_features :] = old.bias.min() - 1
        head = self.heads["known"]
        if isinstance(head, nn.Linear):
            self.heads["known"] = head = wide
        else:
            head[-1] = wide  # type: ignore[operator]
        head.extended = True  # type: ignore[assignment]


def _each_view(part: Callable[[Tensor, int], Tensor], views: Sequence[Tensor]) -> list[Tensor]:
    """Each view through a part of the network; on CUDA, views of one size together."""
    return _together(part, views) if views[0].device.type == "cuda" else [part(view, 1) for view in views]


def _together(part: Callable[[Tensor, int], Tensor], views: Sequence[Tensor]) -> list[Tensor]:
    found: dict[int, list[Tensor]] = {}
    for side in dict.fromkeys(view.shape[-1] for view in views):
        alike = [view for view in views if view.shape[-1] == side]
        found[side] = list(part(torch.cat(alike), len(alike)).chunk(len(alike)))
    return [found[view.shape[-1]].pop(0) for view in views]


def _last_linear(head: nn.Module) -> nn.Linear:
    last = head[-1] if isinstance(head, nn.Sequential) else head
    if not isinstance(last, nn.Linear):
        raise InputError(
            "Only a linear or mlp head can be extended; use --model.head linear, or --joint.objective swap."
        )
    return last


def build(settings: Model, *, channels: int, size: int) -> Net:
    """The network without heads, freshly initialised (under the caller's random seed)."""
    if settings.backbone == "resnet18":
        backbone, d = resnet.resnet18(channels, settings.width, settings.shortcut, large=False)
    elif settings.backbone == "resnet18-large":
        backbone, d = resnet.resnet18(channels, settings.width, settings.shortcut, large=True)
    elif settings.backbone == "vgg":
        if size < 16:
            raise InputError(
                f"The vgg network halves images four times; {size} pixels are too few (use --model.size 32)."
            )
        backbone, d = vgg.vgg(channels, settings.width, size)
    else:
        backbone, d = vgg.small(channels, settings.width, size)
    net = Net(backbone, d, channels)
    net.sync_norm = settings.sync_norm
    return net


def make_head(kind: str, inputs: int, outputs: int, temperature: float) -> nn.Module:
    """One head of a kind of :class:`autonovel.settings.Model`."""
    if kind == "cosine":
        return Cosine(inputs, outputs, temperature)
    if kind == "mlp":
        hidden = max(1, inputs // 2)
        return Chain(Linear(inputs, hidden), BatchNorm(hidden), nn.ReLU(), Linear(hidden, outputs))
    return Linear(inputs, outputs)


class ProjectedHeads(PerView):
    """Several heads side by side, each a projection with one hidden layer and cosine scores: (n, d) to (heads, n, classes).

    The heads share nothing, but their work is done together: the hidden layers are one wide layer, what follows are
    batched products. That is a fifth of the operations of separate modules, which matters where operations are small.
    """

    def __init__(self, inputs: int, outputs: int, swap: Swap) -> None:
        super().__init__()
        wide = swap.heads * swap.hidden
        self.hidden = Chain(Linear(inputs, wide), BatchNorm(wide), nn.ReLU())
        bound = swap.hidden**-0.5
        self.weight = nn.Parameter(torch.empty(swap.heads, swap.hidden, swap.projection).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(swap.heads, 1, swap.projection).uniform_(-bound, bound))
        self.classes = nn.Parameter(torch.randn(swap.heads, outputs, swap.projection) * swap.projection**-0.5)
        self.temperature = swap.temperature

    def forward(self, x: Tensor, views: int = 1) -> Tensor:
        """The scores of every head."""
        heads, hidden, _ = self.weight.shape
        h = self.hidden(x, views).view(len(x), heads, hidden).transpose(0, 1)
        projected = torch.baddbmm(self.bias.to(h.dtype), h, self.weight.to(h.dtype))
        return cosines(projected, self.classes) / self.temperature
