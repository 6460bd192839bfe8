"""The model card: what a network tells, what it was trained on, and what it cannot do."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autonovel.runs.classes import Outputs
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.export.network import Exported
    from autonovel.runs.folder import Run

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$-])")

USE = {
    "model.safetensors": """```python
from autonovel.export.weights import read_model

model = read_model(".")                      # this folder
said = model(images)                         # uint8 tensor {shape}
said.probabilities, said.features
```""",
    "model.onnx": """```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
probabilities, probabilities_new, features = session.run(None, {{"images": images}})      # uint8 array {shape}
```""",
    "model.pt2": """```python
import torch

model = torch.export.load("model.pt2").module()
probabilities, probabilities_new, features = model(images)      # uint8 tensor {shape}
```""",
}
"""How each kind of file is used."""


def write_card(run: Run, exported: Exported, to: Path, file: str) -> None:
    """Write README.md."""
    with RunFiles(to).whole("README.md") as path:
        path.write_text(card(run, exported, file), encoding="utf-8")


def card(run: Run, exported: Exported, file: str) -> str:
    """The text of the card."""
    outputs, shape = exported.outputs, exported.shape
    parts = [
        "---\nlibrary_name: autonovel\npipeline_tag: image-classification\ntags:\n- novel-category-discovery\n---\n",
        f"# Image classes found by autonovel\n\n{_opening(run, outputs)}\n",
        f"## Use\n\n{USE[file].format(shape=f'(n, {shape[0]}, {shape[1]}, {shape[2]})')}\n\n{_inputs(shape)}\n",
        f"## Classes\n\n{_classes(run, outputs)}\n",
        f"## Training\n\n{_training(run)}\n",
        f"## Scores\n\n{_scores(run)}\n",
        f"## Limits\n\n{_limits(run, exported)}\n",
    ]
    return "\n".join(parts)


def _opening(run: Run, outputs: Outputs) -> str:
    known = sum(c.kind == "known" for c in outputs.classes)
    new = sum(c.kind == "new" for c in outputs.classes)
    if not known:
        return (
            f"A network that tells {new} {run.kind_found(new)} of images apart. "
            "They were found in unlabelled images alone."
        )
    return (
        f"A network that tells {known} known and {new} new classes of images apart. The new classes were discovered in "
        "unlabelled images, using what is known about labelled ones."
    )


def _inputs(shape: tuple[int, int, int]) -> str:
    colours = "red, green and blue" if shape[2] == 3 else "grey"
    return (
        f"Input: {colours} pixels, 0 to 255, resized to {shape[0]} x {shape[1]} (bilinear, antialiased); scaling and "
        "normalisation are inside. `probabilities` are over all classes in the order of `classes.json`; `probabilities_new` "
        "hold if an image can only be of a new class, as in a pile without known classes; `features` are the vectors "
        "behind them."
    )


def _classes(run: Run, outputs: Outputs) -> str:
    counts = Counter((p.known, p.name) for p in run.predictions)
    lines = ["| place | class | kind | unlabelled images in it |", "|---:|---|---|---:|"]
    for place, c in enumerate(outputs.classes):
        lines.append(f"| {place} | {_plain(c.name)} | {c.kind} | {counts[c.kind == 'known', c.name]} |")
    return "\n".join(lines)


def _training(run: Run) -> str:
    summary, config = run.summary, run.config
    images = summary.get("images", {})
    labelled = images.get("labelled", images.get("known", "?"))
    found = summary.get("n_new_estimated")
    number = f"estimated as {found}" if found is not None else "given"
    recipe = config.get("run", {}).get("recipe", {})
    networks = recipe.get("model", {}).get("networks", 1)
    lines = [
        f"- {labelled} labelled images of {summary.get('n_known', '?')} known classes and "
        f"{images.get('unlabelled', '?')} unlabelled images",
        f"- the number of {run.kind_found()} was {number}",
        f"- recipe {_plain(summary.get('recipe', '?'))}, preset {_plain(summary.get('preset', '?'))}, "
        f"seed {summary.get('seed', '?')}{f', {networks} networks that answer as one' if networks > 1 else ''}",
        f"- trained on {_plain(summary.get('device', '?'))}{_took(summary)}",
        f"- made with {', '.join(f'{_plain(k)} {_plain(v)}' for k, v in config.get('versions', {}).items()) or '?'}",
    ]
    return "\n".join(lines)


def _took(summary: dict[str, Any]) -> str:
    total = summary.get("seconds", {}).get("total")
    return "" if total is None else f" in {total:,.0f} seconds"


def _scores(run: Run) -> str:
    summary = run.summary
    if summary.get("acc_new") is None:
        return "The true classes of the unlabelled images are not known, so there is no score."
    scores = {"acc_new": "ACC", "nmi_new": "NMI", "ari_new": "ARI"}
    shown = ", ".join(f"{name} {summary[key]:.1%}" for key, name in scores.items() if summary.get(key) is not None)
    edited = " They are those of the clusters as they were found, before a person changed them." if run.edits else ""
    return (
        f"On the unlabelled images the network was trained on, clusters matched to the true classes: {shown}.{edited}"
    )


def _limits(run: Run, exported: Exported) -> str:
    outputs = exported.outputs
    lines = [
        "- Every image gets one of these classes, also one that shows something else.",
        "- New classes are groups of images that look alike to the network; that they are what their names say is the "
        "judgement of the person who named them.",
        "- The probabilities were at best adjusted to the images of the run, and not checked on images from elsewhere.",
    ]
    if not exported.tells_known:
        lines.append("- It has not learned the known classes, and gives them no probability.")
    if run.edits:
        lines.append(
            f"- A person corrected the result. Names, merged classes and marks are in the network's outputs; single images "
            f"that were moved and classes that were split are not. It still says the corrected class for "
            f"{outputs.agreement:.1%} of the unlabelled images."
        )
    if outputs.silent:
        lines.append(
            f"- These classes were made by hand and get no probability: {', '.join(map(_plain, outputs.silent))}."
        )
    return "\n".join(lines)


def _plain(text: object) -> str:
    """Text that no Markdown reader takes for markup."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))
