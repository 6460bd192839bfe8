"""The server of the page, over real connections: who is refused, what is answered, what is kept."""

from __future__ import annotations

import csv
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.report import clusters
from autonovel.report.guard import HEADERS
from autonovel.report.server import MOST_BYTES, Site
from tests.report.client import Client
from tests.report.made import HOSTILE

READABLE = (
    "/",
    "/api/run",
    "/api/cells",
    "/api/clusters/0",
    "/api/images/0",
    "/api/map",
    "/api/export.csv",
    "/static/main.js",
)


def test_the_page_and_all_that_it_asks_for_is_there(client: Client) -> None:
    for path in READABLE:
        answer = client.get(path)
        assert answer.status == 200, path
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value
    page = client.get("/").body.decode()
    assert "<script" in page
    assert " onclick" not in page
    assert "style=" not in page


@pytest.mark.parametrize("path", READABLE)
def test_without_the_token_nothing_is_answered(site: Site, path: str) -> None:
    stranger = Client(site.url)
    assert stranger.send("GET", path).status == 403
    assert stranger.send("GET", path, Cookie=f"autonovel-{stranger.port}=wrong").status == 403
    assert stranger.send("GET", "/open/wrong").status == 403


def test_the_token_goes_into_a_cookie_that_scripts_and_other_sites_cannot_use(site: Site) -> None:
    client = Client(site.url)
    cookie = client.enter().headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/api/run").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "evil.example:{port}", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_a_foreign_host_is_refused(client: Client, host: str) -> None:
    assert client.send("GET", "/api/run", Cookie=client.cookie, Host=host.format(port=client.port)).status == 403
    assert client.send("GET", client.entrance, Host=host.format(port=client.port)).status == 403


def test_localhost_is_no_foreign_host(client: Client) -> None:
    assert client.send("GET", "/api/run", Cookie=client.cookie, Host=f"localhost:{client.port}").status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://localhost:{port}", None]
)
def test_changes_from_a_foreign_page_are_refused(client: Client, run: Run, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin.format(port=client.port)}
    body = json.dumps({"do": "name", "cluster": 0, "name": "heron", "after": 0}).encode()
    assert client.send("POST", "/api/edit", body, Cookie=client.cookie, **headers).status == 403
    if origin is not None:
        assert client.send("GET", "/api/run", Cookie=client.cookie, **headers).status == 403
    assert run.edits == []


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static//etc/passwd",
        "/pictures/v/../../config.json",
        "/pictures/v/..%2f..%2fconfig.json.jpg",
        "/sheets/v/../index.json",
        "/sheets/v/-1.jpg",
        "/sheets/v/99.jpg",
        "/pictures/v/-1.jpg",
        "/pictures/v/1000000.jpg",
        "/pictures/v/99999999999999999999999.jpg",
        "/api/images/1000000",
        "/api/images/-1",
        "/api/clusters/77",
        "/api/clusters/x",
        "/api/clusters/0?order=../../x",
        "/config.json",
    ],
)
def test_paths_that_lead_out_and_unknown_ids_are_refused(client: Client, path: str) -> None:
    assert client.get(path).status in (403, 404)


def test_pictures_are_encoded_anew_and_may_be_kept(client: Client, run: Run) -> None:
    version = client.get("/api/run").json["version"]
    sheet = client.get(f"/sheets/{version}/0.jpg")
    assert sheet.body == run.thumbnails.sheet(0)  # type: ignore[union-attr]
    large = client.get(f"/pictures/{version}/3.jpg")
    with Image.open(io.BytesIO(large.body)) as image:
        assert (image.format, image.size) == ("JPEG", (160, 160))
    for answer in (sheet, large):
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"] == "image/jpeg"


def test_a_picture_whose_file_is_gone_or_bad_comes_from_its_thumbnail(client: Client, run: Run) -> None:
    row = int(run.unlabelled[3])
    with open(run.images[row].source, "wb") as file:
        file.write(b"GIF89a nonsense")
    with Image.open(io.BytesIO(client.get("/pictures/v/3.jpg").body)) as image:
        assert image.size == (64, 64)


def test_a_file_in_a_format_that_is_not_read_comes_from_its_thumbnail_and_starts_no_program(
    client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: started.append(given) or Image.new("RGB", (9, 9)))
    source = Path(run.images[int(run.unlabelled[5])].source)
    before = source.read_bytes()
    source.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n")
    with Image.open(source) as image:
        assert image.format == "EPS"
    try:
        with Image.open(io.BytesIO(client.get("/pictures/v/5.jpg").body)) as image:
            assert image.size == (64, 64)
    finally:
        source.write_bytes(before)
    assert started == []


def test_a_file_with_too_many_pixels_to_be_read_comes_from_its_thumbnail(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "MOST_PIXELS", 160 * 160 - 1)
    with Image.open(io.BytesIO(client.get("/pictures/v/7.jpg").body)) as image:
        assert image.size == (64, 64)


def test_the_cells_lead_to_the_thumbnails(client: Client, run: Run) -> None:
    cells = np.frombuffer(client.get("/api/cells").body, dtype="<i4")
    sheets = client.get("/api/run").json["sheets"]
    assert run.thumbnails is not None
    for row in (0, 7, len(cells) - 1):
        number, cell = divmod(int(cells[row]), sheets["cells"])
        place = (number, cell % sheets["columns"] * 64, cell // sheets["columns"] * 64)
        assert place == run.thumbnails.place(int(run.unlabelled[row]))


def test_images_of_a_cluster_come_in_the_order_asked_for(client: Client, run: Run) -> None:
    probability, typicality = run.machine.probability, run.typicality
    members = set(run.clusters[1].members.tolist())
    answers = {
        order: client.get(f"/api/clusters/1?order={order}").json for order in ("typical", "doubtful", "odd", "file")
    }
    for answer in answers.values():
        assert set(answer["rows"]) == members
        assert answer["names"] == [run.machine.images[row] for row in answer["rows"]]
    assert (np.diff(probability[answers["doubtful"]["rows"]]) >= 0).all()
    assert (np.diff(typicality[answers["typical"]["rows"]]) <= 0).all()
    assert (np.diff(typicality[answers["odd"]["rows"]]) >= 0).all()
    assert answers["file"]["names"] == sorted(answers["file"]["names"])


def test_an_image_and_its_neighbours(client: Client, run: Run) -> None:
    found = client.get("/api/images/5").json
    assert found["name"] == run.machine.images[5]
    assert [other["row"] for other in found["neighbours"]] == run.neighbours(5, 12).tolist()
    assert found["cluster"] == run.predictions[5].name


def test_search_finds_names_and_hostile_ones_come_back_as_they_are(client: Client) -> None:
    found = client.get("/api/search?text=%3CSCRIPT%3E").json
    assert found["names"] == [HOSTILE]
    assert client.get("/api/search?text=").json["total"] == 0


def test_the_map_holds_every_image_once(client: Client, run: Run) -> None:
    content = client.get("/api/map").body
    n = int(np.frombuffer(content[:4], "<i4")[0])
    rows, clusters = (np.frombuffer(content[4 + 4 * n * k : 4 + 4 * n * (k + 1)], "<i4") for k in (0, 3))
    places = np.frombuffer(content[4 + 4 * n : 4 + 12 * n], "<f4")
    assert rows.tolist() == list(range(len(run.machine.images)))
    assert clusters.tolist() == run.machine.group.tolist()
    assert places.min() >= 0
    assert places.max() <= 1


def test_every_change_is_in_the_journal(client: Client, run: Run) -> None:
    state = client.edit(do="name", cluster=0, name="  heron ", after=0).json
    assert state["edits"] == 1
    assert next(c["name"] for c in state["clusters"] if c["number"] == 0) == "heron"
    assert client.edit(do="merge", clusters=[1, 2], after=1).status == 200
    assert client.edit(do="split", cluster=3, into=2, after=2).status == 200
    assert client.edit(do="move", images=[0, 1, 2], to=4, after=3).status == 200
    assert client.edit(do="move", images=[3], to="1", after=4).status == 200
    assert client.edit(do="mark", cluster=4, kind="not a class", after=5).status == 200
    assert client.edit(do="mark", cluster=0, kind="2", after=6).status == 200
    assert client.edit(do="undo", after=7).json["redo"] is True
    assert client.edit(do="redo", after=8).json["redo"] is False
    verbs = ["name", "merge", "split", "move", "move", "mark", "mark", "undo", "redo"]
    assert [entry["do"] for entry in load(run.path).edits] == verbs
    assert client.edit(do="regroup", n_new=3, after=9).status == 200
    number = max(c["number"] for c in client.edit(do="move", to=None, images=[5, 8], after=10).json["clusters"])
    assert load(run.path).state.members[number].tolist() == [5, 8]


def test_two_tabs_do_not_overwrite_each_other(client: Client, run: Run) -> None:
    assert client.edit(do="name", cluster=0, name="heron", after=0).status == 200
    refused = client.edit(do="name", cluster=0, name="stork", after=0)
    assert refused.status == 409
    assert "changed elsewhere" in refused.json["message"]
    assert load(run.path).names == {0: "heron"}


def test_of_many_changes_at_once_one_is_made(client: Client, run: Run) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: client.edit(do="name", cluster=0, name=f"name {n}", after=0).status, range(8))
        )
    assert sorted(answers) == [200] + 7 * [409]
    assert load(run.path).names == {0: f"name {answers.index(200)}"}


def test_a_change_from_the_command_line_shows_on_the_page(client: Client, run: Run) -> None:
    load(run.path).name(2, "egret")
    state = client.get("/api/run").json
    assert state["edits"] == 1
    assert [c["name"] for c in state["clusters"] if c["named"]] == ["egret"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"do": "name"},
        {"do": "name", "cluster": 0, "name": ""},
        {"do": "name", "cluster": 0, "name": None},
        {"do": "name", "cluster": "0", "name": "x"},
        {"do": "name", "cluster": 99, "name": "x"},
        {"do": "name", "cluster": True, "name": "x"},
        {"do": "merge", "clusters": [1]},
        {"do": "merge", "clusters": "12"},
        {"do": "merge", "clusters": [1, 1]},
        {"do": "split", "cluster": 0, "into": 1},
        {"do": "split", "cluster": 0, "into": 10**9},
        {"do": "move", "images": [10**9], "to": 0},
        {"do": "move", "images": ["../../x"], "to": 0},
        {"do": "move", "images": [1]},
        {"do": "move", "images": [], "to": None},
        {"do": "move", "images": [10**9], "to": None},
        {"do": "mark", "cluster": 0, "kind": "nothing known"},
        {"do": "regroup", "n_new": 0},
        {"do": "undo"},
        {"do": "delete"},
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_a_sentence(client: Client, run: Run, change: dict) -> None:
    answer = client.edit(after=0, **change)
    assert answer.status == 400
    assert answer.json["message"].endswith(".")
    assert run.edits == []


def test_a_change_that_is_too_large_is_said_to_be(client: Client, run: Run) -> None:
    answer = client.send("POST", "/api/edit", b" " * (MOST_BYTES + 1), Cookie=client.cookie, Origin=client.origin)
    assert answer.status == 413
    assert "16 MiB" in answer.json["message"]
    assert run.edits == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff\xfe", b'{"do": "name", "cluster": 0, "name": "x"}'])
def test_a_body_that_is_no_change_is_refused(client: Client, run: Run, body: bytes) -> None:
    answer = client.send("POST", "/api/edit", body, Cookie=client.cookie, Origin=client.origin)
    assert answer.status == 400  # the last one does not say which edits its sender has seen
    assert run.edits == []


def test_the_table_holds_the_names_as_they_are_now(client: Client, run: Run) -> None:
    client.edit(do="name", cluster=0, name='he said "heron", twice', after=0)
    answer = client.get("/api/export.csv")
    assert answer.headers["content-disposition"].startswith("attachment")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [row["image"] for row in rows] == list(run.machine.images)
    assert [row["name"] for row in rows] == [p.name for p in load(run.path).predictions]


def test_folders_without_thumbnails_can_be_looked_at(run: Run) -> None:
    for name in ("checksums.sha256", "images.csv", "thumbnails/index.json"):
        (run.path / name).unlink()
    with Site(load(run.path)) as site:
        client = Client(site.url)
        client.enter()
        assert client.get("/api/run").json["sheets"] is None
        assert client.get("/api/images/3").status == 200
        assert client.get("/pictures/v/3.jpg").status == 404
        assert client.get("/sheets/v/0.jpg").status == 404


def test_a_port_in_use_is_named(site: Site, run: Run) -> None:
    port = Client(site.url).port
    with pytest.raises(InputError, match=f"Port {port} cannot be used"):
        Site(run, port)


def test_the_page_needs_no_torch(run: Run) -> None:
    import subprocess
    import sys

    code = "import sys, autonovel.report.server, autonovel.report.html; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
