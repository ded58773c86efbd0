"""The guard at the door: who may ask, how much, and what browsers are told about the answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

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


class Refused(Exception):
    """A request that is not let in: the status it gets, and why in a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


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

    def __init__(self, app: Application, hosts: Iterable[str]) -> None:
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
                message = {**message, "headers": [*kept, *_HEADERS, (b"cache-control", _caching(scope["path"]))]}
            await send(message)

        try:
            self._check(scope)
            body = await _whole_body(scope, receive)
            await self.app(scope, body, answer)
        except Refused as refusal:
            await _say(answer, refusal.status, refusal.sentence)
        except Exception:
            # The server logs it; a reader is told no more than that it happened.
            if not begun:
                await _say(answer, 500, "the server failed on this request; what it was doing is in its log")
            raise

    def _check(self, scope: Scope) -> None:
        host = _only(scope, b"host")
        if host is None or _name(host) not in self.hosts:
            raise Refused(421, f"requests must be addressed to {', '.join(sorted(self.hosts))}, not to {host!r}")
        if scope["method"] != "POST":
            return
        origin = _only(scope, b"origin")
        if origin is not None and not _same(origin, host):
            raise Refused(403, f"requests must come from this server's own page, not from {origin[:100]!r}")
        kind = (_only(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, f"the content type must be application/json, not {kind[:100]!r}")


def _caching(path: str) -> bytes:
    return b"no-store" if path.startswith("/api") else b"no-cache"


def _only(scope: Scope, name: bytes) -> str | None:
    """A header that may be given once; None where it is not, and a name nobody has where there are several."""
    found = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    if len(found) > 1:
        raise Refused(400, f"the header {name.decode()} must be given once, not {len(found)} times")
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
    announced = _only(scope, b"content-length")
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


def _too_large() -> Refused:
    return Refused(413, f"the body must have at most {MOST_BYTES} bytes: a state of the page takes far fewer")


async def _say(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
