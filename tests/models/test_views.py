"""Views that pass together are treated as if each passed alone."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from autonovel.base.chance import seeded
from autonovel.models.heads import Heads, HeadSpec, make_head
from autonovel.models.net import Net, _together, build
from autonovel.models.views import BatchNorm
from autonovel.settings.recipe import Model


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(6, 12), st.integers(1, 5), st.integers(0, 3), st.integers(0, 99))
def test_batch_norm_of_views_is_torchs_of_each(views: int, n: int, channels: int, side: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (views * n, channels, side, side) if side else (views * n, channels)
    x = (3 * torch.randn(shape, generator=generator) + 2).requires_grad_()
    ours = BatchNorm(channels)
    theirs: nn.Module = nn.BatchNorm2d(channels) if side else nn.BatchNorm1d(channels)
    with torch.no_grad():
        for ours_p, theirs_p in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
            theirs_p.copy_(ours_p.copy_(torch.randn(channels, generator=generator)))
    y = ours._in_sums(x, views)
    out = torch.randn(y.shape, generator=generator)
    (y * out).sum().backward()
    mine, x.grad = x.grad, None
    expected = torch.cat([theirs(part) for part in x.chunk(views)])
    (expected * out).sum().backward()
    for got, want in (
        (y, expected),
        (mine, x.grad),
        (ours.weight.grad, theirs.weight.grad),
        (ours.bias.grad, theirs.bias.grad),
        (ours.running_mean, theirs.running_mean),
        (ours.running_var, theirs.running_var),
    ):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-3)


def test_one_view_on_the_cpu_is_torchs_own_batch_norm() -> None:
    x = torch.randn(6, 3, 4, 4)
    ours, theirs = BatchNorm(3), nn.BatchNorm2d(3)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_a_constant_channel_gives_no_nan() -> None:
    x = torch.full((8, 2, 3, 3), 1e4, requires_grad=True)
    y = BatchNorm(2)._in_sums(x, 2)
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


def _net(backbone: str) -> Net:
    with seeded(0):
        net = build(Model(backbone=backbone, width=4, shortcut="conv"), channels=1, size=16)
        net.heads["known"] = make_head(HeadSpec("mlp", net.n_features, 3, 0.1))
    return net


@pytest.mark.parametrize("backbone", ["resnet18", "resnet18-large", "vgg", "small"])
@pytest.mark.parametrize("train_from", ["all", "layer4"])
@pytest.mark.parametrize("compiling", [True, False])
def test_views_together_give_features_gradients_and_statistics_of_views_alone(
    backbone: str, train_from: str, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, alone = _net(backbone), _net(backbone)
    generator = torch.Generator().manual_seed(0)
    views = [torch.rand(6, 1, 16, 16, generator=generator) for _ in range(3)]
    results = []
    for net, separately in ((together, False), (alone, True)):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling and not separately)  # noqa: B023
        net.freeze(train_from)
        if separately:
            z = [net.features(view) for view in views]
            scores = [net.head("known", part) for part in z]
        else:
            z = list(net.features(torch.cat(views), 3).chunk(3))
            scores = list(net.head("known", torch.cat(z), 3).chunk(3))
        torch.stack([s.sin().sum() for s in scores]).sum().backward()
        results.append([*z, *scores])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    for (name, p), q in zip(together.named_parameters(), alone.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-2, atol=1e-3, msg=name)
    for name, value in together.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("sides", [(16,), (16, 16), (16, 8, 16, 8), (8, 16, 16)])
@pytest.mark.parametrize("train_from", ["all", "layer3", "heads"])
def test_views_of_several_sizes_keep_their_order(sides: tuple[int, ...], train_from: str) -> None:
    net = _net("resnet18")
    net.freeze(train_from)
    net.heads["new"] = Heads([make_head(HeadSpec("mlp", net.n_features, 4, 0.1)) for _ in range(2)])
    other = copy.deepcopy(net)
    generator = torch.Generator().manual_seed(0)
    views = [torch.rand(9, 1, side, side, generator=generator) for side in sides]
    got = _together(net._learning, _together(net._frozen, views))
    want = [other.features(view) for view in views]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    for name in ("known", "new"):
        for a, b in zip(net._head_together(name, want), [other.head(name, z) for z in want], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
