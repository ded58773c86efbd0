"""Request checks: only small, timely requests that this server's own page addresses to it are answered."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from learncast.web import uploads

#: Most bytes of a request's body; a dropped file may be larger.
MOST_BYTES = 64 * 1024
#: Most bytes of dropped files that are received and read at the same time.
MOST_FILE_BYTES = 3 * uploads.MOST_BYTES
#: Seconds within which the head and the body of a request must arrive.
HEAD_SECONDS, BODY_SECONDS = 10.0, 20.0
#: Requests per second of one client on another machine, and the size of a burst.
RATE, BURST = 30.0, 90.0
#: Clients whose rates are stored.
MOST_CLIENTS = 4096
#: End of the addresses that take dropped files, which are not JSON.
FILE_PATH = "/file"

#: What the page may load: its own files, and the inline styles and data images that plotly uses.
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


class RequestChecks:
    """ASGI middleware that rejects requests from other sites, large bodies and unknown tokens.

    Another site can make a browser send requests here, under another host name (DNS rebinding) or across origins. The
    Host header reveals the first, and Origin and the content type reveal the second.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str
        Host names of this server, without ports.
    token : str
        First part of every valid path; not required if empty.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], token: str = "") -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.token = token
        self.rates = RateLimiter()
        self.file_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        begun, path, reserved = False, scope["path"], 0

        def reserve(size: int) -> None:
            """Count the bytes of a dropped file until the request is answered."""
            nonlocal reserved
            if self.file_bytes + size > MOST_FILE_BYTES:
                message = "Too many files are dropped at the same time. Try again in a moment."
                raise HTTPException(503, message, headers={"Retry-After": "1", "Connection": "close"})
            self.file_bytes += size
            reserved += size

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = [(k, v) for k, v in message.get("headers", ()) if k.lower() != b"cache-control"]
                caching = b"no-store" if path.startswith("/api") else b"no-cache"
                message = {**message, "headers": [*headers, *_HEADERS, (b"cache-control", caching)]}
            await send(message)

        try:
            self._check(scope)
            path = self._without_token(scope["path"])
            scope = {**scope, "path": path, "raw_path": path.encode()}
            await self.app(scope, await _read_body(scope, receive, reserve), answer)
        except HTTPException as error:
            response = JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
            await response(scope, receive, answer)
        except Exception:  # logged by the server; the client learns no details
            if not begun:
                response = JSONResponse({"error": "The server failed on this request. See its log."}, 500)
                await response(scope, receive, answer)
            raise
        finally:
            self.file_bytes -= reserved

    def _check(self, scope: Scope) -> None:
        self.rates.check(scope)
        host = _single_header(scope, "host")
        if host is None or _host_name(host) not in self.hosts:
            raise HTTPException(421, f"The host must be one of {', '.join(sorted(self.hosts))}, got {host!r}.")
        if scope["method"] != "POST":
            return
        origin = _single_header(scope, "origin")
        if origin is not None and not _same_origin(origin, host):
            raise HTTPException(403, f"Requests must come from this server's own page, not from {origin[:100]!r}.")
        given = (_single_header(scope, "content-type") or "").partition(";")[0].strip().lower()
        expected = "application/octet-stream" if scope["path"].endswith(FILE_PATH) else "application/json"
        if given != expected:
            raise HTTPException(415, f"The content type must be {expected}, got {given[:100]!r}.")

    def _without_token(self, path: str) -> str:
        if not self.token:
            return path
        given, slash, rest = path.removeprefix("/").partition("/")
        # Compared in constant time, so that the duration does not reveal how much of the token is right.
        if not secrets.compare_digest(given.encode(), self.token.encode()) or not slash:
            raise HTTPException(404, "Unknown address. Open the one that `learncast explore` printed.")
        return f"/{rest}"


class RateLimiter:
    """A token bucket for each client on another machine."""

    def __init__(self) -> None:
        self.left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, scope: Scope) -> None:
        """Take one request from the client's bucket, or reject it."""
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
            message = f"At most {RATE:g} requests per second are answered. Try again in a moment."
            raise HTTPException(429, message, headers={"Retry-After": "1"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _single_header(scope: Scope, name: str) -> str | None:
    values = Headers(scope=scope).getlist(name)
    if len(values) > 1:
        raise HTTPException(400, f"The header {name} must be given once, got {len(values)}.")
    return values[0] if values else None


def _host_name(host: str) -> str:
    """Return a Host header without its port; empty if it is malformed."""
    match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]*)(:\d*)?", host)
    return match[1].lower() if match else ""


def _same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


async def _read_body(scope: Scope, receive: Receive, reserve: Callable[[int], None]) -> Receive:
    """Read the body to its end, whatever length was announced, and return a `receive` that gives it again."""
    is_file = scope["path"].endswith(FILE_PATH)
    most = uploads.MOST_BYTES if is_file else MOST_BYTES
    too_large = HTTPException(413, f"The body must have at most {most} bytes.")
    announced = _single_header(scope, "content-length")
    if announced is not None and (not announced.isdecimal() or int(announced[:20]) > most):
        raise too_large
    if is_file:
        reserve(most if announced is None else int(announced))
    body, more = bytearray(), True
    try:
        with anyio.fail_after(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        late = f"The body must arrive within {BODY_SECONDS:g} seconds."
        raise HTTPException(408, late, headers={"Connection": "close"}) from None
    messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


class TimedProtocol(H11Protocol):
    """HTTP protocol that closes a connection which sends no complete request head in time."""

    timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timeout()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._answering:
            self._cancel_timeout()
        elif self.timeout is None:
            self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timeout()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        """Whether a complete head has arrived that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timeout(self) -> None:
        self.timeout = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)

    def _cancel_timeout(self) -> None:
        if self.timeout is not None:
            self.timeout.cancel()
            self.timeout = None

    def _close_if_idle(self) -> None:
        self.timeout = None
        if not self._answering and not self.transport.is_closing():
            self.transport.close()
