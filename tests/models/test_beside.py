"""Networks side by side: each as it is alone, at unit length."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.models.backbones import Backbone, build_backbone, check_name
from autonovel.models.beside import side_by_side
from autonovel.models.feature_store import stream_features
from autonovel.models.net import Net, build, from_weights
from autonovel.models.views import BatchNorm
from autonovel.settings.recipe import Model

pytestmark = pytest.mark.usefixtures("flags_in_messages")

PAIR = "efficientnet-lite1+efficientnet-lite0"


def random_weights(name: str, channels: int = 3) -> Backbone:
    """A backbone whose weights do not come from a package, so that the test runs without one."""
    with seeded(1):
        built = build_backbone(Model(backbone=name), channels=channels, size=32, weights=False)
        for layer in built.blocks.modules():
            if isinstance(layer, BatchNorm):
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.05, 0.2)
    return built


def test_features_are_those_of_each_network_alone_at_unit_length() -> None:
    pair = random_weights(PAIR)
    x = torch.randn(3, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        networks = pair.blocks.eval().pool.networks
        found, alone = pair.blocks(x), [network(x) for network in networks]
    assert found.shape == (3, pair.n_features) == (3, 2 * 1280)
    for part, own in zip(found.split(1280, 1), alone, strict=True):
        assert own.norm(dim=1).min() > 0
        torch.testing.assert_close(part, F.normalize(own))


def test_each_network_sees_pixels_in_its_own_normalisation() -> None:
    """A network that hands on its pixels shows what it sees."""

    class Seen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3))

    class Network(nn.Sequential):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("pool", Seen())

    first, second = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0.1, 0.2, 0.3), (0.2, 0.3, 0.4))
    pixels = torch.rand(4, 3, 6, 6)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in first)
    found = side_by_side([Network(), Network()], [first, second])((pixels - mean) / std)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in second)
    torch.testing.assert_close(found[:, 3:], F.normalize(((pixels - mean) / std).mean((2, 3))), rtol=1e-4, atol=1e-5)


def test_blocks_freeze_the_parameters_of_their_name_in_every_network() -> None:
    net = Net(random_weights(PAIR), 3)
    net.freeze("layer3")
    learns = {name.split(".networks.")[1].split(".")[1]: p.requires_grad for name, p in net.named_parameters()}
    assert learns == {"stem": False, "layer1": False, "layer2": False, "layer3": True, "layer4": True}
    before = copy.deepcopy(net.state_dict())
    net.train()
    net.features(torch.rand(4, 3, 32, 32)).sum().backward()
    for network in net.backbone.pool.networks:
        assert network.stem[1].conv.weight.grad is None
        assert network.layer4[-1].conv.weight.grad.abs().sum() > 0
    frozen = [name for name in before if ".stem." in name]
    assert all(torch.equal(net.state_dict()[name], before[name]) for name in frozen)


def test_what_a_run_keeps_is_restored_without_the_packages() -> None:
    net = Net(random_weights(PAIR), 3, size=32)
    again = from_weights(net.describe(), {name: value.clone() for name, value in net.state_dict().items()})
    images = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    with torch.no_grad():
        x = images.permute(0, 3, 1, 2).float() / 255
        assert torch.equal(again.eval().features(x), net.eval().features(x))


def test_their_features_are_computed_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = random_weights(PAIR)
    pair = Backbone(**{**pair.__dict__, "identity": f"{PAIR} 1"})
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 1), dtype=np.uint8)
    device = torch.device("cpu")
    found = np.concatenate(list(stream_features(pair, images, device=device, cache=tmp_path)))
    with torch.no_grad():
        x = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - 127 / 255) / (128 / 255)
        expected = pair.blocks.eval()(x.expand(-1, 3, -1, -1))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)
    monkeypatch.setattr("autonovel.models.feature_store._Network", None)
    assert np.array_equal(np.concatenate(list(stream_features(pair, images, device=device, cache=tmp_path))), found)


def test_a_file_of_weights_may_have_a_plus_in_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no file .*a\+b\.safetensors"):
        build_backbone(Model(backbone=str(tmp_path / "a+b.safetensors")), channels=3, size=32)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet-lite1+resnet18", "resnet18 cannot stand beside others, only a pre-trained network can"),
        ("efficientnet-lite1+efficientnet-lite1", "names a network twice"),
        ("efficientnet-lite1+", r"There is no backbone ''"),
        ("efficientnet-lite1+efficient-lite2", r"did you mean efficientnet-lite2\?"),
        ("efficientnet-lite1+dinov2", r"did you mean hf:facebook/dinov2-small\?"),
    ],
)
def test_what_cannot_stand_side_by_side(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_name(name)
    with pytest.raises(InputError, match=message):
        build(Model(backbone=name), channels=3, size=32)
