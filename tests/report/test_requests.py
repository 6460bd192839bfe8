"""Every address of the page, by every method, host, origin, cookie, size and encoding: who may, and who may not."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from typing import Any, NamedTuple

import pytest

from autonovel.api.run import Run, load
from autonovel.report.guard import HEADERS, Guard
from autonovel.report.server import make_app
from autonovel.report.session import Session

PORT = 8765
HOME = f"127.0.0.1:{PORT}"
PATHS = (
    "/", "/api/run", "/api/cells", "/api/clusters/0", "/api/clusters/-1", "/api/images/0", "/api/search?text=a", "/api/map",
    "/api/clusters/0/alike", "/api/suggestions", "/api/unlike",
    "/api/export.csv", "/api/edit", "/sheets/v/0.jpg", "/pictures/v/0.jpg", "/static/main.js", "/static/../server.py",
    "/open/guessed", "/openapi.json", "//api/run", "/api/images/%00", "/\u00e9",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "X")
HOSTS = (HOME, f"localhost:{PORT}", "evil.example", f"{HOME}.evil.example", "", f"{HOME}@evil.example", "127.0.0.1")
ORIGINS = (None, f"http://{HOME}", f"http://localhost:{PORT}", "http://evil.example", "null", "", f"https://{HOME}")
COOKIES = ("right", "wrong", "none", "odd")


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def ask(app: Any, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Reply:
    """One request, straight to the application: without a socket there are thousands in a second."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "scheme": "http", "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
    }  # fmt: skip
    sent: list[Any] = []
    parts = iter([{"type": "http.request", "body": body[:1000], "more_body": True},
                  {"type": "http.request", "body": body[1000:], "more_body": False}])  # fmt: skip

    async def receive() -> Any:
        return next(parts, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    found = {name.decode().lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


@pytest.fixture
def guard(run: Run) -> Guard:
    return Guard(make_app(Session(run)), PORT)


def cookie_of(guard: Guard) -> str:
    answer = ask(guard, "GET", guard.entrance(), {"Host": HOME})
    assert answer.status == 200
    return answer.headers["set-cookie"].partition(";")[0]


def test_nobody_gets_in_who_may_not_and_everybody_gets_an_answer(guard: Guard, run: Run) -> None:
    right = cookie_of(guard)
    said = {"right": right, "wrong": f"autonovel-{PORT}=wrong", "none": "", "odd": '=;;"\\'}
    rename = json.dumps({"do": "name", "cluster": 0, "name": "heron", "after": -1}).encode()
    every = list(itertools.product(PATHS, METHODS, HOSTS, ORIGINS, COOKIES))
    chance = random.Random(0)
    refused = answered = 0
    for path, method, host, origin, cookie in chance.sample(every, 1500):
        headers = {"Host": host, "Cookie": said[cookie]} | ({} if origin is None else {"Origin": origin})
        answer = ask(guard, method, path, headers, rename if method != "GET" else b"")
        from_home = host in HOSTS[:2] and origin in (None, f"http://{host}")
        may = from_home and (origin is not None or method in ("GET", "HEAD")) and cookie == "right"
        assert (answer.status == 403) == (not may), (path, method, host, origin, cookie, answer)
        assert answer.status < 500, (path, method, answer)
        assert all(answer.headers[name.lower()] == value for name, value in HEADERS.items())
        assert "set-cookie" not in answer.headers
        refused, answered = refused + (not may), answered + may
    assert refused > 1000
    assert answered > 10
    assert load(run.path).edits == []


def test_a_person_who_mistypes_an_address_gets_a_page(guard: Guard) -> None:
    cookie = cookie_of(guard)
    for path, status in (("/nowhere", 404), ("/api/clusters/99", 404), ("/open/guessed", 403)):
        headers = {"Host": HOME} | ({"Cookie": cookie} if status == 404 else {})
        page = ask(guard, "GET", path, headers | {"Accept": "text/html,*/*;q=0.8"})
        assert (page.status, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
        script = ask(guard, "GET", path, headers)
        assert json.loads(script.body)["message"].encode() in page.body


def test_a_body_of_any_kind_and_size_is_a_change_or_a_sentence(guard: Guard, run: Run) -> None:
    chance = random.Random(0)
    headers = {"Host": HOME, "Origin": f"http://{HOME}", "Cookie": cookie_of(guard)}
    good = {"do": "name", "cluster": 0, "name": "heron", "after": 0}
    odd: tuple[Any, ...] = (
        None,
        True,
        -1,
        2**70,
        1e308,
        float("nan"),
        "",
        "x" * 10_000,
        [],
        {},
        [[]],
        "\x00",
        "\ud800",
    )
    verbs = ("name", "merge", "split", "move", "gather", "mark", "dissolve", "regroup", "undo", "redo", "delete")
    for number in range(400):
        wish: dict[str, Any] = {
            **good,
            "do": chance.choice(verbs),
            "clusters": [0, 1],
            "images": [0],
            "k": 3,
            "parts": 2,
        }
        for _ in range(chance.randint(0, 3)):
            wish[chance.choice(sorted(wish))] = chance.choice(odd)
        wish["after"] = chance.choice((-1, "0", None, 2**64))  # so that none of them is made
        body = json.dumps(wish).encode(chance.choice(("utf-8", "utf-16", "utf-32")))
        if number % 4 == 0:
            body = body[: chance.randrange(len(body))] + chance.randbytes(chance.choice((0, 1, 100)))
        more = chance.choice(
            ({}, {"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}, {"Content-Length": "-1"})
        )
        answer = ask(guard, "POST", "/api/edit", headers | more, body)
        assert answer.status in (400, 409), (body[:200], answer)
        assert json.loads(answer.body)["message"].endswith((".", "it."))
    too_much = ask(guard, "POST", "/api/edit", headers, b" " * (17 * 2**20) + json.dumps(good).encode())
    assert too_much.status == 413
    assert load(run.path).edits == []
    assert ask(guard, "POST", "/api/edit", headers, json.dumps(good).encode()).status == 200
    assert load(run.path).names == {0: "heron"}


def test_undo_in_two_browsers_at_once_takes_back_one_edit_each(guard: Guard, run: Run) -> None:
    for number in range(6):
        run.name(0, f"name {number}")
    browsers = [{"Host": HOME, "Origin": f"http://{HOME}", "Cookie": cookie_of(guard)} for _ in range(2)]
    seen, statuses = [6, 6], []
    for turn in range(8):
        body = json.dumps({"do": "undo", "after": seen[turn % 2]}).encode()
        answer = ask(guard, "POST", "/api/edit", browsers[turn % 2], body)
        statuses.append(answer.status)
        seen[turn % 2] = json.loads(ask(guard, "GET", "/api/run", browsers[turn % 2]).body)["edits"]
    undone = statuses.count(200)
    assert set(statuses) == {200, 409}
    assert load(run.path).names[0] == f"name {5 - undone}"
