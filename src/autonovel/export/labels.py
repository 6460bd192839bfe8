"""Labels in the files of other tools: COCO, CVAT, FiftyOne, Label Studio. Images stay where they are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from autonovel.base.errors import InputError
from autonovel.base.screen import printable as as_text
from autonovel.data.reading.decode import FORMATS
from autonovel.data.reading.problems import printable
from autonovel.export.formats import Options, check_file, check_folder
from autonovel.export.items import Item, classes_of, items_of
from autonovel.export.names import Namer, safe_name
from autonovel.export.pictures import has_picture, sheet_of, tell, write_picture
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.runs.folder import Run


def write_coco(run: Run, to: Path, options: Options) -> Path:
    """Write ``labels.json``: one annotation per image, of the whole image, without a box."""
    file = check_file(to, "coco", "labels.json", options)
    items = items_of(run, all=options.all)
    classes = classes_of(run, items)
    number = {entry: i for i, entry in enumerate(classes, 1)}
    content = {
        "info": {"description": f"Classes found by autonovel in {len(items)} images"},
        "licenses": [],
        "images": [_coco_image(i, item) for i, item in enumerate(items, 1)],
        "categories": [{"id": i, "name": name, "supercategory": kind} for (name, kind), i in number.items()],
        "annotations": [
            {"id": i, "image_id": i, "category_id": number[item.name, item.kind]}
            | ({} if item.probability is None else {"score": item.probability})
            for i, item in enumerate(items, 1)
        ],
    }
    RunFiles(file.parent).write_json(file.name, content)
    return file


def write_cvat(run: Run, to: Path, options: Options) -> Path:
    """Write ``annotations.xml``, "CVAT for images 1.1": a tag for each image; the labels are those to give a new task."""
    from xml.etree import ElementTree

    file = check_file(to, "cvat", "annotations.xml", options)
    items = items_of(run, all=options.all)
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    labels = ElementTree.SubElement(ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task"), "labels")
    for name, _ in classes_of(run, items):
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = name
        ElementTree.SubElement(label, "type").text = "tag"
    for i, item in enumerate(items):
        size = {key: str(value) for key, value in _measured(item).items()}
        image = ElementTree.SubElement(root, "image", {"id": str(i), "name": as_text(item.path), **size})
        ElementTree.SubElement(image, "tag", {"label": item.name, "source": "manual" if item.labelled else "auto"})
    ElementTree.indent(root)
    with RunFiles(file.parent).whole(file.name) as path:
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    return file


def _coco_image(number: int, item: Item) -> dict[str, Any]:
    return {"id": number, "file_name": item.path, "source": item.source} | _measured(item)


def _measured(item: Item) -> dict[str, int]:
    """Width and height from the head of the file; nothing where it cannot be read."""
    from PIL import Image

    try:
        if not item.source or not item.file.is_file():  # a pipe would never end
            return {}
        with Image.open(item.file, formats=FORMATS) as image:
            return {"width": image.width, "height": image.height}
    except Exception:  # whatever is wrong with a stranger's file
        return {}


def write_fiftyone(run: Run, to: Path, options: Options) -> Path:
    """Write ``labels.json`` and ``data.json``, which tells FiftyOne where every image is."""
    check_folder(run, to, options)
    items = items_of(run, all=options.all)
    where = _files_of(run, items, to)
    width = len(str(len(items)))
    ids = [f"{i:0{width}d}" for i in range(len(items))]
    content = {
        "classes": [name for name, _ in classes_of(run, items)],
        "labels": {key: _fiftyone_label(item) for key, item in zip(ids, items, strict=True)},
    }
    files = RunFiles(to)
    files.write_json("data.json", dict(zip(ids, map(printable, where), strict=True)))
    files.write_json("labels.json", content)
    return to


def _fiftyone_label(item: Item) -> dict[str, Any]:
    sure = {} if item.probability is None else {"confidence": item.probability}
    more = {"image": item.image, "kind": item.kind, "cluster": item.cluster, "unlike": item.unlike}
    return {"label": item.name, **sure, "attributes": more}


def write_label_studio(run: Run, to: Path, options: Options) -> Path:
    """Write ``tasks.json``, the labelling set-up ``config.xml``, and ``README.txt``, which says how to serve the images."""
    check_folder(run, to, options)
    items = items_of(run, all=options.all)
    where = _files_of(run, items, to)
    root = os.path.commonpath([path.parent for path in where]) if where else str(to.absolute())
    tasks = [_task(item, os.path.relpath(path, root)) for item, path in zip(items, where, strict=True)]
    choices = "".join(f"\n    <Choice value={quoteattr(name)}/>" for name, _ in classes_of(run, items))
    files = RunFiles(to)
    files.write_json("tasks.json", tasks)
    with files.whole("config.xml") as path:
        path.write_text(
            '<View>\n  <Image name="image" value="$image"/>\n'
            f'  <Choices name="class" toName="image" choice="single">{choices}\n  </Choices>\n</View>\n',
            encoding="utf-8",
        )
    with files.whole("README.txt") as path:
        path.write_text(_how_to_serve(printable(root)), encoding="utf-8")
    return to


def _task(item: Item, path: str) -> dict[str, Any]:
    result = {"from_name": "class", "to_name": "image", "type": "choices", "value": {"choices": [item.name]}}
    data = {
        "image": f"/data/local-files/?d={quote(os.fsencode(Path(path).as_posix()))}",
        "id": item.image,
        "cluster": item.cluster,
        "unlike": item.unlike,
    }
    if item.labelled:  # a person said so
        return {"data": data, "annotations": [{"result": [result]}]}
    return {
        "data": data,
        "predictions": [{"model_version": "autonovel", "score": item.probability, "result": [result]}],
    }


def _how_to_serve(root: str) -> str:
    return (
        "1. Start Label Studio so that it may show the images:\n\n"
        f"   LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true \\\n"
        f"   LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={shlex.quote(root)} label-studio\n\n"
        "2. Make a project, paste config.xml as its labelling set-up, and add a local storage (Settings, Cloud Storage)\n"
        f"   of the folder {root} or one below it; do not sync it.\n"
        "3. Import tasks.json. The classes that were found are there as predictions.\n"
    )


def _files_of(run: Run, items: Sequence[Item], to: Path) -> list[Path]:
    """The file of every image; images that came from none are written as PNG below the target."""
    pictures = [item for item in items if not item.source]
    for item in pictures:
        if not has_picture(run, item.row):
            raise InputError(
                f"Image {item.image} came from no file and the run has no thumbnail of it, so that there is nothing to "
                "show; export the classes as csv or parquet instead."
            )
    namer, folder = Namer(), to.absolute() / "images"
    (folder if pictures else to).mkdir(parents=True, exist_ok=True)
    files = [i.file if i.source else folder / namer.give(safe_name(i.image, 100) + ".png") for i in items]
    for item, file in sorted(zip(items, files, strict=True), key=lambda pair: sheet_of(run, pair[0])):
        if not item.source:
            write_picture(run, item.row, file)
    tell(len(pictures))
    return files
