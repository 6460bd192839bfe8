"""Networks: shapes, sizes, frozen blocks, the extended head, shortcuts, normalisation."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.augment import to_float
from autonovel.machine.cpu import single_threads
from autonovel.models import Net, build
from autonovel.models.heads import Cosine, Heads, HeadSpec, ProjectedHeads, make_head
from autonovel.models.layers import Conv2d
from autonovel.models.views import BatchNorm
from autonovel.settings.recipe import Model

pytestmark = pytest.mark.usefixtures("flags_in_messages")


def small_net(backbone: str = "resnet18", size: int = 8, channels: int = 3, width: int = 4, **more: object) -> Net:
    with seeded(0):
        return build(Model(backbone=backbone, width=width, **more), channels=channels, size=size)


def pictures(n: int, size: int, channels: int = 3) -> torch.Tensor:
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(0))


# ---- shapes and sizes


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shortcut", ["pool", "conv"])
@pytest.mark.parametrize("size", [1, 7, 8, 15, 32])
@pytest.mark.parametrize("backbone", ["resnet18", "resnet18-large", "vgg", "small"])
def test_every_backbone_takes_every_size(backbone: str, size: int, shortcut: str, channels: int) -> None:
    if backbone == "vgg" and size < 16:
        with pytest.raises(InputError, match=rf"{size} pixels are too few \(use --model.size 32\)"):
            small_net(backbone, size, channels, shortcut=shortcut)
        return
    net = small_net(backbone, size, channels, shortcut=shortcut)
    features = net.features(pictures(3, size, channels))
    assert features.shape == (3, net.n_features)
    assert features.dtype == torch.float32
    assert features.isfinite().all()
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("backbone", ["resnet18", "resnet18-large"])
@pytest.mark.parametrize("shape", [(9, 14), (33, 17)])
def test_residual_networks_take_images_that_are_not_square(backbone: str, shape: tuple[int, int]) -> None:
    net = small_net(backbone)
    assert net.features(torch.rand(2, 3, *shape)).shape == (2, net.n_features)


def test_features_have_the_widths_of_the_paper() -> None:
    assert small_net("resnet18", 32, width=64).n_features == 512
    assert small_net("vgg", 32, 1, width=64).n_features == 1024
    with_widths = [m.out_channels for m in small_net("vgg", 32, 1, width=64).modules() if isinstance(m, nn.Conv2d)]
    assert with_widths == [64, 128, 256, 256]


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_resnet18_has_the_known_number_of_weights() -> None:
    net = small_net(width=64, shortcut="conv")
    net.heads["known"] = nn.Linear(net.n_features, 10)
    assert count(net) == 11_173_962
    # the standard form has 1,000 classes and a 7x7 stem
    large = small_net("resnet18-large", 64, width=64, shortcut="conv")
    large.heads["known"] = nn.Linear(large.n_features, 1000)
    assert count(large) == 11_689_512
    # without convolution in the three shortcuts that change shape
    shortcuts = sum(a * b + 2 * b for a, b in [(64, 128), (128, 256), (256, 512)])
    assert count(small_net(width=64)) == 11_173_962 - (512 * 10 + 10) - shortcuts


def test_blocks_have_the_names_of_the_recipes() -> None:
    for backbone in ("resnet18", "resnet18-large", "vgg", "small"):
        names = [name for name, _ in small_net(backbone, 32).backbone.named_children()]
        assert [name for name in names if name.startswith("layer")] == [f"layer{i}" for i in range(1, 5)]
        assert names[-1] == "pool"


# ---- shortcuts


@pytest.mark.parametrize("size", [4, 5])
def test_shortcut_without_weights_averages_and_adds_zero_channels(size: int) -> None:
    block = small_net(shortcut="pool").backbone.layer2[0]
    assert count(block.shortcut) == 0
    x = pictures(2, size, 4)
    found = block.shortcut(x)
    half = -(-size // 2)
    assert found.shape == (2, 8, half, half)
    assert not found[:, 4:].any()
    for i in range(half):
        for j in range(half):
            corner = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]  # smaller at the border of an odd side
            assert torch.allclose(found[:, :4, i, j], corner.mean((2, 3)), atol=1e-6)


def test_shortcut_with_weights_is_a_strided_convolution() -> None:
    block = small_net(shortcut="conv").backbone.layer2[0].eval()
    x = pictures(2, 5, 4)
    conv, norm = block.shortcut
    assert conv.kernel_size == (1, 1)
    assert torch.allclose(block.shortcut(x), norm(torch.conv2d(x[:, :, ::2, ::2], conv.weight)), atol=1e-6)


def test_a_residual_block_adds_its_shortcut() -> None:
    for block in (small_net().backbone.layer1[0].eval(), small_net().backbone.layer2[0].eval()):
        x = pictures(2, 6, 4)
        inner = block.norm2(block.conv2(torch.relu(block.norm1(block.conv1(x)))))
        assert torch.allclose(block(x), torch.relu(inner + block.shortcut(x)), atol=1e-6)
        assert not torch.allclose(block(x), torch.relu(inner), atol=1e-3)


# ---- freezing


@pytest.mark.parametrize(
    ("train_from", "learning"),
    [
        ("all", {"stem", "layer1", "layer2", "layer3", "layer4"}),
        ("layer3", {"layer3", "layer4"}),
        ("layer4", {"layer4"}),
        ("heads", set()),
    ],
)
def test_frozen_blocks_get_no_gradient_but_their_statistics_move(train_from: str, learning: set[str]) -> None:
    net = small_net()
    net.heads["known"] = nn.Linear(net.n_features, 3)
    net.freeze(train_from)
    net.train()
    means = {name: b.clone() for name, b in net.named_buffers() if name.endswith("running_mean")}
    net.head("known", net.features(pictures(6, 8))).square().sum().backward()
    for name, p in net.backbone.named_parameters():
        assert (p.grad is not None) == p.requires_grad == (name.split(".")[0] in learning), name
    assert net.heads["known"].weight.grad is not None
    for name, now in net.named_buffers():
        if name in means:
            assert not torch.equal(now, means[name]), name
    net.freeze("all")  # and back
    net.head("known", net.features(pictures(6, 8))).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_unknown_blocks_are_refused() -> None:
    with pytest.raises(InputError, match=r"no block 'layer9' .* choose one of all, stem, layer1, .*heads"):
        small_net().freeze("layer9")


# ---- the extended head


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_extending_the_known_head_keeps_old_scores(kind: str) -> None:
    net = small_net().eval()
    with seeded(1):
        net.add_head("known", HeadSpec(kind, net.n_features, 5, 0.1))
    net.eval()
    z = torch.randn(7, net.n_features)
    before = net.head("known", z)
    assert not net.extended
    net.extend_known(3)
    after = net.head("known", z)
    assert net.extended
    assert after.shape == (7, 8)
    assert torch.allclose(after[:, :5], before, atol=1e-6)
    last = net.heads["known"] if kind == "linear" else net.heads["known"][-1]
    assert torch.allclose(last.bias[5:], last.bias[:5].min() - 1)
    assert len(torch.unique(last.weight[5:])) > 3  # the new rows are random
    net.add_head("new", HeadSpec(kind, net.n_features, 3, 0.1, stacked=True))
    net.eval()
    assert net(torch.zeros(2, 8, 8, 3, dtype=torch.uint8))[1].shape == (2, 8)


def test_a_cosine_head_cannot_be_extended() -> None:
    net = small_net()
    net.add_head("known", HeadSpec("cosine", net.n_features, 5, 0.1))
    with pytest.raises(InputError, match=r"--model\.head linear"):
        net.extend_known(3)


# ---- heads and answers


def test_cosine_scores_depend_on_directions_alone() -> None:
    head = Cosine(6, 4, temperature=0.1)
    x = torch.randn(5, 6)
    scores = head(x)
    slow = [[10 * float(a @ w) / math.sqrt(float(a @ a) * float(w @ w)) for w in head.weight.detach()] for a in x]
    np.testing.assert_allclose(scores.detach().numpy(), slow, rtol=1e-4, atol=1e-4)
    assert torch.allclose(head(100 * x), scores, atol=1e-4)
    assert scores.abs().max() <= 10 + 1e-4
    assert head(torch.zeros(1, 6)).isfinite().all()


def test_heads_side_by_side() -> None:
    with seeded(0):
        heads = Heads([make_head(HeadSpec("mlp", 8, 3, 0.1)) for _ in range(3)]).eval()
    x = torch.randn(6, 8)
    scores = heads(x)
    assert scores.shape == (3, 6, 3)
    for head, expected in zip(heads, scores, strict=True):
        assert torch.equal(head(x), expected)
    assert not torch.allclose(scores[0], scores[1])


def test_projected_heads_work_together_as_each_would_alone() -> None:
    with seeded(0):
        heads = ProjectedHeads(HeadSpec("projected", 8, 6, 0.2, count=3, hidden=5, projection=4)).train()
    x = torch.randn(7, 8, generator=torch.Generator().manual_seed(0))
    scores = heads(x)
    assert scores.shape == (3, 7, 6)
    linear, norm, _ = heads.hidden
    for number in range(3):
        own = slice(5 * number, 5 * number + 5)
        inner = x @ linear.weight[own].T + linear.bias[own]
        inner = (inner - inner.mean(0)) / (inner.var(0, correction=0) + norm.epsilon).sqrt()
        projected = torch.relu(inner) @ heads.weight[number] + heads.bias[number]
        directions = heads.classes[number]
        cosine = (projected @ directions.T) / projected.norm(dim=1)[:, None] / directions.norm(dim=1)
        assert torch.allclose(scores[number], cosine / 0.2, atol=1e-4)
    # a head learns from its own loss alone
    scores[1].square().sum().backward()
    for p in (heads.weight, heads.bias, heads.classes):
        assert p.grad[1].any()
        assert not p.grad[[0, 2]].any()
    assert linear.weight.grad[5:10].any()
    assert not linear.weight.grad[:5].any()
    assert not linear.weight.grad[10:].any()


def test_mlp_heads_have_half_as_many_hidden_units() -> None:
    hidden, norm, active, last = make_head(HeadSpec("mlp", 1024, 20, 0.1))
    assert (hidden.in_features, hidden.out_features, last.in_features, last.out_features) == (1024, 512, 512, 20)
    assert isinstance(norm, BatchNorm)
    assert isinstance(active, nn.ReLU)


def test_answers_of_the_heads_there_are() -> None:
    net = small_net().eval()
    images = (pictures(4, 8).permute(0, 2, 3, 1) * 255).to(torch.uint8)
    features, joint, new = net(images)
    assert (tuple(features.shape), tuple(joint.shape), new) == ((4, net.n_features), (4, 0), None)
    assert torch.equal(features, net.features(to_float(images)))
    net.heads["known"] = nn.Linear(net.n_features, 5)
    assert torch.equal(net(images)[1], net.head("known", features))
    net.heads["new"] = Heads([nn.Linear(net.n_features, 3) for _ in range(2)])
    for answering in range(2):
        net.answering_head.fill_(answering)
        _, joint, new = net(images)
        assert torch.equal(new, net.heads["new"][answering](features))
        assert torch.equal(joint, torch.cat([net.head("known", features), new], 1))


# ---- normalisation, seeds


@pytest.mark.parametrize("channels", [1, 3])
def test_inputs_are_normalised_by_the_training_pixels(channels: int) -> None:
    images = torch.randint(0, 256, (50, 6, 6, channels), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images[..., 0] //= 3
    net = small_net(channels=channels)
    net.set_statistics(images.split(7))
    pixels = images.reshape(-1, channels).double().numpy() / 255
    np.testing.assert_allclose(net.mean.flatten().numpy(), pixels.mean(0), rtol=1e-5)
    np.testing.assert_allclose(net.std.flatten().numpy(), pixels.std(0), rtol=1e-4)
    seen = []
    net.backbone.stem.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    net.features(to_float(images))
    np.testing.assert_allclose(seen[0].mean((0, 2, 3)).numpy(), 0, atol=1e-4)
    np.testing.assert_allclose(seen[0].std((0, 2, 3)).numpy(), 1, atol=1e-2)


def test_statistics_of_many_images_and_of_black_ones() -> None:
    net = small_net(channels=1)
    images = torch.randint(0, 256, (9000, 2, 2, 1), dtype=torch.uint8)
    net.set_statistics(images.split(4096))
    assert net.mean.item() == pytest.approx(images.double().mean().item() / 255, rel=1e-5)
    net.set_statistics([torch.zeros(10, 8, 8, 1, dtype=torch.uint8)])
    assert net.features(torch.zeros(4, 1, 8, 8)).isfinite().all()


def test_weights_depend_on_the_key_and_leave_torch_alone() -> None:
    state = torch.random.get_rng_state()
    with seeded(3, "backbone"):
        one = build(Model(width=4), channels=3, size=8).state_dict()
    torch.rand(10)
    torch.random.set_rng_state(state)
    with seeded(3, "backbone"):
        two = build(Model(width=4), channels=3, size=8).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    with seeded(4, "backbone"):
        other = build(Model(width=4), channels=3, size=8).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["backbone.stem.0.weight"], other["backbone.stem.0.weight"])


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_channels_filled_up_change_nothing(channels: int) -> None:
    conv = small_net(channels=channels).backbone.stem[0]
    x = pictures(4, 8, channels)
    torch.testing.assert_close(conv._filled_up(x), conv(x))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("images", [1, 2, 5])
def test_gradients_taken_in_parts_are_those_of_the_whole(images: int, two_threads: None) -> None:
    conv = Conv2d(3, 4, 3, padding=1)
    x, weights = torch.randn(images, 3, 6, 6), torch.randn(images, 4, 6, 6).bfloat16()
    results = []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        given = x.bfloat16().requires_grad_()
        conv.zero_grad()
        (conv(given) * weights).sum().backward()
        results.append([given.grad, conv.weight.grad, conv.bias.grad])
    for in_parts, whole in zip(*results, strict=True):
        torch.testing.assert_close(in_parts, whole, rtol=0.01, atol=0.01 * float(whole.abs().max()))
    if images > 1:  # the parts are rounded, their sum is not rounded again
        assert not torch.equal(results[0][1], results[0][1].bfloat16().float())


def test_gradients_in_parts_leave_the_number_of_threads_alone(two_threads: None) -> None:
    single_threads.cache_clear()
    conv = Conv2d(3, 4, 3)
    conv(torch.randn(4, 3, 6, 6).bfloat16()).float().sum().backward()
    assert single_threads.cache_info().currsize == 1
    assert torch.get_num_threads() == 2
    assert list(single_threads(2).map(lambda _: torch.get_num_threads(), range(4))) == [1] * 4
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(torch.get_num_threads).result() == 2


@pytest.mark.parametrize(("kernel", "stride", "padding", "bias"), [(3, 1, 1, False), (3, 2, 1, True), (1, 2, 0, False)])
def test_convolution_in_bfloat16_has_the_gradients_of_float32(
    kernel: int, stride: int, padding: int, bias: bool, two_threads: None
) -> None:
    torch.manual_seed(0)
    conv = Conv2d(3, 4, kernel, stride, padding, bias=bias)
    exact = torch.nn.Conv2d(3, 4, kernel, stride, padding, bias=bias)
    exact.load_state_dict(conv.state_dict())
    x = torch.randn(8, 3, 7, 7).requires_grad_()
    results = []
    for layer, low in ((conv, True), (exact, False)):
        x.grad = None
        dtype = torch.bfloat16 if low else torch.float32
        y = layer(x.to(dtype))
        assert y.dtype == dtype
        (y.float() * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        results.append([y.detach().float(), x.grad, *(p.grad for p in layer.parameters())])
    for got, expected in zip(*results, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))


def test_ranks_of_the_vggs_features_do_not_tie_in_bfloat16() -> None:
    net = small_net("vgg", 32, 1, width=64)
    net.precision = torch.bfloat16
    net.train()
    top = net.features((pictures(128, 32, 1) < 0.2).float()).topk(6).values
    assert (top[:, 4] == top[:, 5]).float().mean() < 0.02
    rounded = top.bfloat16()  # as they would come out of a last block in bfloat16
    assert (rounded[:, 4] == rounded[:, 5]).float().mean() > 0.05
