"""The explore command: the explorer's page, served on this machine."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
import threading
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from learncast.errors import InvalidSpec
from learncast.exits import plain_errors

#: What the page needs beyond the package's own requirements.
PACKAGES = ("fastapi", "uvicorn", "plotly")


@plain_errors()
def explore(
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; any but the default may let others in.")
    ] = "127.0.0.1",
    window: Annotated[
        Path | None, typer.Option("--window", metavar="FILE.nc", help="A saved learnability window to look at.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing.")] = False,
) -> None:
    """What would this network do, if I moved this slider?"""
    _check_packages()
    from learncast.web.app import LOOPBACK, application

    opened = None
    if window is not None:
        from learncast.learnability.learnability_window import LearnabilityWindow

        opened = LearnabilityWindow.load(window)
    with _listening(host, port) as listener:
        names = LOOPBACK if is_loopback(host) else (*LOOPBACK, *_names(host))
        app = application(opened, (*names, _bracketed(host)))
        address = f"http://{_bracketed(host)}:{listener.getsockname()[1]}/"
        if not is_loopback(host):
            warning = f"learncast: {host} can be reached from other machines; anyone who reaches it may compute here"
            print(warning, file=sys.stderr, flush=True)
        print(f"learncast explorer at {address} (Ctrl-C ends it)", flush=True)
        if not no_browser:
            # The socket listens already, so that the browser waits for the first answer instead of failing.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _serve(app, listener)


def _serve(app: object, listener: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
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
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        print(file=sys.stderr)


def _check_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidSpec(
            required="the explorer's packages must be installed",
            got=f"no {' and no '.join(missing)}",
            why="they serve and draw its page",
            remedy="pip install 'learncast[web]'",
        )


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; a sentence where it cannot."""
    from learncast.validation import between

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


def _names(host: str) -> tuple[str, ...]:
    """By what names others call it: an address that stands for all of them is asked for by each."""
    if host not in ("0.0.0.0", "::"):
        return (_bracketed(host),)
    own = socket.gethostname()
    try:
        found = {str(row[4][0]) for row in socket.getaddrinfo(own, None)}
    except OSError:
        found = set()
    return (own, *(_bracketed(address) for address in sorted(found)))
