"""The web page over a run folder, on this machine only."""

from __future__ import annotations

import json
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
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
from autonovel.report.connections import impatient_protocol
from autonovel.report.guard import Guard, refusal
from autonovel.report.pages import render
from autonovel.report.session import Session
from autonovel.runs.edits import Conflict
from autonovel.runs.folder import Folder

STATIC = Path(__file__).parent / "static"
FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
MOST_BYTES = 16 * 2**20
"""The largest change a page may send: a move of a million images."""

NOTHING = "There is nothing at this address; all clusters of the run are on its first page."
CHANGED_ELSEWHERE = (
    "The clusters were changed elsewhere meanwhile: nothing was done. Look again, and repeat it if you still want it."
)


class Site:
    """The server of a run's page; it listens as soon as it is made.

    Args:
        run: a finished run.
        port: where to listen; 0 takes a free one.
        read_only: whether changes are refused.
    """

    def __init__(self, run: Folder, port: int = 0, *, read_only: bool = False) -> None:
        import uvicorn

        session = Session(run)
        self._socket = _listen(port)
        self._address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        app = make_app(session, read_only=read_only)
        self._guard = Guard(app, self._socket.getsockname()[1], lambda: say(f"{run.path} is open at {self.url}"))
        config = uvicorn.Config(
            self._guard,
            log_level="critical",
            lifespan="off",
            loop="asyncio",
            http=impatient_protocol(),
            ws="none",
            server_header=False,
        )
        config.timeout_graceful_shutdown = 2
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None
        # read the folder while the browser opens; what cannot be read is said when the page asks for it
        threading.Thread(target=_answered(lambda: JSONResponse(session.state())), daemon=True).start()

    @property
    def url(self) -> str:
        """An address that opens the page once, another one each time."""
        return self._address + self._guard.entrance()

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


def serve(run: Folder, *, port: int = 0, open_page: bool = True, read_only: bool = False) -> None:
    """Show a run as a web page, to look at its clusters and to name and correct them, until Ctrl-C.

    Args:
        run: a finished run.
        port: where to listen; 0 takes a free one.
        open_page: whether to open a browser.
        read_only: whether changes are refused.
    """
    site = Site(run, port, read_only=read_only)
    say(f"{run.path} is open at {site.url} (works once; stop with Ctrl-C)")
    with suppress(KeyboardInterrupt), _way_in(site.url) if open_page else nullcontext() as file:  # how one leaves
        if file is not None:
            import webbrowser

            threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
        site.run()


@contextmanager
def _way_in(url: str) -> Iterator[Path]:
    """A file that leads a browser to an address: everybody on the machine can see what a program is started with."""
    with tempfile.TemporaryDirectory(prefix="autonovel-") as folder:  # nobody else may look into it
        file = Path(folder) / "open.html"
        file.write_text(
            f'<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open the run</a>\n'
        )
        yield file


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


class _Replies:
    """What the server answers to each address."""

    def __init__(self, session: Session, read_only: bool) -> None:
        self._session, self._read_only = session, read_only

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

    def alike(self, request: Request) -> Response:
        return JSONResponse(self._session.alike(_signed(request.path_params["number"])))

    def suggestions(self, request: Request) -> Response:
        return JSONResponse(self._session.suggestions())

    def unlike(self, request: Request) -> Response:
        return JSONResponse(self._session.unlike_any())

    def image(self, request: Request) -> Response:
        return JSONResponse(self._session.image(_signed(request.path_params["row"])))

    def search(self, request: Request) -> Response:
        return JSONResponse(self._session.search(request.query_params.get("text", "")))

    def map(self, request: Request) -> Response:
        return Response(self._session.map(), media_type="application/octet-stream")

    def sheet(self, request: Request) -> Response:
        return _jpeg(self._session.sheet(_signed(request.path_params["number"])))

    def picture(self, request: Request) -> Response:
        side = _signed(request.query_params.get("side", "2048"))
        return _jpeg(self._session.picture(_signed(request.path_params["row"]), side))

    def table(self, request: Request) -> Response:
        one = request.query_params.get("cluster")
        number = None if one is None else _signed(one)
        name = "classes" if number is None else f"cluster-{number}"
        saved = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        lines = self._session.table(number)
        first = next(lines)  # now, while there is still time to say that there is none
        return StreamingResponse(chain([first], lines), media_type="text/csv; charset=utf-8", headers=saved)

    async def edit(self, request: Request) -> Response:
        if self._read_only:
            return JSONResponse(
                {"message": "This page is open for reading only; nothing was changed."}, status_code=403
            )
        try:
            wish = await _body(request)
        except InputError as error:
            return JSONResponse({"message": str(error)}, status_code=413)

        def change() -> Response:
            self._session.edit(wish)
            return JSONResponse(self._session.state())

        return await run_in_threadpool(_answered(change))


def make_app(session: Session, *, read_only: bool = False) -> Starlette:
    """The pages and answers of a session, without any protection: :class:`Guard` goes around it."""

    def get(path: str, answer: Callable[[Request], Response]) -> Route:
        return Route(path, lambda request: _answered(lambda: answer(request), request)(), methods=["GET"])

    def nothing(request: Request, error: Exception) -> Response:
        return refusal(NOTHING, 404, request.headers)

    answers = _Replies(session, read_only)
    return Starlette(
        routes=[
            get("/", answers.page),
            get("/api/run", answers.state),
            get("/api/cells", answers.cells),
            get("/api/clusters/{number}", answers.cluster),
            get("/api/clusters/{number}/alike", answers.alike),
            get("/api/suggestions", answers.suggestions),
            get("/api/unlike", answers.unlike),
            get("/api/images/{row}", answers.image),
            get("/api/search", answers.search),
            get("/api/map", answers.map),
            get("/api/export.csv", answers.table),
            get("/sheets/{version}/{number}.jpg", answers.sheet),
            get("/pictures/{version}/{row}.jpg", answers.picture),
            Route("/api/edit", answers.edit, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={404: nothing},
    )


def _answered(answer: Callable[[], Response], request: Request | None = None) -> Callable[[], Response]:
    """An answer, or a sentence that says why there is none."""

    def refused(why: str, status: int) -> Response:
        return refusal(why, status, {} if request is None else request.headers)

    def attempt() -> Response:
        try:
            return answer()
        except Conflict:
            return refused(CHANGED_ELSEWHERE, 409)
        except InputError as error:
            return refused(str(error), 400)
        except TrainingError as error:
            return refused(str(error), 500)
        except OSError as error:
            why = error.strerror or error
            return refused(f"A file of the run cannot be read ({why}); look at its folder.", 500)
        except KeyError:
            return refused(NOTHING, 404)

    return attempt


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent; an empty one where it is none; refused where it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise InputError(f"A change may have {MOST_BYTES // 2**20} MiB at most; choose fewer images at a time.")
        parts.append(part)
    try:
        wish = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        return {}
    return wish if isinstance(wish, dict) else {}


def _signed(text: str) -> int:
    """A number in a path; that of a cluster is negative for a known class."""
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise KeyError(text)
    return int(text)


def _jpeg(content: bytes) -> Response:
    return Response(content, media_type="image/jpeg", headers=FOR_EVER)
