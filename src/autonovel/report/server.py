"""The web page over a run folder, on this machine only."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from autonovel.base.errors import InputError, TrainingError
from autonovel.base.screen import say
from autonovel.report.clusters import Order
from autonovel.report.guard import Guard
from autonovel.report.pages import render
from autonovel.report.session import Session
from autonovel.runs.edits import Conflict
from autonovel.runs.folder import Run

STATIC = Path(__file__).parent / "static"
FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
MOST_BYTES = 16 * 2**20
"""The largest change a page may send: a move of a million images."""

CHANGED_ELSEWHERE = (
    "The clusters were changed elsewhere meanwhile: nothing was done. Look again, and repeat it if you still want it."
)


class Site:
    """The server of a run's page; it listens as soon as it is made.

    Attributes:
        url: the address to open, with the token.
    """

    def __init__(self, run: Run, port: int = 0) -> None:
        import uvicorn

        session = Session(run)
        self._socket = _listen(port)
        port = self._socket.getsockname()[1]
        guard = Guard(make_app(session), port)
        self.url = f"http://127.0.0.1:{port}/open/{guard.token}"
        config = uvicorn.Config(
            guard, log_level="critical", lifespan="off", loop="asyncio", http="h11", ws="none", server_header=False
        )
        config.timeout_graceful_shutdown = 2
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None
        # read the folder while the browser opens; what cannot be read is said when the page asks for it
        threading.Thread(target=_answered(lambda: JSONResponse(session.state())), daemon=True).start()

    def run(self) -> None:
        """Serve until interrupted."""
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Site:
        """Serve in a thread until the block ends."""
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)


def serve(run: Run, *, port: int = 0, open_page: bool = True) -> None:
    """Show a run as a web page, to look at its clusters and to name and correct them, until Ctrl-C.

    Args:
        run: a finished run.
        port: where to listen; 0 takes a free one.
        open_page: whether to open a browser.
    """
    site = Site(run, port)
    say(f"{run.path} is open at {site.url} (stop with Ctrl-C)")
    if open_page:
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(site.url,), daemon=True).start()
    with suppress(KeyboardInterrupt):  # how a person ends it
        site.run()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(f"Port {port} cannot be used ({error}); choose another, or 0 for any free one.") from error
    listening.listen(128)
    return listening


class _Answers:
    """What the server answers to each address."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def page(self, request: Request) -> Response:
        path = self._session.run.path.resolve()
        return HTMLResponse(render("browse.html", title=path.name, path=str(path)))

    def state(self, request: Request) -> Response:
        return JSONResponse(self._session.state())

    def cells(self, request: Request) -> Response:
        return Response(self._session.cells.astype("<i4").tobytes(), media_type="application/octet-stream")

    def cluster(self, request: Request) -> Response:
        order = request.query_params.get("order", "typical")
        if order not in get_args(Order):
            raise KeyError(order)
        number = _signed(request.path_params["number"])
        return JSONResponse(self._session.images_of(number, order))  # type: ignore[arg-type]

    def image(self, request: Request) -> Response:
        return JSONResponse(self._session.image(request.path_params["row"]))

    def search(self, request: Request) -> Response:
        return JSONResponse(self._session.search(request.query_params.get("text", "")))

    def map(self, request: Request) -> Response:
        return Response(self._session.map(), media_type="application/octet-stream")

    def sheet(self, request: Request) -> Response:
        return _jpeg(self._session.sheet(request.path_params["number"]))

    def picture(self, request: Request) -> Response:
        return _jpeg(self._session.picture(request.path_params["row"]))

    def table(self, request: Request) -> Response:
        saved = {"Content-Disposition": 'attachment; filename="classes.csv"'}
        return StreamingResponse(self._session.table(), media_type="text/csv; charset=utf-8", headers=saved)

    async def edit(self, request: Request) -> Response:
        wish = await _body(request)

        def change() -> Response:
            self._session.edit(wish)
            return JSONResponse(self._session.state())

        return await run_in_threadpool(_answered(change))


def make_app(session: Session) -> Starlette:
    """The pages and answers of a session, without any protection: :class:`Guard` goes around it."""

    def get(path: str, answer: Callable[[Request], Response]) -> Route:
        return Route(path, lambda request: _answered(lambda: answer(request))(), methods=["GET"])

    answers = _Answers(session)
    return Starlette(
        routes=[
            get("/", answers.page),
            get("/api/run", answers.state),
            get("/api/cells", answers.cells),
            get("/api/clusters/{number:str}", answers.cluster),
            get("/api/images/{row:int}", answers.image),
            get("/api/search", answers.search),
            get("/api/map", answers.map),
            get("/api/export.csv", answers.table),
            get("/sheets/{version:str}/{number:int}.jpg", answers.sheet),
            get("/pictures/{version:str}/{row:int}.jpg", answers.picture),
            Route("/api/edit", answers.edit, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )


def _answered(answer: Callable[[], Response]) -> Callable[[], Response]:
    """An answer, or a sentence that says why there is none."""

    def attempt() -> Response:
        try:
            return answer()
        except Conflict:
            return JSONResponse({"message": CHANGED_ELSEWHERE}, status_code=409)
        except InputError as error:
            return JSONResponse({"message": str(error)}, status_code=400)
        except TrainingError as error:
            return JSONResponse({"message": str(error)}, status_code=500)
        except KeyError:
            return JSONResponse({"message": "There is no such thing in this run."}, status_code=404)

    return attempt


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent; an empty one where it is none."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            return {}
        parts.append(part)
    try:
        wish = json.loads(b"".join(parts))
    except ValueError:
        return {}
    return wish if isinstance(wish, dict) else {}


def _signed(text: str) -> int:
    """A number of a cluster, which is negative for a known class."""
    try:
        return int(text)
    except ValueError:
        raise KeyError(text) from None


def _jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers=FOR_EVER)
