"""A plain HTTP client for the page's server, which sends exactly what a test says."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE = 60
"""Seconds until something counts as stuck: far more than it takes on a machine that has other work."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Speaks to the server at ``url`` as its own page does, once :meth:`enter` has been called."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host, self.port, self.entrance = parts.hostname, parts.port, parts.path
        self.origin = f"http://{parts.netloc}"
        self.cookie = ""

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            if body is not None:
                headers.setdefault("Content-Length", str(len(body)))
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def enter(self) -> Answer:
        answer = self.send("GET", self.entrance)
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def get(self, path: str) -> Answer:
        return self.send("GET", path, Cookie=self.cookie)

    def edit(self, **change: Any) -> Answer:
        return self.send("POST", "/api/edit", json.dumps(change).encode(), Cookie=self.cookie, Origin=self.origin)
