"""Who may talk to the page's server: the browser that was given the token, from the page itself, and nobody else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autonovel.report.pages import render

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_ENTRANCE = "/open/"


def refusal(why: str, status: int, headers: Mapping[str, str]) -> Response:
    """A sentence that says why there is no answer: as a page for a person who opened the address, as JSON for a script."""
    if "text/html" in headers.get("accept", ""):
        return HTMLResponse(render("refusal.html", why=why), status_code=status)
    return JSONResponse({"message": why}, status_code=status)


class Guard:
    """Refuses requests for another host, from another page, or of a stranger; adds strict headers to every answer.

    A page on the web can make a browser send requests to this machine, under a name of its own that leads here: the Host
    and Origin headers give it away. Another user of the machine can reach the port: he has no token. A token opens the page
    once and is worth nothing afterwards, wherever it was written down; the browser keeps another secret as a cookie.

    Args:
        app: what is guarded.
        port: where it is reached.
        on_spent: is called when a token is shown that opened the page before.
    """

    def __init__(self, app: ASGIApp, port: int, on_spent: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._on_spent = on_spent
        self._secret = secrets.token_urlsafe(32)
        self._unused: dict[bytes, bool] = {}
        self.cookie = f"autonovel-{port}"  # browsers share cookies between the ports of a host

    def entrance(self) -> str:
        """A path that opens the page, once."""
        token = secrets.token_urlsafe(32)
        self._unused[token.encode()] = True
        return f"{_ENTRANCE}{token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer with 403."""
        if scope["type"] != "http":
            return  # no other protocol is spoken
        headers = Headers(scope=scope)
        token = self._token_in(scope["path"])
        why = self._refusal(scope["method"], headers) or self._refusal_of_strangers(scope["method"], headers, token)
        entered = why is None and token is not None
        if token is not None and entered:
            self._unused[token] = False

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer[name] = value
                answer.setdefault("Cache-Control", "no-store")
                if entered:
                    answer["Set-Cookie"] = f"{self.cookie}={self._secret}; HttpOnly; SameSite=Strict; Path=/"
            await send(message)

        if why is not None:
            await refusal(why, 403, headers)(scope, receive, send_guarded)
            return
        if scope["path"].startswith(_ENTRANCE):
            scope = {**scope, "path": "/", "raw_path": b"/"}
        await self._app(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        """Why a request is refused whoever sends it; None where it is not."""
        host = headers.get("host", "")
        if host not in self._hosts:
            return "This server answers to 127.0.0.1 and localhost only."
        origin = headers.get("origin")
        if origin is None and method not in ("GET", "HEAD"):
            return "Changes are taken from the page itself only."
        if origin is not None and origin != f"http://{host}":
            return "Requests of other pages are refused."
        return None

    def _refusal_of_strangers(self, method: str, headers: Headers, token: bytes | None) -> str | None:
        """Why a request is refused of one who has neither the cookie nor a token that is still good."""
        if secrets.compare_digest(self._sent_cookie(headers), self._secret.encode()):
            return None
        if token is None:
            return "Open the address that autonovel printed when it started."
        if not self._unused[token]:
            self._on_spent()
            return "This address has been used, and it opens the page once; autonovel has just printed another one."
        # what only looks ahead must not use up the token
        if method != "GET" or "prefetch" in headers.get("sec-purpose", headers.get("purpose", "")):
            return "This address opens the page in a browser, once."
        return None

    def _token_in(self, path: str) -> bytes | None:
        """The token of the path, if it is one that was given out."""
        if not path.startswith(_ENTRANCE):
            return None
        sent = path.removeprefix(_ENTRANCE).encode("utf-8", "replace")
        return next((token for token in self._unused if secrets.compare_digest(sent, token)), None)

    def _sent_cookie(self, headers: Headers) -> bytes:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return b""
        return cookie.value.encode() if cookie is not None else b""
