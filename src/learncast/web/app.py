"""The explorer's server: a fixed set of routes over the rooms."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from learncast.errors import InvalidSpec, LearncastError
from learncast.web.complaint import complaint
from learncast.web.guard import Guard
from learncast.web.panel import plain
from learncast.web.room import Room
from learncast.web.rooms.catalogue import rooms
from learncast.web.sheet import csv_of

if TYPE_CHECKING:
    from learncast.learnability.learnability_window import LearnabilityWindow

#: Names by which a browser on this machine calls it.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

#: Computations at once, and how many more may wait for their turn. Threads share one interpreter, so more at once make
#: each slower and none quicker; beside these one that takes long, such as measuring responses.
AT_ONCE, WAITING = 2, 32

_PAGE = Path(__file__).parent / "page"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


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
        add(f"/api/{room.name}/study", desk.answering(room, room.study, "text/plain; charset=utf-8"), "POST")
        add(f"/api/{room.name}/table", desk.answering(room, _table(room), "text/csv; charset=utf-8"), "POST")
    return app


class _Desk:
    """Where computations wait for their turn."""

    def __init__(self) -> None:
        self.quick, self.slow = anyio.CapacityLimiter(AT_ONCE), anyio.CapacityLimiter(1)
        self.present = 0

    def answering(
        self, room: Room, work: Callable[[Any], str | bytes], kind: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route that reads a state of the room and answers with what is worked out from it."""

        async def answer(request: Request) -> Response:
            try:
                state = room.state.model_validate_json(await request.body() or b"{}", strict=True)
                if self.present >= AT_ONCE + WAITING:
                    return _busy()
                text = await self._worked_out(work, state, self.slow if room.slow(state) else self.quick)
            except ValidationError as error:
                return JSONResponse({"error": str(complaint(error, room.state))}, 422)
            except LearncastError as error:
                return JSONResponse({"error": str(error)}, 422)
            return Response(text, media_type=kind)

        return answer

    async def _worked_out(
        self, work: Callable[[Any], str | bytes], state: Any, limiter: anyio.CapacityLimiter
    ) -> str | bytes:
        # Counted here: the limiter itself counts a request only some turns of the event loop after it came.
        self.present += 1
        try:
            return await anyio.to_thread.run_sync(work, state, limiter=limiter)
        finally:
            self.present -= 1


def _busy() -> Response:
    sentence = f"{AT_ONCE} computations run and {WAITING} more wait: ask again in a moment"
    return JSONResponse({"error": sentence}, 503, headers={"Retry-After": "1"})


def _shown(room: Room, part: str) -> Callable[[Any], bytes]:
    show = room.parts[part]
    # Five times as fast on a grid's bytes as json, which looks at every character.
    return lambda state: to_json(plain(show(state)))


def _table(room: Room) -> Callable[[Any], str]:
    return lambda state: csv_of({name: show(state) for name, show in room.parts.items()})


def _described(room: Room) -> dict[str, Any]:
    return {
        "name": room.name,
        "title": room.title,
        "introduction": room.introduction,
        "controls": [plain(dataclasses.asdict(control)) for control in room.controls],
        "parts": list(room.parts),
    }


def _assets() -> dict[str, Path]:
    """The files that may be asked for, by name: the page's own, and plotly's."""
    found = {path.name: path for path in sorted(_PAGE.iterdir()) if path.suffix in _KINDS}
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise InvalidSpec(
            required="plotly must be installed for the explorer",
            got="no such package",
            why="it draws the page's pictures",
            remedy="pip install 'learncast[web]'",
        )
    found["plotly.min.js"] = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return found


async def _unknown(_: Request, error: Exception) -> Response:
    """What the router refuses, as a sentence."""
    assert isinstance(error, HTTPException)
    said = {404: "nothing has this address", 405: "this address does not answer to this method"}
    sentence = said.get(error.status_code, str(error.detail)) if error.detail in _PHRASES else str(error.detail)
    return JSONResponse({"error": sentence}, error.status_code, headers=error.headers)


#: What the router says by itself.
_PHRASES = ("Not Found", "Method Not Allowed")
