"""Who may talk to the page's server: the browser that was given the token, from the page itself, and nobody else."""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Guard:
    """Refuses requests for another host, from another page, or without the token; adds strict headers to every answer.

    A page on the web can make a browser send requests to this machine, under a name of its own that leads here: the Host
    and Origin headers give it away. Another user of the machine can reach the port: he has no token.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.token = secrets.token_urlsafe(32)
        self.cookie = f"autonovel-{port}"  # browsers share cookies between the ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer with 403."""
        if scope["type"] != "http":
            return  # no other protocol is spoken
        headers = Headers(scope=scope)
        entered = secrets.compare_digest(scope["path"].encode(), f"/open/{self.token}".encode())

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer[name] = value
                answer.setdefault("Cache-Control", "no-store")
                if entered:
                    answer["Set-Cookie"] = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            await send(message)

        why = self._refusal(scope["method"], headers, entered)
        if why is not None:
            await JSONResponse({"message": why}, status_code=403)(scope, receive, send_guarded)
            return
        if entered:
            scope = {**scope, "path": "/", "raw_path": b"/"}
        await self._app(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers, entered: bool) -> str | None:
        """Why a request is refused; None where it is not."""
        host = headers.get("host", "")
        if host not in self._hosts:
            return "This server answers to 127.0.0.1 and localhost only."
        origin = headers.get("origin")
        if origin is None and method not in ("GET", "HEAD"):
            return "Changes are taken from the page itself only."
        if origin is not None and origin != f"http://{host}":
            return "Requests of other pages are refused."
        if not entered and not secrets.compare_digest(self._sent_token(headers), self.token.encode()):
            return "Open the address that autonovel printed when it started."
        return None

    def _sent_token(self, headers: Headers) -> bytes:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return b""
        return found.value.encode() if found is not None else b""
