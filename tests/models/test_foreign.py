"""Networks that are not ours inside ours: freezing, modes, precision, size; timm and transformers where they are installed."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from autonovel.base.errors import InputError
from autonovel.models import Net
from autonovel.models.backbones import Backbone, build_backbone
from autonovel.models.foreign import Fit, Foreign, Pretrained, group_names, in_blocks
from autonovel.settings.recipe import Model

pytestmark = pytest.mark.usefixtures("flags_in_messages")


class Stranger(nn.Module):
    """A network whose forward pass is no chain of its children."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, 2, 1)
        self.layer1 = nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.layer2 = nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6))
        self.norm = nn.LayerNorm(6)
        self.unused = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.layer1(x) + x)
        return self.norm(torch.relu(self.layer2(x)).mean((2, 3)))


def call(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return network(x)


def stranger_net(side: int = 0) -> Net:
    torch.manual_seed(0)
    blocks, n_features = in_blocks(Foreign(Stranger(), call, Fit(side)))
    net = Net(Backbone(blocks, n_features), 3)
    net.heads["known"] = nn.Linear(n_features, 2)
    return net


def learning(net: Net) -> set[str]:
    return {name.removeprefix("backbone.pool.network.") for name, p in net.named_parameters() if p.requires_grad}


ALL = {"conv1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "norm"}


@pytest.mark.parametrize(
    ("train_from", "layers"),
    [
        ("all", ALL),
        ("layer3", ALL - {"conv1"}),
        ("layer4", {"layer2.0", "layer2.1", "norm"}),
        ("pool", {"norm"}),
        ("heads", set()),
    ],
)
def test_freezing_by_block(train_from: str, layers: set[str]) -> None:
    net = stranger_net()
    assert [name for name, _ in net.backbone.named_children()] == ["stem", "layer3", "layer4", "pool"]
    net.freeze("all")  # and from there
    net.freeze(train_from)
    net.train()
    expected = {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert learning(net) == expected | {"heads.known.weight", "heads.known.bias"}
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.head("known", net.features(torch.rand(4, 3, 40, 40))).square().sum().backward()
    for name, p in net.named_parameters():
        assert (p.grad is not None) == p.requires_grad, name
    for name, value in net.state_dict().items():  # statistics of what is frozen stay, the others move
        moves = ("running" in name or "tracked" in name) and any(f".{layer}." in name for layer in layers)
        assert torch.equal(value, before[name]) != moves, name


def test_frozen_layers_do_not_go_back_to_training_mode() -> None:
    net = stranger_net()
    network = net.backbone.pool.network
    net.freeze("layer4")
    for _ in range(2):
        net.train()
        assert not network.layer1[1].training
        assert network.layer2[1].training
        net.eval()
        assert not any(module.training for module in net.modules())
    net.freeze("all")
    net.train()
    assert network.layer1[1].training
    assert not network.layer1[2].training  # dropout would take chance that is not the run's own


@pytest.mark.parametrize("train_from", ["all", "layer4"])
def test_views_pass_as_if_each_were_alone(train_from: str) -> None:
    net = stranger_net()
    net.freeze(train_from)
    net.train()
    first, second = torch.rand(2, 5, 3, 36, 36)
    second = second * 3
    alone = copy.deepcopy(net)
    expected = torch.cat([alone.features(first), alone.features(second)])
    torch.testing.assert_close(net.features(torch.cat([first, second]), 2), expected)
    for (name, mine), other in zip(net.named_buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(mine, other, msg=name)


def test_the_network_is_kept_and_loaded_once() -> None:
    net = stranger_net()
    state = net.state_dict()
    own = [name for name in state if name.startswith("backbone.")]
    assert len(own) == len(Stranger().state_dict())
    other = stranger_net()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    other.load_state_dict(state)
    x = torch.rand(2, 3, 33, 33)
    assert torch.equal(net.eval().features(x), other.eval().features(x))
    # a copy freezes itself, not what it was made from
    twin = copy.deepcopy(net)
    twin.freeze("heads")
    assert learning(net) == learning(stranger_net())
    assert learning(twin) == {"heads.known.weight", "heads.known.bias"}


def test_it_computes_in_the_precision_of_the_network() -> None:
    net = stranger_net().eval()
    seen: list[torch.dtype] = []
    net.backbone.pool.network.layer2[0].register_forward_hook(lambda m, i, o: seen.append(o.dtype))
    x = torch.rand(3, 3, 40, 40)
    exact = net.features(x)
    net.precision = torch.bfloat16
    rounded = net.features(x)
    assert seen == [torch.float32, torch.bfloat16]
    assert rounded.dtype == exact.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.1, atol=0.1)
    assert all(p.dtype == torch.float32 for p in net.parameters())
    rounded.sum().backward()  # and gradients come back in float32
    assert net.backbone.pool.network.conv1.weight.grad.dtype == torch.float32


# ---- size and channels


@pytest.mark.parametrize(
    ("fit", "given", "wanted"),
    [
        (Fit(), (40, 50), (40, 50)),
        (Fit(), (20, 50), (32, 50)),
        (Fit(24), (40, 50), (24, 24)),
        (Fit(multiple=14), (40, 224), (42, 224)),
        (Fit(multiple=14), (1, 50), (42, 56)),
    ],
)
def test_images_are_brought_to_size(fit: Fit, given: tuple[int, int], wanted: tuple[int, int]) -> None:
    x = torch.rand(2, 1, *given)
    found = fit(x)
    assert found.shape == (2, 3, *wanted)
    assert torch.equal(found[:, 0], found[:, 2])
    assert fit(x.bfloat16()).dtype == torch.bfloat16
    if given == wanted:
        assert torch.equal(found[:, :1], x)


def test_images_are_made_smaller_without_aliasing() -> None:
    stripes = torch.zeros(1, 3, 64, 64)
    stripes[..., ::2] = 1  # every second pixel: grey, when seen from afar
    assert (Fit(16)(stripes) - 0.5).abs().max() < 0.1


# ---- names of blocks


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["conv1", "bn1", "layer1.0", "layer2.0", "layer3.0", "layer4.0"], "stem stem layer1 layer2 layer3 layer4"),
        (["cls_token", "patch_embed.proj"] + [f"blocks.{i}.norm1" for i in range(12)] + ["norm.bias"], None),
        (["embedder.w", "encoder.stages.0.layers.0.layer.1.w", "encoder.stages.1.layers.0.w"], "stem layer3 layer4"),
        (["features.0.w", "classifier.w"], "stem stem"),
        ([], ""),
    ],
)
def test_parameters_are_grouped_by_the_numbers_in_their_names(names: list[str], expected: str | None) -> None:
    groups = group_names([f"{name}.weight" for name in names])
    assert [name for inside in groups.values() for name in inside] == [
        f"{name}.weight" for name in names
    ]  # in order, nothing lost
    where = {name: block for block, inside in groups.items() for name in inside}
    if expected is None:
        expected = "stem stem " + " ".join(f"layer{1 + i // 3}" for i in range(12)) + " pool"
    assert [where[f"{name}.weight"] for name in names] == expected.split()
    assert {"stem", "pool"} <= set(groups)


# ---- the libraries themselves


def check_in_a_net(built: Backbone, size: int) -> None:
    assert isinstance(built.blocks, Pretrained)
    net = Net(built, 3)
    names = [name for name, _ in net.backbone.named_children()]
    assert names[0] == "stem"
    assert names[-2:] == ["layer4", "pool"]
    x = torch.rand(2, 1, size, size + 8)
    counts = []
    for train_from in ("all", "layer4", "heads"):
        net.freeze(train_from)
        net.train()
        for precision in (torch.float32, torch.bfloat16):
            net.precision = precision
            features = net.features(x)
            assert features.shape == (2, built.n_features)
            assert features.dtype == torch.float32
            assert features.isfinite().all()
        if train_from != "heads":
            features.sum().backward()
        assert all((p.grad is not None) == p.requires_grad for p in net.parameters())
        counts.append(sum(p.requires_grad for p in net.parameters()))
        net.zero_grad(set_to_none=True)
    assert counts[0] > counts[1] > counts[2] == 0


@pytest.mark.parametrize(
    ("name", "side"), [("resnet18", 224), ("vit_tiny_patch16_224", 224), ("mobilenetv3_small_100", 224)]
)
def test_networks_of_timm(name: str, side: int) -> None:
    timm = pytest.importorskip("timm")
    built = build_backbone(Model(backbone=f"timm:{name}"), channels=3, size=48, weights=False)
    assert built.side == side
    own = timm.create_model(name, pretrained=False, num_classes=0, **({"img_size": 48} if "vit" in name else {}))
    if "vit" not in name:  # at another size its position embedding is another one
        own.load_state_dict(built.blocks.pool.network.state_dict())
        x = torch.rand(1, 3, 48, 48)
        torch.testing.assert_close(built.blocks.eval()(x), own.eval()(x))
    check_in_a_net(built, 48)
    with pytest.raises(InputError, match=r"has no network 'resnet81' \(did you mean timm:resnet18\?\)"):
        build_backbone(Model(backbone="timm:resnet81"), channels=3, size=48)


@pytest.mark.parametrize("kind", ["clip", "dinov2", "resnet", "vit"])
def test_networks_of_transformers(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tiny = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    config = {
        "clip": lambda: transformers.CLIPConfig(
            vision_config={**tiny, "image_size": 32, "patch_size": 8}, text_config=tiny
        ),
        "dinov2": lambda: transformers.Dinov2Config(**tiny, image_size=70, patch_size=14),
        "resnet": lambda: transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic"
        ),
        "vit": lambda: transformers.ViTConfig(**tiny, image_size=32, patch_size=8),
    }[kind]()
    whole = transformers.AutoModel.from_config(config)
    whole.save_pretrained(tmp_path)
    side = 56 if kind == "dinov2" else 32
    prepared = {
        "image_mean": [0.4, 0.5, 0.6],
        "image_std": [0.1, 0.2, 0.3],
        "crop_size": {"height": side, "width": side},
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(prepared))
    built = build_backbone(Model(backbone=f"hf:{tmp_path}"), channels=3, size=40)
    assert built.statistics == ((0.4, 0.5, 0.6), (0.1, 0.2, 0.3))
    assert (built.side, built.n_features) == (side, 16)
    x = torch.rand(1, 3, side, side)
    tower = (whole.vision_model if kind == "clip" else whole).eval()
    found = tower(pixel_values=x)
    expected = found.last_hidden_state[:, 0] if kind == "vit" else found.pooler_output.flatten(1)
    torch.testing.assert_close(built.blocks.eval()(x), expected)
    check_in_a_net(built, 40)
