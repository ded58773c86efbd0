"""The explorer's server: a fixed set of routes over the rooms."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio.to_thread
import uvicorn
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from learncast._core.errors import InvalidSpec, LearncastError, SchemaMismatch
from learncast._core.limits import allowing, readable
from learncast._core.packages import package
from learncast._core.validation import between
from learncast.web.desk import AT_ONCE, WAITING, Busy, Desk, Question
from learncast.web.guard import DROPS, Guard, Patient, is_loopback
from learncast.web.panel import csv_of, plain
from learncast.web.panels.curriculum import ROOM as CURRICULUM
from learncast.web.panels.prior_knowledge import ROOM as PRIOR_KNOWLEDGE
from learncast.web.panels.recurrence import ROOM as RECURRENCE
from learncast.web.panels.window import window_room
from learncast.web.room import Room, complaint, wrong_field
from learncast.web.uploads import UPLOADS
from learncast.web.worker import Stopped

if TYPE_CHECKING:
    from learncast.windows.learnability_window import LearnabilityWindow

#: Names by which a browser on this machine calls it.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

PAGE = Path(__file__).parent / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def rooms(window: LearnabilityWindow | None = None) -> tuple[Room, ...]:
    """Every room, in the order of the page; the last shows `window`, or how to open one."""
    return (CURRICULUM, PRIOR_KNOWLEDGE, RECURRENCE, window_room(window))


def application(
    window: LearnabilityWindow | None = None,
    hosts: Sequence[str] = LOOPBACK,
    *,
    token: str = "",
    desk: Desk | None = None,
) -> Starlette:
    """The explorer as an ASGI application.

    Parameters
    ----------
    window : LearnabilityWindow, optional
        What the window room shows.
    hosts : sequence of str
        Names in the Host header that are this server's.
    token : str
        First part of every address, if one is asked for.
    desk : Desk, optional
        Where answers are worked out; in threads of this process by default.
    """
    everything = rooms(window)
    listed = json.dumps([described(room) for room in everything], allow_nan=False)
    files = assets()
    answers = _Answers(desk or Desk())

    routes: list[Route] = []

    def add(path: str, answer: Callable[[Request], Awaitable[Response]], method: str) -> None:
        # A state is checked by its room, and nothing else of a request is looked at.
        routes.append(Route(path, answer, methods=[method]))

    async def page(_: Request) -> Response:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    async def listing(_: Request) -> Response:
        return Response(listed, media_type="application/json")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404, "no file of the page has this name")
        return FileResponse(files[name], media_type=_KINDS[files[name].suffix])

    add("/", page, "GET")
    add("/api/rooms", listing, "GET")
    add("/assets/{name}", asset, "GET")
    for room in everything:
        for part in room.parts:
            answered = answers.answering(room, part, shown(room, part), "application/json")
            add(f"/api/{room.name}/{part}", answered, "POST")
        add(f"/api/{room.name}/doing", answers.doing(room), "POST")
        study = answers.answering(room, "study", room.study, "text/plain; charset=utf-8")
        add(f"/api/{room.name}/study", study, "POST")
        numbers = answers.answering(room, "table", table(room), "text/csv; charset=utf-8")
        add(f"/api/{room.name}/table", numbers, "POST")
        if room.opened is not None:
            add(f"/api/{room.name}{DROPS}", _dropped(room), "POST")
    guard = Middleware(Guard, hosts=hosts, token=token)
    app = Starlette(routes=routes, middleware=[guard], exception_handlers={HTTPException: _unknown})
    app.router.redirect_slashes = False
    return app


class _Answers:
    """Routes whose answers a desk works out."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

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
        self, room: Room, name: str, work: Callable[[Any], str | bytes], kind: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route that reads a state of the room and answers with what is worked out from it."""

        async def answer(request: Request) -> Response:
            try:
                state = room.state.model_validate_json(await request.body() or b"{}", strict=True)
                text = await self.desk.answer(_question(room, name, work, state), lambda: _gone(request))
            except ValidationError as error:
                sentence, field = str(complaint(error, room.state)), wrong_field(error, room.state)
                return JSONResponse({"error": sentence, "field": field}, 422)
            except LearncastError as error:
                return JSONResponse({"error": str(error), "field": None}, 422)
            except Busy:
                sentence = f"{AT_ONCE} computations run and {WAITING} more wait: ask again in a moment"
                return JSONResponse({"error": sentence}, 503, headers={"Retry-After": "1"})
            except Stopped:
                return JSONResponse({"error": "the computation ended before its answer: ask again"}, 500)
            return Response(text, media_type=kind)

        return answer


async def _gone(request: Request) -> None:
    """Return when whoever asked has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _question(room: Room, name: str, work: Callable[[Any], str | bytes], state: Any) -> Question:
    """A state's question to a part of a room, or for its study or table."""
    token = str(getattr(state, "data", None))
    files = {token: UPLOADS.files[token]} if token in UPLOADS.files else {}
    told = state.model_dump_json()
    # The page moves through the moments of an answer by itself; what is taken away is of the moment shown.
    moment = {"time", "topic"} if name in room.parts else set()
    key = (room.name, name, state.model_dump_json(exclude=moment))
    sent = (room.name, name, told) if name in room.parts and not room.own else None
    return Question(key, partial(work, state), sent, files, bool(room.slow(state)))


def shown(room: Room, part: str) -> Callable[[Any], bytes]:
    """What works out an answer: a part of a room as the page reads it."""
    show = room.parts[part]
    # Five times as fast on a grid's bytes as json, which looks at every character.
    return lambda state: to_json(plain(show(state)))


def table(room: Room) -> Callable[[Any], str]:
    """What writes every number of a room as CSV."""
    return lambda state: csv_of({name: show(state) for name, show in room.parts.items()})


def _dropped(room: Room) -> Callable[[Request], Awaitable[Response]]:
    """A route that takes a file for a room, and answers with the room as that file opens it."""

    async def answer(request: Request) -> Response:
        assert room.opened is not None
        try:
            token = UPLOADS.keep(unquote(request.headers.get("x-name", "file")), await request.body())
            opened = await anyio.to_thread.run_sync(room.opened, token)
        except LearncastError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(described(opened))

    return answer


def described(room: Room) -> dict[str, Any]:
    """A room as the page builds it; what a control is at first is how the room opens."""
    opening = room.opening
    return {
        **{key: getattr(room, key) for key in ("name", "title", "introduction")},
        "controls": [plain({**dataclasses.asdict(one), "default": opening[one.key]}) for one in room.controls],
        "parts": list(room.parts),
        "examples": [plain(dataclasses.asdict(one)) for one in room.examples],
        "words": [plain(dataclasses.asdict(one)) for one in room.words],
        "topics": [list(pair) for pair in room.topics.items()],
        "drops": room.drops,
    }


def assets() -> dict[str, Path]:
    """The files that may be asked for, by name: the page's own, and plotly's."""
    found = {path.name: path for path in sorted(PAGE.iterdir()) if path.suffix in _KINDS}
    plotly = package("plotly", "for the explorer", extra="web")
    return {**found, "plotly.min.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js"}


async def _unknown(_: Request, error: Exception) -> Response:
    """What the router refuses, as a sentence."""
    assert isinstance(error, HTTPException)
    said = {
        "Not Found": "nothing has this address",
        "Method Not Allowed": "this address does not answer to this method",
    }
    return JSONResponse({"error": said.get(error.detail, error.detail)}, error.status_code, headers=error.headers)


def explored(host: str, port: int, window: Path | None, *, browse: bool, most_bytes: float | None = None) -> None:
    """Serve the page until Ctrl-C.

    Parameters
    ----------
    host, port
        Where to listen; port 0 takes any that is free.
    window : Path, optional
        A saved learnability window to look at.
    browse : bool
        Open a browser.
    most_bytes : float, optional
        That the window may take.
    """
    opened = None
    if window is not None:
        from learncast.windows.learnability_window import LearnabilityWindow

        with allowing(most_bytes):
            opened = LearnabilityWindow.load(window)
        with readable(window, kind="a window that can be drawn", error=SchemaMismatch):
            room = window_room(opened)
            room.parts["window"](room.state())
    token = "" if is_loopback(host) else secrets.token_urlsafe(16)
    with _listening(host, port) as listener, closing(Desk(workers=True)) as desk:
        app = application(opened, (*LOOPBACK, _bracketed(host), *_own_names(host)), token=token, desk=desk)
        address = f"http://{_bracketed(host)}:{listener.getsockname()[1]}/{token}{'/' if token else ''}"
        if token:
            warning = f"learncast: {host} can be reached from other machines; whoever has the address may compute here"
            print(warning, file=sys.stderr, flush=True)
        print(f"learncast explorer at {address} (Ctrl-C ends it)", flush=True)
        if browse:
            # The socket listens already, so that the browser waits for the first answer instead of failing.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _serve(app, listener)


def _serve(app: Starlette, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        http=Patient,
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
    # Ctrl-C while it shuts down is the same wish again.
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; a sentence where it cannot."""
    between("--port", port, 0, 65535)
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
