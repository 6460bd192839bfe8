"""The weights of the whole network in one .safetensors file, with all that is needed to use them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from autonovel.answers.edited import Edited
from autonovel.answers.judge import Judge
from autonovel.base.errors import InputError
from autonovel.export.card import write_card
from autonovel.export.formats import Options, check_folder
from autonovel.export.network import Classifier, Exported, describe, describe_classes, nets_of, network_of
from autonovel.maths.known_space import Space
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net, from_description
from autonovel.runs.files import RunFiles
from autonovel.runs.weights import read_tensors, write_tensors

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

FILE = "model.safetensors"


def write_safetensors(run: Run, to: Path, options: Options) -> Path:
    """Write ``model.safetensors``, ``config.json``, ``classes.json`` and a model card."""
    check_folder(run, to, options)
    exported = network_of(run)
    config = _config(run, exported)
    metadata = {"format": "pt"} | {
        key: json.dumps(config[key], ensure_ascii=False) for key in ("classes", "input", "networks")
    }
    files = RunFiles(to)
    write_tensors(files, FILE, exported.model.state_dict(), metadata)
    files.write_json("config.json", config)
    files.write_json("classes.json", describe_classes(exported.outputs))
    write_card(run, exported, to, FILE)
    return to


def _config(run: Run, exported: Exported) -> dict[str, Any]:
    nets = nets_of(exported.model.net)
    return {
        "library": "autonovel",
        "versions": run.config.get("versions", {}),
        **describe(exported),
        "preprocessing": {
            "scale": 1 / 255,
            "mean": nets[0].mean.flatten().tolist(),
            "std": nets[0].std.flatten().tolist(),
            "inside": True,
        },
        "networks": [net.describe() for net in nets],
        "judge": dict(zip(("least", "power", "doubt"), exported.model.numbers, strict=True)),
        "parts": [[part.output, part.place] for part in exported.outputs.parts],
    }


def read_model(path: str | os.PathLike[str]) -> Classifier:
    """The network from a folder that was exported as safetensors."""
    files = RunFiles(path)
    config = files.read_json("config.json")
    state, _ = read_tensors(files, FILE)
    try:
        nets = [from_description(description) for description in config["networks"]]
        net = _together(nets, state)
        edited = Edited(config["parts"], len(config["classes"]), state.get("edited.middles"))
        space = Space(state["mean"], state["matrix"]) if "mean" in state else None
        judge = Judge(state["centres"], **config["judge"], space=space)
        model = Classifier(net, judge, edited, tuple(config["input"]["shape"][1:]))
        model.load_state_dict(state)
    except (LookupError, TypeError, RuntimeError) as error:
        raise InputError(f"{files.path} holds no exported network ({error}).") from error
    return model


def _together(nets: list[Net], state: dict[str, Tensor]) -> Net | Consensus:
    return nets[0] if len(nets) == 1 else Consensus(nets, torch.empty_like(state["net.numbering"]))
