"""The report as one file."""

from __future__ import annotations

import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.report.charts import Line, line_chart
from autonovel.report.clusters import shown_clusters
from autonovel.report.html import describe_confusion, describe_result, estimate_charts, training_charts, write_report
from autonovel.report.plots import draw_clusters, draw_estimate
from tests.report.made import HOSTILE, large_run


class Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_the_report_stands_alone(run: Run) -> None:
    path = write_report(run)
    assert path == run.path / "report.html"
    page = read(path)
    assert "new, in 5 classes" in page.text
    assert ", 5, was given." in page.text
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
    assert len(page.of("script")) == 2
    assert len(page.of("section")) >= 5 + 3
    headings = page.text
    for heading in ("Most typical", "Most doubtful", "Odd ones out", "Nearest known classes", "Training: losses"):
        assert heading in headings


def test_hostile_names_stay_text(run: Run) -> None:
    name = "</script><script>alert('x')</script>\"&"
    run.name(0, name)
    run.mark(1, "not a class")
    page = read(write_report(run))
    assert len(page.of("script")) == 2
    assert name in page.text
    assert (
        HOSTILE
        in [image.get("title") for image in page.of("img")]
        + json.loads(
            re.search(r'id="map-data">(.*?)</script>', (run.path / "report.html").read_text(), re.S).group(1)  # type: ignore[union-attr]
        )["names"]
    )


def test_edits_show(run: Run) -> None:
    run.name(2, "heron").merge(0, 1)
    page = read(write_report(run))
    assert "heron" in page.text
    assert "new, in 4 classes" in page.text
    assert "after 2 edits by a person" in page.text
    assert "After a person's edits there are 4." in page.text
    run.split(2, 2).undo()
    assert "after 2 edits by a person" in read(write_report(run)).text


def test_the_picture_has_the_present_names_too(run: Run) -> None:
    before = draw_clusters(run).read_bytes()
    assert run.name(2, "heron").report() == run.path / "report.html"
    assert (run.path / "clusters.png").read_bytes() != before


def test_a_notebook_shows_the_clusters_with_pictures_and_present_names(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    display = SimpleNamespace(HTML=str, display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython.display", display)  # type: ignore[arg-type]
    monkeypatch.setattr("autonovel.api.show.in_notebook", lambda: True)
    run.show()
    run.name(2, "<heron>").show()
    assert "&lt;heron&gt;" not in shown[0]
    assert "&lt;heron&gt;" in shown[1]
    assert shown[1].count("<tr>") == 1 + len(run.clusters)
    assert shown[1].count("data:image/jpeg;base64,") > 3 * len(run.clusters)
    assert run.headline in shown[1]
    assert run._repr_html_() == shown[1]


def test_the_map_holds_what_the_run_holds(run: Run) -> None:
    text = write_report(run).read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="map-data">(.*?)</script>', text, re.S).group(1))  # type: ignore[union-attr]
    n = len(run.machine.images)
    assert data["total"] == data["shown"] == n
    assert sum(cluster["size"] for cluster in data["clusters"]) == n
    assert data["names"] == [run.machine.images[row] for row in data["pictures"]]


def test_the_number_is_explained(run: Run) -> None:
    def number(**summary: object) -> str:
        run.write_json("summary.json", {**run.summary, **summary})
        return str(describe_result(run, shown_clusters(run))["number"])

    assert "between 4 and 7" in number(n_new_estimated=5, n_new_interval=[4, 7])
    assert "too few known classes" in number(n_new_estimated=5, n_new_interval=None)
    run.write_json(
        "estimate.json", {"n_new": 5, "interval": None, "note": "Two known classes are not enough.", "curve": {"k": []}}
    )
    assert "Two known classes are not enough." in number()


def test_the_curve_of_the_estimate(run: Run) -> None:
    curve = {"k": [1, 2, 3, 4], "silhouette": [0.1, 0.5, math.nan, 0.3], "accuracy": [0.2, 0.6, 0.5, 0.4]}
    run.write_json("estimate.json", {"n_new": 2, "interval": [1, 3], "method": "paper", "curve": curve})
    page = read(write_report(run))
    assert "Estimate of the number of new classes: silhouette" in page.text
    assert "band" in [rect.get("class") for rect in page.of("rect")]
    with Image.open(draw_estimate(run)) as picture:
        assert picture.size[0] > 400
    run.write_json("estimate.json", {"n_new": 2, "interval": None, "method": "paper", "curve": curve})
    assert "band" not in [rect.get("class") for rect in read(write_report(run)).of("rect")]
    draw_estimate(run)


@pytest.mark.parametrize(("n_known", "word"), [(5, "new classes"), (0, "clusters")])
def test_the_chart_of_the_estimate_calls_what_was_counted_by_its_name(run: Run, n_known: int, word: str) -> None:
    curve = {"k": [1, 2, 3], "silhouette": [0.1, 0.5, 0.3]}
    run.write_json("estimate.json", {"n_new": 2, "interval": None, "method": "judges", "curve": curve})
    run.write_json("summary.json", {**run.summary, "n_known": n_known, "acc_new": 0.5})
    (chart,) = estimate_charts(run)
    assert chart is not None
    assert f"Estimate of the number of {word}: silhouette" in chart.title
    assert chart.x_label == f"number of {word}"
    assert f"accuracy on the {word}" in [fact[0] for fact in describe_result(run, shown_clusters(run))["facts"]]


def test_losses_of_several_networks_are_averaged(run: Run) -> None:
    (chart,) = training_charts(run)
    assert chart is not None
    assert [name for name, _ in chart.paths] == ["new", "over"]
    assert "“joint”" in chart.title


def test_confusion_names_its_rows(run: Run) -> None:
    assert describe_confusion(run) is None
    summary = {**run.summary, "confusion": [[9, 1], [0, 5]], "matched": {"1": ["a", 9], "0": ["b", 5]}}
    run.write_json("summary.json", {**summary, "acc_new": 14 / 15})
    found = describe_confusion(run)
    assert found is not None
    assert (found["columns"], [name for name, _ in found["rows"]]) == (["new 1", "new 0"], ["a", "b"])
    assert ("accuracy", "0.933") in found["scores"]
    run.write_json("summary.json", {**summary, "matched": {"1": ["z", 9], "0": ["b", 5]}})  # not in the usual order
    found = describe_confusion(run)
    assert found is not None
    assert [name for name, _ in found["rows"]] == ["row 0", "row 1"]
    run.write_json("summary.json", {**run.summary, "confusion_classes": ["z", "b"]})
    found = describe_confusion(run)
    assert found is not None
    assert [name for name, _ in found["rows"]] == ["z", "b"]
    assert "Against the truth" in read(write_report(run)).text


def test_confusion_of_more_clusters_than_classes(run: Run) -> None:
    table = [[9, 0, 3], [0, 5, 0], [0, 0, 0]]  # as it is kept: square, with a row for no class
    summary = {
        **run.summary,
        "confusion": table,
        "confusion_classes": ["a", "b"],
        "matched": {"1": ["a", 9], "0": ["b", 5]},
    }
    run.write_json("summary.json", summary)
    found = describe_confusion(run)
    assert found is not None
    assert found["columns"] == ["new 1", "new 0", "column 2"]
    assert found["rows"] == [("a", [9, 0, 3]), ("b", [0, 5, 0])]


def test_a_folder_without_pictures_has_a_report_and_no_picture(run: Run) -> None:
    for name in ("checksums.sha256", "images.csv", "thumbnails/index.json"):
        (run.path / name).unlink()
    plain = load(run.path)
    assert not read(plain.report()).of("img")
    with pytest.raises(InputError, match="has no thumbnails"):
        draw_clusters(plain)


def test_twenty_thousand_images_with_the_largest_pictures(tmp_path: Path) -> None:
    run = large_run(tmp_path / "large", 20_000, k=100, pictures=3_000, noise=True)
    assert write_report(run).stat().st_size < 15_000_000


def test_two_hundred_thousand_images(tmp_path: Path) -> None:
    run = large_run(tmp_path / "large", 200_000, k=50)
    path = write_report(run)
    assert path.stat().st_size < 15_000_000
    page = read(path)
    assert "of 200,000 images are shown" in page.text


def test_charts_survive_anything() -> None:
    assert line_chart("t", "x", []) is None
    assert line_chart("t", "x", [Line("a", [1, 2], [math.nan, math.inf])]) is None
    one = line_chart("t", "x", [Line("a", [3], [4.0])])
    assert one is not None
    assert one.paths[0][1].endswith("h0.1")
    gap = line_chart("t", "x", [Line("a", [1, 2, 3, 4], [1, math.nan, 2, 3])], mark=99, band=(0, 2))
    assert gap is not None
    assert gap.paths[0][1].count("M") == 2
    assert gap.mark is None
    assert gap.band is not None
    logarithmic = line_chart("t", "x", [Line("a", list(range(3000)), [0.0, *np.logspace(-3, 3, 2999)])], log=True)
    assert logarithmic is not None
    assert logarithmic.paths[0][1].count("L") < 500


def test_pictures_appear_whole_or_not_at_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    curve = {"k": [2.0, 3.0], "silhouette": [0.1, 0.2]}
    run.write_json("estimate.json", {"n_new": 3, "interval": None, "curve": curve, "method": "silhouette"})

    def cut_off(figure: Figure, file: Path, **options: object) -> None:
        Path(file).write_bytes(b"half of a picture")
        raise KeyboardInterrupt

    for draw in (draw_clusters, draw_estimate):
        before = {entry.name for entry in run.path.iterdir()}
        with monkeypatch.context() as patched:
            patched.setattr(Figure, "savefig", cut_off)
            with pytest.raises(KeyboardInterrupt):
                draw(run)
        assert {entry.name for entry in run.path.iterdir()} == before
        with Image.open(draw(run)) as picture:
            assert picture.format == "PNG"


def test_the_picture_of_the_clusters(run: Run) -> None:
    run.name(0, "$x_")  # no formula
    with Image.open(draw_clusters(run)) as picture:
        plain = np.asarray(picture.convert("RGB")).astype(int)
    assert not (np.abs(plain - (220, 38, 38)).sum(-1) < 12).any()
    run.write_json("summary.json", {**run.summary, "matched": {str(k): ["5", 1] for k in range(5)}})
    with Image.open(draw_clusters(run, ["6"] * len(run.machine.images))) as picture:
        framed = np.asarray(picture.convert("RGB")).astype(int)
    assert (np.abs(framed - (220, 38, 38)).sum(-1) < 12).any()
