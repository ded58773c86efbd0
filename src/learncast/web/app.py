"""The explorer's web application: a fixed set of routes over the panels, and the server that runs it."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import anyio.to_thread
import plotly  # type: ignore[import-untyped]
import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from learncast._core.errors import InvalidSpec, LearncastError, SchemaMismatch
from learncast._core.limits import allowing, readable
from learncast._core.validation import between
from learncast._core.worker import WorkerStopped
from learncast.web.answers import MEDIA_TYPES, all_panels, answer, description
from learncast.web.jobs import AT_ONCE, WAITING, Computation, JobQueue, QueueFull
from learncast.web.panel import Panel, invalid_state
from learncast.web.panels.window import window_panel
from learncast.web.request_checks import RequestChecks, TimedProtocol, is_loopback
from learncast.web.uploads import UPLOADS

if TYPE_CHECKING:
    from learncast.windows import Window

Handler = Callable[[Request], Awaitable[Response]]

#: Names under which a browser on this machine reaches it.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

PAGE = Path(__file__).parent / "page"
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def application(
    window: Window | None = None, hosts: Sequence[str] = LOOPBACK, *, token: str = "", queue: JobQueue | None = None
) -> Starlette:
    """Return the explorer as an ASGI application.

    Parameters
    ----------
    window : Window, optional
        Content of the window panel.
    hosts : sequence of str
        Host names of this server.
    token : str
        First part of every valid path, if required.
    queue : JobQueue, optional
        Computes the answers; by default in threads of this process.
    """
    panels = all_panels(window)
    listing = json.dumps([description(panel) for panel in panels], allow_nan=False)
    files, queue = assets(), queue or JobQueue()

    async def page(_: Request) -> Response:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    async def list_panels(_: Request) -> Response:
        return Response(listing, media_type="application/json")

    async def asset(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None:
            raise HTTPException(404, "Unknown file.")
        media_type, client = _MEDIA_TYPES[path.suffix], request.client
        # On this machine a copy is faster than a compression.
        if client and not is_loopback(client.host) and "gzip" in request.headers.get("accept-encoding", ""):
            headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            return Response(await anyio.to_thread.run_sync(_compressed, path), media_type=media_type, headers=headers)
        return FileResponse(path, media_type=media_type)

    routes = [Route("/", page), Route("/api/panels", list_panels), Route("/assets/{name}", asset)]
    for panel in panels:
        names = [*panel.parts, "study", "table", "file"]
        handlers = {name: _handler(queue, panel, name) for name in names} | {"doing": _progress_handler(panel)}
        routes += [Route(f"/api/{panel.name}/{name}", one, methods=["POST"]) for name, one in handlers.items()]
    checks = Middleware(RequestChecks, hosts=hosts, token=token)
    app = Starlette(routes=routes, middleware=[checks], exception_handlers={HTTPException: _error_response})
    app.router.redirect_slashes = False
    return app


def _handler(queue: JobQueue, panel: Panel, name: str) -> Handler:
    """Return a handler that reads a state or a dropped file and responds with what is computed from it."""

    async def respond(request: Request) -> Response:
        async def disconnected() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        try:
            body = await request.body()
            computation = _opening(panel, request, body) if name == "file" else _computation(panel, name, body)
            result = await queue.result(computation, disconnected)
        except ValidationError as error:
            invalid = invalid_state(error, panel.state)
            return JSONResponse({"error": str(invalid), "field": invalid.field}, 422)
        except LearncastError as error:
            return JSONResponse({"error": str(error), "field": None}, 422)
        except QueueFull:
            message = f"{AT_ONCE} computations run and {WAITING} more wait. Try again in a moment."
            return JSONResponse({"error": message}, 503, headers={"Retry-After": "1"})
        except asyncio.CancelledError:  # Ctrl-C during the computation
            return JSONResponse({"error": "The explorer was stopped."}, 503)
        except WorkerStopped:
            return JSONResponse({"error": "The computation was interrupted. Try again."}, 500)
        return Response(result, media_type=MEDIA_TYPES.get(name, "application/json"))

    return respond


def _computation(panel: Panel, name: str, body: bytes) -> Computation:
    state = panel.state.model_validate_json(body or b"{}", strict=True)
    token = str(getattr(state, "data", None))
    files = {token: UPLOADS.files[token]} if token in UPLOADS.files else {}
    # The page moves through the frames of an answer by itself; studies and tables are of the current frame.
    key = (panel.name, name, state.model_dump_json(exclude={"time", "topic"} if name in panel.parts else set()))
    request = panel.name, name, state.model_dump_json()
    slow = bool(panel.slow(state))
    prompt = name in panel.parts and not slow and not files
    return Computation(key, partial(answer, panel, *request[1:]), request, files, slow, prompt)


def _opening(panel: Panel, request: Request, body: bytes) -> Computation:
    """Return the computation that reads a dropped file and describes the panel for it."""
    token = UPLOADS.add(unquote(request.headers.get("x-name", "file")), body)
    key = panel.name, "file", token
    return Computation(key, partial(answer, panel, *key[1:]), key, {token: UPLOADS.files[token]})


def _progress_handler(panel: Panel) -> Handler:
    """Return a handler that describes what a state computes."""

    async def answer(request: Request) -> Response:
        try:
            state = panel.state.model_validate_json(await request.body() or b"{}", strict=True)
        except ValidationError:
            return JSONResponse({"doing": ""})
        return JSONResponse({"doing": panel.slow(state) or "computing"})

    return answer


def assets() -> dict[str, Path]:
    """Return the files that the page may load, by name: its own, the tokens, and plotly's unless it has one."""
    paths = (*sorted(PAGE.iterdir()), PAGE.parents[1] / "tokens.css")
    files = {path.name: path for path in paths if path.suffix in _MEDIA_TYPES}
    return {"plotly.min.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js", **files}


@cache
def _compressed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes())


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


def open_window(path: Path, most_bytes: float | None = None) -> Window:
    """Load a learnability window that can be drawn, in at most this much memory."""
    from learncast.windows import Window

    with allowing(most_bytes):
        opened = Window.load(path)
    with readable(path, kind="a window that can be drawn", error=SchemaMismatch):
        panel = window_panel(opened)
        panel.parts["window"](panel.state())
    return opened


def serve(host: str, port: int, window: Path | None, *, browse: bool, most_bytes: float | None = None) -> None:
    """Serve the explorer until Ctrl-C.

    Parameters
    ----------
    host, port
        Address to listen on; port 0 takes any free port.
    window : Path, optional
        A saved learnability window.
    browse : bool
        Whether to open a browser.
    most_bytes : float, optional
        Most memory that the window may take.
    """
    opened = None if window is None else open_window(window, most_bytes)
    token = "" if is_loopback(host) else secrets.token_urlsafe(16)
    with _listen(host, port) as listener, closing(JobQueue(workers=True, window=opened)) as queue:
        app = application(opened, (*LOOPBACK, _bracketed(host), *_machine_names(host)), token=token, queue=queue)
        address = f"http://{_bracketed(host)}:{listener.getsockname()[1]}/{token}{'/' if token else ''}"
        if token:
            warning = (
                f"learncast: {host} can be reached from other machines; anyone who knows the address can compute here"
            )
            print(warning, file=sys.stderr, flush=True)
        print(f"learncast explorer at {address} (Ctrl-C ends it)", flush=True)
        if browse:
            # The socket listens already, so the browser waits for the first answer and does not fail.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _run(app, listener)


def _run(app: Starlette, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    # Computing threads yield often, so that the thread which answers requests does not wait long.
    sys.setswitchinterval(0.0005)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except asyncio.CancelledError:  # a second Ctrl-C during the shutdown
        raise KeyboardInterrupt from None


def _listen(host: str, port: int) -> socket.socket:
    between("--port", port, 0, 65535)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            message = f"Port {port} of {host} is in use. Choose another with --port, or --port 0 for any free one."
            raise InvalidSpec(message, field="--port") from error
        raise InvalidSpec(f"Cannot listen on port {port} of {host}: {error}.", field="--host") from error


def _bracketed(host: str) -> str:
    """Return a host as it is written in an address: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _machine_names(host: str) -> tuple[str, ...]:
    """Return the names and addresses of this machine if `host` stands for all of them."""
    if host not in ("0.0.0.0", "::"):
        return ()
    name = socket.gethostname()
    try:
        addresses = {str(row[4][0]) for row in socket.getaddrinfo(name, None)}
    except OSError:
        addresses = set()
    return (name, *(_bracketed(address) for address in sorted(addresses)))
