"""Backbones by name: our own, files in other layouts, and what is said where a name or file does not fit."""

import json
import sys
import types
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.models import Net, build
from autonovel.models.backbones import NAMED, build_backbone, check_name, digest
from autonovel.models.foreign import Pretrained
from autonovel.settings.recipe import Model
from autonovel.settings.recipes import Recipe

pytestmark = pytest.mark.usefixtures("flags_in_messages")

OURS = ["resnet18", "resnet18-large", "vgg", "small"]


@pytest.mark.parametrize("name", OURS)
def test_our_own_are_those_of_the_network(name: str) -> None:
    model = Model(backbone=name, width=4)
    with seeded(1):
        built = build_backbone(model, channels=1, size=16)
    with seeded(1):
        net = build(model, channels=1, size=16)
    assert built.n_features == net.n_features
    assert (built.statistics, built.side, built.pretrained, built.identity) == (None, 0, False, "")
    assert digest(built.blocks) == digest(net.backbone)
    assert built.architecture == model


def test_the_digest_sees_every_value() -> None:
    blocks = build_backbone(Model(width=4), channels=3, size=8).blocks
    before = digest(blocks)
    assert digest(blocks) == before
    with torch.no_grad():
        blocks.layer4[1].norm2.running_var[-1] += 1e-3
    assert digest(blocks) != before


# ---- a ResNet-18 of torchvision's layout


def torchvision_state(width: int = 64, inputs: int = 3, kernel: int = 7) -> dict[str, torch.Tensor]:
    """Random weights under the names and with the shapes of torchvision's resnet18."""
    g = torch.Generator().manual_seed(0)
    state: dict[str, torch.Tensor] = {}

    def conv(name: str, inputs: int, outputs: int, kernel: int) -> None:
        state[f"{name}.weight"] = (
            torch.randn(outputs, inputs, kernel, kernel, generator=g) / (inputs * kernel**2) ** 0.5
        )

    def norm(name: str, channels: int) -> None:
        state[f"{name}.weight"] = 0.5 + torch.rand(channels, generator=g)
        state[f"{name}.bias"] = 0.3 * torch.randn(channels, generator=g)
        state[f"{name}.running_mean"] = 0.3 * torch.randn(channels, generator=g)
        state[f"{name}.running_var"] = 0.5 + torch.rand(channels, generator=g)
        state[f"{name}.num_batches_tracked"] = torch.tensor(7)

    conv("conv1", inputs, width, kernel)
    norm("bn1", width)
    before = width
    for layer in range(1, 5):
        after = width << (layer - 1)
        for block in range(2):
            first = before if block == 0 else after
            conv(f"layer{layer}.{block}.conv1", first, after, 3)
            norm(f"layer{layer}.{block}.bn1", after)
            conv(f"layer{layer}.{block}.conv2", after, after, 3)
            norm(f"layer{layer}.{block}.bn2", after)
            if block == 0 and layer > 1:
                conv(f"layer{layer}.0.downsample.0", first, after, 1)
                norm(f"layer{layer}.0.downsample.1", after)
        before = after
    state["fc.weight"], state["fc.bias"] = torch.randn(1000, before, generator=g), torch.zeros(1000)
    return state


def torchvision_forward(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        part = {key: state[f"{name}.{key}"][:, None, None] for key in ("running_mean", "running_var", "weight", "bias")}
        return (x - part["running_mean"]) / (part["running_var"] + 1e-5).sqrt() * part["weight"] + part["bias"]

    x = torch.relu(norm(F.conv2d(x, state["conv1.weight"], None, 2, 3), "bn1"))
    x = F.max_pool2d(x, 3, 2, 1)
    for layer in range(1, 5):
        for block in range(2):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = torch.relu(norm(F.conv2d(x, state[f"{name}.conv1.weight"], None, stride, 1), f"{name}.bn1"))
            y = norm(F.conv2d(y, state[f"{name}.conv2.weight"], None, 1, 1), f"{name}.bn2")
            if f"{name}.downsample.0.weight" in state:
                x = norm(F.conv2d(x, state[f"{name}.downsample.0.weight"], None, stride), f"{name}.downsample.1")
            x = torch.relu(x + y)
    return x.mean((2, 3))


def test_a_resnet18_in_torchvisions_layout(tmp_path: Path) -> None:
    state = torchvision_state()
    save_file(state, tmp_path / "r18.safetensors")
    built = build_backbone(Model(backbone=str(tmp_path / "r18.safetensors")), channels=3, size=64)
    assert isinstance(built.blocks, Pretrained)
    assert (built.n_features, built.side, built.pretrained) == (512, 224, True)
    assert built.statistics == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert built.identity == "r18.safetensors"
    x = torch.randn(2, 3, 64, 49, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = torchvision_forward(state, x)
        assert expected.std() > 0.1
        torch.testing.assert_close(built.blocks.eval()(x), expected, rtol=1e-3, atol=1e-3)
    # what a run keeps is restored without the file
    again = build_backbone(built.architecture, channels=3, size=64, weights=False)
    again.blocks.load_state_dict(built.blocks.state_dict())


def test_other_layouts_are_refused(tmp_path: Path) -> None:
    for number, state in enumerate(
        (
            torchvision_state(kernel=3),
            torchvision_state(width=32),
            {name: value for name, value in torchvision_state().items() if "layer4.1" not in name},
        )
    ):
        file = tmp_path / f"{number}.safetensors"
        save_file(state, file)
        with pytest.raises(InputError, match=r"are not those of a ResNet-18"):
            build_backbone(Model(backbone=str(file)), channels=3, size=64)
    save_file({"some.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"other.safetensors holds neither .* timm:NAME"):
        build_backbone(Model(backbone=str(tmp_path / "other.safetensors")), channels=3, size=64)


# ---- the weights of a run


def write_run(folder: Path, model: Model, channels: int = 3, size: int = 16) -> Net:
    with seeded(2):
        net = build(model, channels=channels, size=size)
    images = torch.randint(0, 256, (20, size, size, channels), dtype=torch.uint8)
    net.set_statistics([images])
    save_file(net.state_dict(), folder / "joint.safetensors")
    recipe = asdict(Recipe(name="mine", model=model))
    config = {"format": 3, "run": {"recipe": recipe, "data": {"shape": [size, size, channels]}}}
    (folder / "config.json").write_text(json.dumps(config))
    return net


@pytest.mark.parametrize("name", OURS)
def test_weights_of_a_run(tmp_path: Path, name: str) -> None:
    net = write_run(tmp_path, Model(backbone=name, width=4)).eval()
    built = build_backbone(Model(backbone=str(tmp_path / "joint.safetensors")), channels=3, size=16)
    assert (built.pretrained, built.side, built.n_features) == (True, 16, net.n_features)
    assert built.identity == f"{tmp_path.name}/joint.safetensors"
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in built.statistics)
    x = torch.rand(3, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(built.blocks.eval()((x - mean) / std), net.features(x))
    names = [[n for n, _ in blocks.named_children()] for blocks in (built.blocks, net.backbone)]
    assert names[0] == names[1]


def test_a_run_that_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "joint.safetensors"
    write_run(tmp_path, Model(backbone="small", width=4), channels=1)
    with pytest.raises(InputError, match=r"was trained on grey images; these have 3 channels"):
        build_backbone(Model(backbone=str(file)), channels=3, size=16)
    with pytest.raises(InputError, match=r"takes images of 16 pixels; set --model.size 16"):
        build_backbone(Model(backbone=str(file)), channels=1, size=32)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"width": 4', '"width": 8'))
    with pytest.raises(InputError, match=r"do not fit the network small"):
        build_backbone(Model(backbone=str(file)), channels=1, size=16)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match=r"config.json of the run cannot be read"):
        build_backbone(Model(backbone=str(file)), channels=1, size=16)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"config.json of the run cannot be read"):
        build_backbone(Model(backbone=str(file)), channels=1, size=16)
    file.write_bytes(b"not a file of weights")
    with pytest.raises(
        InputError, match=r"The weights in .* cannot be read .*; give another file as --model.backbone.$"
    ):
        build_backbone(Model(backbone=str(file)), channels=1, size=16)


def test_weights_like_those_of_a_run_that_are_none(tmp_path: Path) -> None:
    write_run(tmp_path, Model(backbone="small", width=4))
    file = tmp_path / "other.safetensors"
    save_file({"backbone.layer1.0.weight": torch.zeros(1)}, file)
    with pytest.raises(InputError, match=r"The weights in .* do not fit the network small of its config.json"):
        build_backbone(Model(backbone=str(file)), channels=3, size=16)


def test_a_colour_network_takes_grey_images(tmp_path: Path) -> None:
    write_run(tmp_path, Model(backbone="resnet18", width=4), channels=3)
    built = build_backbone(Model(backbone=str(tmp_path / "joint.safetensors")), channels=1, size=16)
    assert len(built.statistics[0]) == 3  # by which normalising makes three channels of one
    mean = torch.tensor(built.statistics[0]).view(1, 3, 1, 1)
    assert built.blocks.eval()(torch.rand(2, 1, 16, 16) - mean).shape == (2, built.n_features)


# ---- names


@pytest.mark.parametrize("name", ["auto", *NAMED, "timm:resnet18", "hf:a/b", "some/file.safetensors"])
def test_names_that_may_be(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet-18", r"no backbone 'resnet-18' \(did you mean resnet18\?\); choose one of resnet18, .*timm:NAME"),
        ("tim:resnet18", r"no backbone 'tim:resnet18'"),
        ("", r"no backbone ''"),
        ("dinov2", r"did you mean hf:facebook/dinov2-small\?"),
        ("facebook/dinov2-base", r"did you mean hf:facebook/dinov2-base\?"),
        ("weights.pth", r"is a pickle, which can run code .* \.safetensors"),
    ],
)
def test_names_that_may_not_be(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_name(name)
    with pytest.raises(InputError, match=says):
        build_backbone(Model(backbone=name), channels=3, size=32)


def test_files_that_are_not_there() -> None:
    with pytest.raises(InputError, match=r"There is no file gone.safetensors"):
        build_backbone(Model(backbone="gone.safetensors"), channels=3, size=32)


@pytest.mark.parametrize(("name", "library"), [("timm:resnet18", "timm"), ("hf:a/b", "transformers")])
def test_libraries_that_are_not_installed(name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{name} needs {library}, .*; run pip install {library}\."):
        build_backbone(Model(backbone=name), channels=3, size=32)


def test_a_download_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(*_: object, **__: object) -> None:
        raise OSError("No connection to the Hub. Please try again.\nDetails follow")

    timm = types.SimpleNamespace(
        is_model=lambda name: name == "resnet18",
        list_models=lambda: ["resnet18"],
        list_pretrained=lambda: [],
        create_model=create_model,
        __version__="1",
    )
    monkeypatch.setitem(sys.modules, "timm", timm)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        build_backbone(Model(backbone="timm:resnet18"), channels=3, size=32)
    assert str(caught.value) == (
        "timm:resnet18 could not be loaded (No connection to the Hub); check the name and that its weights can be "
        "downloaded here."
    )
    with pytest.raises(InputError, match=r"timm 1 has no network 'resnet81' \(did you mean timm:resnet18\?\)"):
        build_backbone(Model(backbone="timm:resnet81"), channels=3, size=32)
