"""Backbone and heads as one network, the same for every stage and objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from autonovel.base.errors import InputError, option
from autonovel.data.augment import to_float
from autonovel.machine.processes import Share
from autonovel.models.backbones import Backbone, are_ours, build_backbone
from autonovel.models.heads import HeadSpec, make_head
from autonovel.models.layers import Linear
from autonovel.models.views import BatchNorm, Chain, pass_through
from autonovel.settings.fields import from_dict
from autonovel.settings.recipe import Model


class Scores(NamedTuple):
    """What a network says of images.

    Attributes:
        features: (n, d).
        joint: scores over known and new classes together (n, n_known + n_new), or over what heads there are.
        new: scores over the new classes alone (n, n_new); None before there is a head for them.
    """

    features: Tensor
    joint: Tensor
    new: Tensor | None


class Net(nn.Module):
    """A backbone of named blocks with named heads.

    Heads: 'pretext' (stage 1), 'known' (the known classes, or known and new ones once extended), 'new' (one or more
    heads for the new classes), 'over' (heads with more clusters than classes).

    Args:
        backbone: blocks in order; the last gives features (n, d).
        channels: of the images.
        settings: from which the backbone was built.
        size: side of the images it was built for.
    """

    mean: Tensor
    std: Tensor
    answering_head: Tensor

    def __init__(self, backbone: Backbone, channels: int, settings: Model | None = None, size: int = 0) -> None:
        super().__init__()
        self.backbone = backbone.blocks
        self.n_features, self.channels, self.size = backbone.n_features, channels, size
        self.settings = backbone.architecture if backbone.pretrained else settings or Model()
        self.pretrained = backbone.pretrained
        self.identity = backbone.identity
        """What a pre-trained backbone is called that nothing has changed; empty for any other."""
        self.heads = nn.ModuleDict()
        self.specs: dict[str, HeadSpec] = {}
        """How each head was made."""
        mean, std = backbone.statistics or ([0.0] * channels, [1.0] * channels)
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))
        self.register_buffer("answering_head", torch.zeros((), dtype=torch.int64))
        self.precision = torch.float32
        """Of the matrix work inside the blocks and heads; what goes in and comes out is float32."""
        self._n_frozen = 0
        self._share: Share | None = None

    def set_statistics(self, images: Iterable[Tensor]) -> None:
        """Remember mean and standard deviation of the pixels, uint8 parts (m, h, w, c); inputs are normalised by them.

        A pre-trained network keeps those that it was trained with.
        """
        if self.pretrained:
            return
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

        Batch-norm of frozen blocks stays in training mode, and its statistics keep moving.
        """
        names = [name for name, _ in self.backbone.named_children()]
        choices = {"all": 0, **{name: i for i, name in enumerate(names)}, "heads": len(names)}
        if train_from not in choices:
            raise InputError(f"There is no block '{train_from}' to train from; choose one of {', '.join(choices)}.")
        self._n_frozen = choices[train_from]
        if train_from != "heads":
            self.identity = ""
        for i, block in enumerate(self.backbone):
            block.requires_grad_(i >= self._n_frozen)

    def divide(self, share: Share | None) -> None:
        """In training, let several processes take a part of each batch through the backbone; None: each for itself.

        Batch statistics are those of the whole batch, and features come out for all of it, so heads and losses see what they
        would see in one process.
        """
        self._share = share
        for layer in self.backbone.modules():
            if isinstance(layer, BatchNorm):
                layer.share = share

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
        return self.whole(self.through_learning(x, views))

    def through_learning(self, x: Tensor, groups: int = 1, backbone: Chain | None = None) -> Tensor:
        """What :meth:`through_frozen` gives of one view, behind the blocks that learn, or those of another backbone.

        Batch statistics are taken in groups of equal size. Where several processes share a batch, each has its own part.
        """
        for block in list(backbone or self.backbone)[self._n_frozen :]:
            x = pass_through(block, x, groups)
        return x

    def whole(self, features: Tensor) -> Tensor:
        """Features of the whole batch in float32, from those of the part that this process has."""
        features = features.float()
        return features if self._share is None or not self.training else self._share.gather(features)

    def head(self, name: str, features: Tensor, views: int = 1) -> Tensor:
        """Scores of the head of this name."""
        return self.through_head(self.heads[name], features, views)

    def through_head(self, head: nn.Module, features: Tensor, views: int = 1) -> Tensor:
        """Scores of any head, in the precision of this network."""
        return pass_through(head, self._lowered(features), views).float()

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

    def forward(self, images: Tensor) -> Scores:
        """What prediction needs, from uint8 images (n, h, w, c): the answering head speaks for the new classes."""
        z = self.features(to_float(images))
        joint, new = self.scores(z)
        return Scores(z, joint[0], None if new is None else new[0])

    def scores(self, z: Tensor, numbering: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Joint scores and scores of the new classes, (heads, n, classes) each.

        Args:
            z: features (n, d).
            numbering: int64 (heads, n_new), for each head which of its clusters is new class 0, 1, ...; left out, the
                answering head alone speaks, in its own order.
        """
        known = self.head("known", z)[None] if "known" in self.heads else None
        if "new" not in self.heads:
            return (z.new_zeros(1, len(z), 0) if known is None else known), None
        new = self.head("new", z)
        new = self._answering(new) if numbering is None else _renumbered(new, numbering)
        if known is None:
            return new, new
        if not self.extended:
            return torch.cat([known.expand(len(new), -1, -1), new], 2), new
        if numbering is not None:  # the extended head has learned the numbers of the answering one
            n_known = known.shape[2] - numbering.shape[1]
            own = _renumbered(known[:, :, n_known:], self._answering(numbering))
            known = torch.cat([known[:, :, :n_known], own], 2)
        return known, new

    def _answering(self, of_heads: Tensor) -> Tensor:
        """The row of the answering head (1, ...) of what there is of every head (heads, ...)."""
        # not by an index in brackets: for that everyone would wait until the GPU tells which head it is
        return of_heads.index_select(0, self.answering_head.reshape(1))

    @property
    def extended(self) -> bool:
        """Whether the head of the known classes answers for the new ones too."""
        return "known" in self.specs and self.specs["known"].extended_by > 0

    def add_head(self, name: str, spec: HeadSpec) -> None:
        """Put a fresh head under this name, in place of any before."""
        self.specs[name] = spec
        self.heads[name] = make_head(spec)

    def drop_head(self, name: str) -> None:
        """Take a head away, if there is one of this name."""
        if name in self.heads:
            del self.heads[name], self.specs[name]

    def extend_known(self, n_new: int) -> None:
        """Add rows for the new classes to the known head: random weights, bias below all old ones."""
        old = _last_linear(self.heads["known"])
        wide = Linear(old.in_features, old.out_features + n_new)
        with torch.no_grad():
            wide.weight[: old.out_features] = old.weight
            wide.bias[: old.out_features] = old.bias
            wide.bias[old.out_features :] = old.bias.min() - 1
        if isinstance(self.heads["known"], nn.Linear):
            self.heads["known"] = wide
        else:
            self.heads["known"][-1] = wide  # type: ignore[operator]
        spec = self.specs["known"]
        self.specs["known"] = replace(spec, outputs=spec.outputs + n_new, extended_by=n_new)

    def as_backbone(self) -> Backbone:
        """The pre-trained backbone as it came, for computing features with it; asks that nothing has changed it."""
        mean, std = (values.flatten().tolist() for values in (self.mean, self.std))
        return Backbone(self.backbone, self.n_features, (mean, std), self.size, True, self.identity, self.settings)

    def describe(self) -> dict[str, Any]:
        """Plain values from which :func:`from_description` makes a network of the same shape."""
        return {
            "model": asdict(self.settings),
            "channels": self.channels,
            "size": self.size,
            "identity": self.identity,
            "heads": {name: asdict(spec) for name, spec in self.specs.items()},
        }


def _renumbered(scores: Tensor, numbering: Tensor) -> Tensor:
    """Scores (heads, n, classes) with the classes of each head in the order of its row of the numbering."""
    return scores.gather(2, numbering[:, None].expand_as(scores))


def _each_view(part: Callable[[Tensor, int], Tensor], views: Sequence[Tensor]) -> list[Tensor]:
    """Each view through a part of the network; on CUDA, views of one size together."""
    return _together(part, views) if views[0].device.type == "cuda" else [part(view, 1) for view in views]


def _together(part: Callable[[Tensor, int], Tensor], views: Sequence[Tensor]) -> list[Tensor]:
    by_side: dict[int, list[Tensor]] = {}
    for side in dict.fromkeys(view.shape[-1] for view in views):
        alike = [view for view in views if view.shape[-1] == side]
        by_side[side] = list(part(torch.cat(alike), len(alike)).chunk(len(alike)))
    return [by_side[view.shape[-1]].pop(0) for view in views]


def _last_linear(head: nn.Module) -> nn.Linear:
    last = head[-1] if isinstance(head, nn.Sequential) else head
    if not isinstance(last, nn.Linear):
        raise InputError(
            f"Only a linear or mlp head can be extended; use {option('model.head', 'linear')}, "
            f"or {option('joint.objective', 'swap')}."
        )
    return last


def build(settings: Model, *, channels: int, size: int, weights: bool = True) -> Net:
    """The network without heads, freshly initialised (under the caller's random seed) or pre-trained, as it is named.

    ``weights=False`` leaves the weights of a pre-trained network to the caller, who loads others.
    """
    return Net(build_backbone(settings, channels=channels, size=size, weights=weights), channels, settings, size)


def from_weights(description: dict[str, Any], state: dict[str, Tensor]) -> Net:
    """A network of the shape that :meth:`Net.describe` tells, with these weights."""
    # our own networks are made of nothing but what is loaded, so no first weights are drawn for them
    with _Undrawn() if are_ours(description["model"]["backbone"]) else nullcontext():
        net = from_description(description)
    net.load_state_dict(state, assign=True)
    return net


class _Undrawn(TorchFunctionMode):
    """Weights get a place in memory and no values.

    On the device "meta" they would need no place either, but there torch loads its compiler first, which takes a second.
    """

    DRAWING = frozenset([nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.DRAWING:
            return args[0] if args else kwargs["tensor"]
        return torch.empty(*args, **kwargs) if func is torch.randn else func(*args, **kwargs)


def from_description(description: dict[str, Any]) -> Net:
    """A network of the shape that :meth:`Net.describe` tells, with heads; its weights are to be loaded."""
    settings = from_dict(Model, description["model"])
    net = build(settings, channels=description["channels"], size=description["size"], weights=False)
    net.identity = description.get("identity", "")
    for name, spec in description["heads"].items():
        net.add_head(name, HeadSpec(**spec))
    return net
