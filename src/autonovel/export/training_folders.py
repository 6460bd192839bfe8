"""Folders that programs learn from: the imagefolder of Hugging Face, and that of YOLO classification."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autonovel.export.folders import Placed, Wish, by_class, place_images
from autonovel.export.formats import Options
from autonovel.export.items import Item
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

PARTS = 5
"""One image of so many is for validation."""

READ = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""Suffixes that every reader takes for images."""


def write_imagefolder(run: Run, to: Path, options: Options) -> Path:
    """Write ``train`` with the images, by number, and ``metadata.jsonl``, and ``README.md``, a data card."""
    placed = place_images(run, to, options, _numbered)
    with RunFiles(to / "train").whole("metadata.jsonl") as path, path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(_metadata(one)) + "\n" for one in placed)
    with RunFiles(to).whole("README.md") as path:
        path.write_text(_card([one.item for one in placed]), encoding="utf-8")
    return to


def _numbered(items: Sequence[Item], taken: Sequence[str]) -> list[Wish]:
    """The reader takes what looks like "test" in a name for a split, so that the names are numbers."""
    width = len(str(len(items)))
    return [Wish(item, "train", f"{i:0{width}d}{_suffix(item)}") for i, item in enumerate(items)]


def _suffix(item: Item) -> str:
    """That of its file if the reader takes it for an image, else another: what it is, it sees in the file."""
    suffix = item.file.suffix.lower()
    return suffix if suffix in READ else ".png"


def _metadata(placed: Placed) -> dict[str, object]:
    item = placed.item
    return {
        "file_name": placed.file.removeprefix("train/"),
        "label": item.name,
        "kind": item.kind,
        "cluster": item.cluster,
        "probability": item.probability,
        "unlike": item.unlike,
        "id": item.image,  # "image" is the picture itself
    }


def _card(items: Sequence[Item]) -> str:
    from autonovel.export.card import plain

    labelled = sum(item.labelled for item in items)
    counts = Counter((item.name, item.kind) for item in items)
    return "\n".join(
        [
            "---\ntask_categories:\n- image-classification\ntags:\n- novel-category-discovery\n---\n",
            f"# {len(items):,} images sorted by autonovel\n",
            f"{labelled:,} images came with their class. The classes of the other {len(items) - labelled:,} were found by a "
            "machine, and may have been corrected by a person.\n",
            "```python\nfrom datasets import load_dataset\n"
            'images = load_dataset("imagefolder", data_dir="FOLDER", split="train").class_encode_column("label")\n```\n',
            "| column | |\n|---|---|",
            "| `label` | the class; `not a class` where a person said that a cluster is none |",
            "| `kind` | `known`, `new` or `not a class` |",
            "| `cluster` | the number of the cluster; null in a known class |",
            "| `probability` | how sure the machine was; null for images that came with their class |",
            "| `unlike` | whether the image is unlike anything seen |",
            "| `id` | the id of the image in the run |\n",
            "| class | kind | images |\n|---|---|---:|",
            *(f"| {plain(name)} | {kind} | {count:,} |" for (name, kind), count in sorted(counts.items())),
            "",
        ]
    )


def write_yolo(run: Run, to: Path, options: Options) -> Path:
    """Write ``train`` and ``val``, each with one folder per class."""
    place_images(run, to, options, _divided)
    return to


def _divided(items: Sequence[Item], taken: Sequence[str]) -> Iterator[Wish]:
    """A fifth of each class for validation, chosen by the ids: the same images whatever their order.

    Both parts must have every class, for classes are numbered by their folders: a lone image is in both.
    """
    classes = defaultdict[str, list[Wish]](list)
    for wish in by_class(items, ()):
        classes[wish.folder].append(wish)
    for folder, wishes in classes.items():
        wishes.sort(key=lambda wish: hashlib.sha256(wish.item.image.encode(errors="surrogateescape")).digest())
        some = max(1, len(wishes) // PARTS)
        yield from (wish._replace(folder=f"val/{folder}") for wish in wishes[:some])
        yield from (wish._replace(folder=f"train/{folder}") for wish in wishes[some:] or wishes)
