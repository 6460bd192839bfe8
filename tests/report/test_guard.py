"""Who gets into the page: a token works once and stands where nobody else can read it; a connection must be quick."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from autonovel.api.run import Run, load
from autonovel.report import server
from autonovel.report.connections import impatient_protocol
from autonovel.report.server import Site
from tests.report.client import PATIENCE, Client


def test_an_address_opens_the_page_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    url = site.url
    first, second = Client(url), Client(url)
    assert first.enter().status == 200
    refused = second.send("GET", second.entrance)
    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert "has just printed another" in refused.json["message"]
    assert first.get("/api/run").status == 200
    # who opened the page before may reload it, whatever stands in the address
    assert first.send("GET", first.entrance, Cookie=first.cookie).status == 200
    printed = next(word for word in capsys.readouterr().out.split() if word.startswith("http"))
    third = Client(printed)
    assert third.enter().status == 200
    assert third.get("/api/run").status == 200


def test_of_many_who_show_a_token_at_once_one_gets_in(site: Site) -> None:
    url = site.url
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: Client(url).send("GET", urlsplit(url).path).status, range(8)))
    assert sorted(answers) == [200] + 7 * [403]


def test_who_is_refused_gets_no_cookie_and_uses_up_no_token(site: Site) -> None:
    client = Client(site.url)
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Purpose": "prefetch"}):
        answer = client.send("GET", client.entrance, **headers)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
    assert client.send("HEAD", client.entrance).status == 403
    assert client.enter().status == 200


OPEN = """
import sys
from autonovel.report.server import serve
from autonovel.api.run import load
serve(load(sys.argv[1]))
"""
BROWSER = """#!/bin/sh
printf '%s\\n' "$@" > "$SEEN.part"
mv "$SEEN.part" "$SEEN"
"""


def test_the_browser_is_led_in_by_a_file_that_nobody_else_can_read(run: Run, tmp_path: Path) -> None:
    seen, browser = tmp_path / "seen", tmp_path / "browser.sh"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, run.path],
        env={**os.environ, "BROWSER": f"{browser} %s", "SEEN": str(seen)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = process.stdout.readline().split()
        deadline = time.monotonic() + PATIENCE
        while not seen.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        given = seen.read_text().strip()
        assert given.startswith("file:///")
        file = Path(unquote(urlsplit(given).path))
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        url = file.read_text().partition("url=")[2].partition('"')[0]
        assert url not in printed
        client = Client(url)
        assert client.enter().status == 200
        assert client.get("/api/run").status == 200
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def impatient(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(server, "impatient_protocol", lambda: impatient_protocol(patience=0.3, at_once=20))
    with Site(run) as site:
        client = Client(site.url)
        client.enter()
        yield client


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HT",
        b"POST /api/edit HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {cookie}\r\nContent-Length: 9\r\n\r\n{",
        b"GET /static/icon.svg HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n|GET / HT",
    ],
    ids=["nothing", "half a head", "half a body", "half a second request"],
)
def test_a_connection_that_says_no_more_is_closed(impatient: Client, said: bytes) -> None:
    host = f"{impatient.host}:{impatient.port}".encode()
    with socket.create_connection((impatient.host, impatient.port), timeout=PATIENCE) as connection:
        for part in said.replace(b"{host}", host).replace(b"{cookie}", impatient.cookie.encode()).split(b"|"):
            connection.sendall(part)
            time.sleep(0.1)
        while connection.recv(2**16):
            pass  # until it is closed
    assert impatient.get("/api/run").status == 200


def test_many_open_connections_keep_nobody_out_for_long(impatient: Client) -> None:
    held = [socket.create_connection((impatient.host, impatient.port)) for _ in range(60)]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            assert impatient.get("/api/run").status == 200
            break
        except OSError:
            assert time.monotonic() < deadline
    for connection in held:
        connection.close()


def test_a_page_that_is_open_for_reading_changes_nothing(run: Run) -> None:
    with Site(run, read_only=True) as site:
        client = Client(site.url)
        client.enter()
        assert client.get("/api/run").status == 200
        answer = client.edit(do="name", cluster=0, name="heron", after=0)
        assert answer.status == 403
        assert "reading only" in answer.json["message"]
    assert load(run.path).edits == []


def test_a_change_that_only_wants_to_hurt_is_refused_with_a_sentence(client: Client, run: Run) -> None:
    for body in (
        b"[" * 200_000,
        b'{"do":' * 50_000,
        b'{"do": "undo", "after": ' + b"9" * 5_000 + b"}",
        b'{"do": "name", "cluster": ' + b"9" * 4_000 + b', "name": "x", "after": 0}',
        b'{"do": "regroup", "k": ' + b"9" * 4_000 + b', "after": 0}',
        b'{"do": "move", "images": [' + b"9" * 4_000 + b'], "to": 0, "after": 0}',
        json.dumps({"do": "name", "cluster": 0, "name": "\ud800", "after": 0}).encode(),
    ):
        answer = client.send("POST", "/api/edit", body, Cookie=client.cookie, Origin=client.origin)
        assert answer.status in (400, 409), body[:40]
        assert answer.json["message"].endswith(".")
    assert load(run.path).edits == []


def test_a_number_that_is_none_leads_nowhere(client: Client) -> None:
    for path in ("/api/images/{}", "/api/clusters/{}", "/sheets/v/{}.jpg", "/pictures/v/{}.jpg"):
        for number in ("9" * 5_000, "-" + "9" * 19, "1" * 10_000, "%D9%A3", "1_0", "%201", "1e3"):
            assert client.get(path.format(number)).status == 404, (path, number[:20])


def test_a_table_of_a_damaged_journal_is_refused(client: Client, run: Run) -> None:
    (run.path / "edits.jsonl").write_text('nonsense\n{"do": "undo"}\n')
    answer = client.get("/api/export.csv")
    assert answer.status == 400
    assert "edits.jsonl is damaged" in answer.json["message"]
