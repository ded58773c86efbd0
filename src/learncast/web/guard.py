"""Who may ask: requests addressed to this server by its own page, small, in time, not too many."""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from learncast.web import uploads

#: Bytes that a request's body may have; a dropped file may have more.
MOST_BYTES = 64 * 1024
#: Seconds in which a request's head, and its body, must have come.
HEAD_SECONDS, BODY_SECONDS = 10.0, 20.0
#: Questions a second of one client from another machine, and how many it may ask at once.
RATE, BURST = 30.0, 90.0
#: Clients that are remembered.
MOST_CLIENTS = 4096
#: Where files are dropped; what is posted there is no JSON.
DROPS = "/file"

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
    """ASGI middleware that lets in requests addressed to this server by its own page, with small bodies.

    A page from elsewhere can make a browser send requests here, under another name (DNS rebinding) or across origins.
    The Host header tells the first, Origin and the content type the second.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str
        Names in the Host header that are this server's, whatever the port.
    token : str
        First part of every address, without which nothing is answered; none is asked for where it is empty.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str = "") -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.token = token
        self.rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks over sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False
        path = scope["path"]

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                kept = [(k, v) for k, v in message.get("headers", ()) if k.lower() != b"cache-control"]
                caching = b"no-store" if path.startswith("/api") else b"no-cache"
                message = {**message, "headers": [*kept, *_HEADERS, (b"cache-control", caching)]}
            await send(message)

        try:
            self._check(scope)
            path = self._without_token(scope["path"])
            scope = {**scope, "path": path, "raw_path": path.encode()}
            body = await _whole_body(scope, receive)
            await self.app(scope, body, answer)
        except HTTPException as refusal:
            await JSONResponse({"error": refusal.detail}, refusal.status_code, headers=refusal.headers)(
                scope, receive, answer
            )
        except Exception:
            # The server logs it; a reader is told no more than that it happened.
            if not begun:
                sentence = "the server failed on this request; what it was doing is in its log"
                await JSONResponse({"error": sentence}, 500)(scope, receive, answer)
            raise

    def _check(self, scope: Scope) -> None:
        self.rates.check(scope)
        host = _only(scope, "host")
        if host is None or _name(host) not in self.hosts:
            raise HTTPException(421, f"requests must be addressed to {', '.join(sorted(self.hosts))}, not to {host!r}")
        if scope["method"] != "POST":
            return
        origin = _only(scope, "origin")
        if origin is not None and not _same(origin, host):
            raise HTTPException(403, f"requests must come from this server's own page, not from {origin[:100]!r}")
        kind = (_only(scope, "content-type") or "").partition(";")[0].strip().lower()
        wanted = "application/octet-stream" if scope["path"].endswith(DROPS) else "application/json"
        if kind != wanted:
            raise HTTPException(415, f"the content type must be {wanted}, not {kind[:100]!r}")

    def _without_token(self, path: str) -> str:
        if not self.token:
            return path
        given, slash, rest = path.removeprefix("/").partition("/")
        # In constant time: how long it takes must not tell how much of it is right.
        if not secrets.compare_digest(given.encode(), self.token.encode()) or not slash:
            raise HTTPException(404, "nothing has this address: open the one that `learncast explore` printed")
        return f"/{rest}"


class Rates:
    """How fast each client from another machine may ask: a bucket that fills at a steady rate."""

    def __init__(self) -> None:
        self.left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, scope: Scope) -> None:
        """Take one question from a client's bucket, or refuse it."""
        client = str((scope.get("client") or ("",))[0])
        if is_loopback(client) or not client:
            return
        now = time.monotonic()
        left, last = self.left.pop(client, (BURST, now))
        left = min(BURST, left + (now - last) * RATE)
        self.left[client] = (max(0.0, left - 1), now)
        while len(self.left) > MOST_CLIENTS:
            self.left.popitem(last=False)
        if left < 1:
            sentence = f"at most {RATE:g} questions a second are answered: ask again in a moment"
            raise HTTPException(429, sentence, headers={"Retry-After": "1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


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
    most = uploads.MOST_BYTES if scope["path"].endswith(DROPS) else MOST_BYTES
    announced = _only(scope, "content-length")
    if announced is not None and (not announced.isdecimal() or int(announced[:20]) > most):
        raise _too_large(most)
    found, size, more = [], 0, True
    try:
        with anyio.fail_after(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                found.append(message.get("body", b""))
                size += len(found[-1])
                more = message.get("more_body", False)
                if size > most:
                    raise _too_large(most)
    except TimeoutError:
        sentence = f"the body must have come within {BODY_SECONDS:g} seconds"
        raise HTTPException(408, sentence, headers={"Connection": "close"}) from None
    waiting = [{"type": "http.request", "body": b"".join(found), "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body must have at most {most} bytes")


class Patient(H11Protocol):
    """HTTP whose connections must say within a time what they ask: one that is held open without a question ends."""

    late: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._asked:
            self._forget()
        elif self.late is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    @property
    def _asked(self) -> bool:
        """Whether a whole head has come that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect(self) -> None:
        self.late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def _give_up(self) -> None:
        self.late = None
        if not self._asked and not self.transport.is_closing():
            self.transport.close()
