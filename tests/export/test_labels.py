"""Labels for COCO, FiftyOne and Label Studio, checked by hand against what these tools read."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from pycocotools.coco import COCO

from autonovel.api.run import Run, load
from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.export import export
from tests.export.conftest import edit

FOUND = {"new 0", "grey heron", "not a class", "1"}


def test_coco(run: Run, tmp_path: Path) -> None:
    edit(run)
    file = export(run, tmp_path / "coco", format="coco")
    assert file == tmp_path / "coco" / "labels.json"
    coco = json.loads(file.read_text())
    assert set(coco) == {"info", "licenses", "images", "categories", "annotations"}
    categories = {entry["id"]: entry for entry in coco["categories"]}
    assert [entry["name"] for entry in coco["categories"]] == [*run.classes, "not a class"]
    assert {entry["name"]: entry["supercategory"] for entry in coco["categories"]} == {
        **dict.fromkeys("01234", "known"), "new 0": "new", "grey heron": "new", "not a class": "not a class",
    }  # fmt: skip
    images = {entry["id"]: entry for entry in coco["images"]}
    assert len(images) == len(coco["images"]) == len(coco["annotations"]) == len(run.predictions)
    sources = {record.path: record.source for record in run.images}
    for note, prediction in zip(coco["annotations"], run.predictions, strict=True):
        image = images[note["image_id"]]
        assert categories[note["category_id"]]["name"] == prediction.name
        assert note["score"] == prediction.probability
        assert (image["width"], image["height"]) == Image.open(image["source"]).size
        assert sources[image["file_name"]] == image["source"]
    assert {categories[note["category_id"]]["name"] for note in coco["annotations"]} == FOUND
    read = COCO(file)
    [heron] = read.getCatIds(catNms="grey heron")
    of_class = {image["file_name"] for image in read.loadImgs(read.getImgIds(catIds=[heron]))}
    paths = {record.image: record.path for record in run.images}
    assert of_class == {paths[p.image] for p in run.predictions if p.name == "grey heron"}
    assert len(read.getAnnIds(catIds=[heron])) == len(of_class) > 0


def test_coco_of_all_images_without_files(run: Run, tmp_path: Path) -> None:
    run.write_images(record._replace(source="/nowhere.png") for record in run.images)
    coco = json.loads(export(load(run.path), tmp_path / "mine.json", format="coco", all=True).read_text())
    assert len(coco["images"]) == len(run.images)
    assert all("width" not in image for image in coco["images"])
    assert sum("score" in note for note in coco["annotations"]) == len(run.predictions)


def test_cvat(run: Run, tmp_path: Path) -> None:
    edit(run)
    file = export(run, tmp_path / "cvat", format="cvat", all=True)
    assert file == tmp_path / "cvat" / "annotations.xml"
    root = ElementTree.parse(file).getroot()
    assert root.findtext("version") == "1.1"
    assert [label.findtext("name") for label in root.iterfind("meta/task/labels/label")] == [
        *run.classes,
        "not a class",
    ]
    images = root.findall("image")
    assert [image.get("name") for image in images] == [record.path for record in run.images]
    assert len({image.get("id") for image in images}) == len(images)
    answers = {p.image: p.name for p in run.predictions}
    for image, record in zip(images, run.images, strict=True):
        [tag] = image
        found = record.label is None
        assert tag.get("label") == (answers[record.image] if found else record.label)
        assert tag.get("source") == ("auto" if found else "manual")
        assert (int(image.get("width", 0)), int(image.get("height", 0))) == Image.open(record.source).size


def test_fiftyone(run: Run, tmp_path: Path) -> None:
    edit(run)
    out = export(run, tmp_path / "fiftyone", format="fiftyone", all=True)
    assert {path.name for path in out.iterdir()} == {"data.json", "labels.json"}  # "data" would be taken for the images
    labels, data = json.loads((out / "labels.json").read_text()), json.loads((out / "data.json").read_text())
    assert set(labels) == {"classes", "labels"}
    assert labels["labels"].keys() == data.keys()
    assert all("." not in key and "/" not in key for key in data)  # FiftyOne cuts off what looks like a suffix
    assert [data[key] for key in sorted(data)] == [record.source for record in run.images]
    assert labels["classes"] == [*run.classes, "not a class"]
    answers = {p.image: p for p in run.predictions}
    for key, record in zip(sorted(data), run.images, strict=True):
        label = labels["labels"][key]
        assert label["label"] in labels["classes"]
        assert label["attributes"]["image"] == record.image
        if record.label is None:
            assert (label["label"], label["confidence"]) == (
                answers[record.image].name,
                answers[record.image].probability,
            )
        else:
            assert label["label"] == record.label
            assert "confidence" not in label


def test_label_studio(own: Run, tmp_path: Path) -> None:
    records = own.images
    odd = tmp_path / "photos" / "a b&c#ü?.png"
    Path(records[int(own.unlabelled[0])].source).rename(odd)
    records[int(own.unlabelled[0])] = records[int(own.unlabelled[0])]._replace(source=str(odd))
    own.write_images(records)
    run = edit(load(own.path))
    run.name(0, '<"&>')
    out = export(run, tmp_path / "studio", format="label-studio", all=True)
    tasks = json.loads((out / "tasks.json").read_text())
    config = ElementTree.parse(out / "config.xml").getroot()
    choices, image = config.find("Choices"), config.find("Image")
    assert choices is not None
    assert image is not None
    assert [choice.get("value") for choice in choices] == [*run.classes, "not a class"]
    root = tmp_path / "photos"
    assert str(root) in (out / "README.txt").read_text()
    answers = {p.image: p for p in run.predictions}
    for task, record in zip(tasks, run.images, strict=True):
        url = urlsplit(task["data"][image.get("value", "").removeprefix("$")])
        assert (url.scheme, url.netloc, url.path, url.fragment) == ("", "", "/data/local-files/", "")
        assert root / parse_qs(url.query)["d"][0] == Path(record.source)
        if record.label is None:
            [prediction] = task["predictions"]
            assert prediction["score"] == answers[record.image].probability
            name, result = answers[record.image].name, prediction["result"]
        else:
            name, result = record.label, task["annotations"][0]["result"]
            assert "predictions" not in task
        assert result == [
            {
                "from_name": choices.get("name"),
                "to_name": image.get("name"),
                "type": "choices",
                "value": {"choices": [name]},
            }
        ]


@pytest.mark.parametrize("format", ["fiftyone", "label-studio"])
def test_images_without_a_file_are_written(run: Run, tmp_path: Path, format: str) -> None:
    run.write_images(record._replace(source="") for record in run.images)
    with pytest.warns(AutonovelWarning, match="from the thumbnails"):
        out = export(load(run.path), tmp_path / "out", format=format)
    assert len(list((out / "images").iterdir())) == len(run.predictions)
    if format == "fiftyone":
        found = list(json.loads((out / "data.json").read_text()).values())
    else:
        tasks = json.loads((out / "tasks.json").read_text())
        found = [str(out / "images" / parse_qs(urlsplit(task["data"]["image"]).query)["d"][0]) for task in tasks]
    assert all(Image.open(path).size == (8, 8) for path in found)
    assert len(set(found)) == len(run.predictions)
    for name in ("checksums.sha256", "thumbnails/index.json"):
        (run.path / name).unlink()
    with pytest.raises(InputError, match="nothing to show; export the classes as csv"):
        export(load(run.path), tmp_path / "again", format=format)
    assert not (tmp_path / "again").exists()
    with pytest.raises(InputError, match="is not empty"):
        export(run, out, format=format)
