"""The explorer's server: a fixed set of routes over the rooms."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import json
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learncast.errors import InvalidSpec, LearncastError, SchemaMismatch
from learncast.limits import readable
from learncast.packages import package
from learncast.validation import between
from learncast.web.panel import csv_of, plain
from learncast.web.room import Room, complaint, wrong_field
from learncast.web.rooms.curriculum import ROOM as CURRICULUM
from learncast.web.rooms.prior_knowledge import ROOM as PRIOR_KNOWLEDGE
from learncast.web.rooms.recurrence import ROOM as RECURRENCE
from learncast.web.rooms.window import window_room

if TYPE_CHECKING:
    from learncast.learnability.learnability_window import LearnabilityWindow

#: Names by which a browser on this machine calls it.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

#: Computations at once, and how many more may wait for their turn. Threads share one interpreter, so more at once make
#: each slower and none quicker; beside these one that takes long, such as measuring responses.
AT_ONCE, WAITING = 2, 32

_PAGE = Path(__file__).parent / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def rooms(window: LearnabilityWindow | None = None) -> tuple[Room, ...]:
    """Every room, in the order of the page; the last shows `window`, or how to open one."""
    return (CURRICULUM, PRIOR_KNOWLEDGE, RECURRENCE, window_room(window))


def application(window: LearnabilityWindow | None = None, hosts: Sequence[str] = LOOPBACK) -> FastAPI:
    """The explorer as an ASGI application.

    Parameters
    ----------
    window : LearnabilityWindow, optional
        What the window room shows.
    hosts : sequence of str
        Names in the Host header that are this server's.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_middleware(Guard, hosts=hosts)
    app.add_exception_handler(HTTPException, _unknown)
    everything = rooms(window)
    listed = json.dumps([_described(room) for room in everything], allow_nan=False)
    assets = _assets()
    desk = _Desk()

    def add(path: str, answer: Callable[[Request], Awaitable[Response]], method: str) -> None:
        # Plain routes: a state is checked by its room, and nothing else of a request is looked at.
        app.router.add_route(path, answer, methods=[method], include_in_schema=False)

    async def page(_: Request) -> Response:
        return FileResponse(_PAGE / "index.html", media_type="text/html")

    async def listing(_: Request) -> Response:
        return Response(listed, media_type="application/json")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            raise HTTPException(404, "no file of the page has this name")
        return FileResponse(assets[name], media_type=_KINDS[assets[name].suffix])

    add("/", page, "GET")
    add("/api/rooms", listing, "GET")
    add("/assets/{name}", asset, "GET")
    for room in everything:
        for part in room.parts:
            add(f"/api/{room.name}/{part}", desk.answering(room, _shown(room, part), "application/json"), "POST")
        add(f"/api/{room.name}/doing", desk.doing(room), "POST")
        add(f"/api/{room.name}/study", desk.answering(room, room.study, "text/plain; charset=utf-8"), "POST")
        add(f"/api/{room.name}/table", desk.answering(room, _table(room), "text/csv; charset=utf-8"), "POST")
    return app


class _Desk:
    """Where computations wait for their turn."""

    def __init__(self) -> None:
        self.quick, self.slow = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(1)
        self.present = 0

    def doing(self, room: Room) -> Callable[[Request], Awaitable[Response]]:
        """A route that says in words what a state has computed, where that takes long."""

        async def answer(request: Request) -> Response:
            try:
                state = room.state.model_validate_json(await request.body() or b"{}", strict=True)
            except ValidationError:
                return JSONResponse({"doing": ""})
            return JSONResponse({"doing": room.slow(state) or "computing"})

        return answer

    def answering(
        self, room: Room, work: Callable[[Any], str | bytes], kind: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route that reads a state of the room and answers with what is worked out from it."""

        async def answer(request: Request) -> Response:
            try:
                state = room.state.model_validate_json(await request.body() or b"{}", strict=True)
                if self.present >= AT_ONCE + WAITING:
                    sentence = f"{AT_ONCE} computations run and {WAITING} more wait: ask again in a moment"
                    return JSONResponse({"error": sentence}, 503, headers={"Retry-After": "1"})
                limiter = self.slow if room.slow(state) else self.quick
                # Counted here: the limiter itself counts a request only some turns of the event loop after it came.
                self.present += 1
                try:
                    text = await anyio.to_thread.run_sync(work, state, limiter=limiter)
                finally:
                    self.present -= 1
            except ValidationError as error:
                sentence, field = str(complaint(error, room.state)), wrong_field(error, room.state)
                return JSONResponse({"error": sentence, "field": field}, 422)
            except LearncastError as error:
                return JSONResponse({"error": str(error)}, 422)
            return Response(text, media_type=kind)

        return answer


def _shown(room: Room, part: str) -> Callable[[Any], bytes]:
    show = room.parts[part]
    # Five times as fast on a grid's bytes as json, which looks at every character.
    return lambda state: to_json(plain(show(state)))


def _table(room: Room) -> Callable[[Any], str]:
    return lambda state: csv_of({name: show(state) for name, show in room.parts.items()})


def _described(room: Room) -> dict[str, Any]:
    """A room as the page builds it; what a control is at first is how the room opens."""
    opening = room.opening
    return {
        **{key: getattr(room, key) for key in ("name", "title", "introduction")},
        "controls": [plain({**dataclasses.asdict(one), "default": opening[one.key]}) for one in room.controls],
        "parts": list(room.parts),
        "examples": [plain(dataclasses.asdict(one)) for one in room.examples],
        "words": [plain(dataclasses.asdict(one)) for one in room.words],
        "topics": [list(pair) for pair in room.topics.items()],
    }


def _assets() -> dict[str, Path]:
    """The files that may be asked for, by name: the page's own, and plotly's."""
    found = {path.name: path for path in sorted(_PAGE.iterdir()) if path.suffix in _KINDS}
    told = {"why": "it draws the page's pictures", "remedy": "pip install 'learncast[web]'"}
    plotly = package("plotly", "for the explorer", **told)
    return {**found, "plotly.min.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js"}


async def _unknown(_: Request, error: Exception) -> Response:
    """What the router refuses, as a sentence."""
    assert isinstance(error, HTTPException)
    said = {
        "Not Found": "nothing has this address",
        "Method Not Allowed": "this address does not answer to this method",
    }
    return JSONResponse({"error": said.get(error.detail, error.detail)}, error.status_code, headers=error.headers)


#: Bytes that a request's body may have.
MOST_BYTES = 64 * 1024

#: What the page may load: its own files, and the inline style and data images that plotly draws with.
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)

_HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """ASGI middleware that lets in requests addressed to this server by its own page, with small JSON bodies.

    A page from elsewhere can make a browser send requests here, under another name (DNS rebinding) or across origins.
    The Host header tells the first, Origin and the content type the second.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str
        Names in the Host header that are this server's, whatever the port.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks over sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                kept = [(k, v) for k, v in message.get("headers", ()) if k.lower() != b"cache-control"]
                caching = b"no-store" if scope["path"].startswith("/api") else b"no-cache"
                message = {**message, "headers": [*kept, *_HEADERS, (b"cache-control", caching)]}
            await send(message)

        try:
            self._check(scope)
            body = await _whole_body(scope, receive)
            await self.app(scope, body, answer)
        except HTTPException as refusal:
            await JSONResponse({"error": refusal.detail}, refusal.status_code)(scope, receive, answer)
        except Exception:
            # The server logs it; a reader is told no more than that it happened.
            if not begun:
                sentence = "the server failed on this request; what it was doing is in its log"
                await JSONResponse({"error": sentence}, 500)(scope, receive, answer)
            raise

    def _check(self, scope: Scope) -> None:
        host = _only(scope, "host")
        if host is None or _name(host) not in self.hosts:
            raise HTTPException(421, f"requests must be addressed to {', '.join(sorted(self.hosts))}, not to {host!r}")
        if scope["method"] != "POST":
            return
        origin = _only(scope, "origin")
        if origin is not None and not _same(origin, host):
            raise HTTPException(403, f"requests must come from this server's own page, not from {origin[:100]!r}")
        kind = (_only(scope, "content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(415, f"the content type must be application/json, not {kind[:100]!r}")


def _only(scope: Scope, name: str) -> str | None:
    """A header that may be given once; None where it is not, refused where there are several."""
    found = Headers(scope=scope).getlist(name)
    if len(found) > 1:
        raise HTTPException(400, f"the header {name} must be given once, not {len(found)} times")
    return found[0] if found else None


def _name(host: str) -> str:
    """A Host header without its port."""
    end = host.find("]")
    if host.startswith("[") and end > 0:
        name, port = host[: end + 1], host[end + 1 :]
    else:
        name, _, number = host.partition(":")
        port = f":{number}" if number else ""
    return name.lower() if not port or (port[0] == ":" and port[1:].isdecimal()) else ""


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


async def _whole_body(scope: Scope, receive: Receive) -> Receive:
    """The request's body, read to its end, so that a size nobody announced is noticed as well."""
    announced = _only(scope, "content-length")
    if announced is not None and (not announced.isdecimal() or int(announced[:20]) > MOST_BYTES):
        raise _too_large()
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BYTES:
            raise _too_large()
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _too_large() -> HTTPException:
    return HTTPException(413, f"the body must have at most {MOST_BYTES} bytes: a state of the page takes far fewer")


def explored(host: str, port: int, window: Path | None, *, browse: bool) -> None:
    """Serve the page until Ctrl-C.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes any that is free.
    window : Path, optional
        A saved learnability window to look at.
    browse : bool
        Open a browser.
    """
    opened = None
    if window is not None:
        from learncast.learnability.learnability_window import LearnabilityWindow

        opened = LearnabilityWindow.load(window)
        with readable(window, "save the window again", kind="a window that can be drawn", error=SchemaMismatch):
            room = window_room(opened)
            room.parts["window"](room.state())
    with _listening(host, port) as listener:
        app = application(opened, (*LOOPBACK, _bracketed(host), *_own_names(host)))
        address = f"http://{_bracketed(host)}:{listener.getsockname()[1]}/"
        if not is_loopback(host):
            warning = f"learncast: {host} can be reached from other machines; anyone who reaches it may compute here"
            print(warning, file=sys.stderr, flush=True)
        print(f"learncast explorer at {address} (Ctrl-C ends it)", flush=True)
        if browse:
            # The socket listens already, so that the browser waits for the first answer instead of failing.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _serve(app, listener)


def _serve(app: FastAPI, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    # Threads that compute take turns with the one that answers; it should not wait long for them.
    sys.setswitchinterval(0.0005)
    uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; a sentence where it cannot."""
    between("--port", port, 0, 65535, why="there are no other ports")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise InvalidSpec(
            required=f"port {port} of {host} must be free to listen on",
            got="another program that listens there" if taken else f"{error}",
            why="the page is served from it",
            remedy="choose another with --port, or --port 0 for any that is free"
            if taken
            else "check --host and --port",
        ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _bracketed(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _own_names(host: str) -> tuple[str, ...]:
    """By what names others call this machine, where the address stands for all of its own."""
    if host not in ("0.0.0.0", "::"):
        return ()
    own = socket.gethostname()
    try:
        found = {str(row[4][0]) for row in socket.getaddrinfo(own, None)}
    except OSError:
        found = set()
    return (own, *(_bracketed(address) for address in sorted(found)))
