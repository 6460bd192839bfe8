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
    "model.safetensors": """import torch
from autonovel.export.weights import read_model

model = read_model(".")                      # this folder
with torch.no_grad():
    probabilities, probabilities_new, features, unlike = model(torch.from_numpy(images))""",
    "model.onnx": """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
probabilities, probabilities_new, features, unlike = session.run(None, {"images": images})""",
    "model.pt2": """import torch

model = torch.export.load("model.pt2").module()
with torch.no_grad():
    probabilities, probabilities_new, features, unlike = model(torch.from_numpy(images))""",
}
"""How each kind of file is used, on ``images``."""

PREPARE = """import json
import numpy as np
from PIL import Image, ImageOps

def prepare(path):
    image = Image.open(path)
    image.draft("{mode}", ({side}, {side}))                             # quick reading of large JPEG files
    image = ImageOps.exif_transpose(image)
    if "transparency" in image.info or image.mode not in ("RGB", "L"):  # what is transparent becomes white
        image = image.convert("RGBA")
    (width, height), short = image.size, min(image.size)
    crop = max(image.size) <= 2 * short                                 # a longer one is squeezed
    left, top = ((width - short) / 2, (height - short) / 2) if crop else (0, 0)
    box = (left, top, width - left, height - top)
    image = image.resize(({side}, {side}), Image.Resampling.BILINEAR, box, reducing_gap=3.0)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("{mode}")).reshape({side}, {side}, {channels})

paths = ["one.jpg", "another.jpg"]
images = np.stack([prepare(path) for path in paths])                    # uint8 (n, {side}, {side}, {channels})
"""
"""From files to ``images``, exactly as a run reads them."""

ANSWER = """
classes = json.load(open("classes.json", encoding="utf-8"))
for path, row, strange in zip(paths, np.asarray({answer}), np.asarray(unlike)):
    print(path, classes[row.argmax()]["name"], row.max(), "unlike anything seen" if strange else "")
"""


def write_card(run: Run, exported: Exported, to: Path, file: str) -> None:
    """Write README.md."""
    with RunFiles(to).whole("README.md") as path:
        path.write_text(card(run, exported, file), encoding="utf-8")


def card(run: Run, exported: Exported, file: str) -> str:
    """The text of the card."""
    outputs = exported.outputs
    parts = [
        "---\nlibrary_name: autonovel\npipeline_tag: image-classification\ntags:\n- novel-category-discovery\n---\n",
        f"# Image classes found by autonovel\n\n{_opening(run, outputs)}\n",
        f"## Use\n\n{_use(exported, file)}\n",
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


def _use(exported: Exported, file: str) -> str:
    height, width, channels = exported.shape
    answer = "probabilities" if exported.mixed else "probabilities_new"
    colours = "red, green and blue" if channels == 3 else "grey"
    square = height == width
    values = {"side": height, "channels": channels, "mode": "RGB" if channels == 3 else "L"}
    prepare = PREPARE.format(**values) if square else "import json\nimport numpy as np\n"
    code = f"```python\n{prepare}\n{USE[file]}\n{ANSWER.format(answer=answer)}```"
    needs = "" if square else " `paths` and `images` are yours: the run was given pixels of this size, not files."
    why = (
        "the images that it was made of were of known and new classes"
        if exported.mixed
        else "the images that it was made of seemed to be of new classes alone; take `probabilities` where yours may be of "
        "known ones too"
    )
    return (
        f"{code}\n\nInput: {colours} pixels, 0 to 255, of {height} x {width};{needs} scaling, any further change of size and "
        "normalisation are inside. `probabilities` are over all classes in the order of `classes.json`; `probabilities_new` "
        "hold if an image can only be of a new class; `features` are the vectors behind them; `unlike` says which images are "
        f"unlike anything that the run has seen. The answer is the class with the largest of `{answer}`, because {why}. So "
        "answers `autonovel predict` for images that took no part in the run; only of a batch in which many images belong to "
        "none of the classes does it lower the probabilities, which no image alone can tell."
    )


def _classes(run: Run, outputs: Outputs) -> str:
    counts = Counter((p.known, p.name) for p in run.predictions)
    lines = ["| place | class | kind | unlabelled images in it |", "|---:|---|---|---:|"]
    for place, c in enumerate(outputs.classes):
        lines.append(f"| {place} | {plain(c.name)} | {c.kind} | {counts[c.kind == 'known', c.name]} |")
    return "\n".join(lines)


def _training(run: Run) -> str:
    summary, config = run.summary, run.config
    images = summary.get("images", {})
    labelled = images.get("labelled", images.get("known", "?"))
    estimated = summary.get("n_new_estimated")
    number = f"estimated as {estimated}" if estimated is not None else "given"
    recipe = config.get("run", {}).get("recipe", {})
    networks = recipe.get("model", {}).get("networks", 1)
    lines = [
        f"- {labelled} labelled images of {summary.get('n_known', '?')} known classes and "
        f"{images.get('unlabelled', '?')} unlabelled images",
        f"- the number of {run.kind_found()} was {number}",
        f"- recipe {plain(summary.get('recipe', '?'))}, preset {plain(summary.get('preset', '?'))}, "
        f"seed {summary.get('seed', '?')}{f', {networks} networks that answer as one' if networks > 1 else ''}",
        f"- trained on {plain(summary.get('device', '?'))}{_took(summary)}",
        f"- made with {', '.join(f'{plain(k)} {plain(v)}' for k, v in config.get('versions', {}).items()) or '?'}",
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
            f"- These classes were made by hand and get no probability: {', '.join(map(plain, outputs.silent))}."
        )
    return "\n".join(lines)


def plain(text: object) -> str:
    """Text that no Markdown reader takes for markup."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))
