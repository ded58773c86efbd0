"""Answers of the panels as bytes: charts, studies, tables and dropped files, in the server or in a worker process."""

from __future__ import annotations

import signal
import tomllib
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from pydantic import ValidationError
from pydantic_core import to_json

from learncast._core.errors import InvalidSpec, LearncastError
from learncast._core.limits import tables_of
from learncast._core.system import listen
from learncast.web.panel import Panel, State, invalid_state
from learncast.web.panels.curriculum import PANEL as CURRICULUM
from learncast.web.panels.generalise import PANEL as GENERALISE
from learncast.web.panels.prior_knowledge import PANEL as PRIOR_KNOWLEDGE
from learncast.web.panels.recurrence import PANEL as RECURRENCE
from learncast.web.panels.window import window_panel
from learncast.web.uploads import UPLOADS
from learncast.web.view import to_csv, to_plain

if TYPE_CHECKING:
    from learncast.windows import Window

#: Answers besides the parts of a panel, with their media types.
MEDIA_TYPES = {
    "study": "text/plain; charset=utf-8",
    "table": "text/csv; charset=utf-8",
    "file": "application/json",
}


def all_panels(window: Window | None = None) -> tuple[Panel, ...]:
    """Return every panel in the order of the page; the last one shows `window`, or a sample."""
    return (CURRICULUM, PRIOR_KNOWLEDGE, RECURRENCE, GENERALISE, window_panel(window))


def answer(panel: Panel, name: str, state: str) -> bytes:
    """Return one answer of a panel.

    Parameters
    ----------
    panel : Panel
    name : str
        A part of the panel, for JSON; ``"study"``, for TOML; ``"table"``, for all numbers as CSV; or ``"file"``, for
        the description of the panel that shows a dropped file, or the state of a dropped study.
    state : str
        The state as JSON; for ``"file"``, the file's token.
    """
    if name == "file":
        if UPLOADS.file(state)[0].lower().endswith(".toml"):
            return to_json({"name": panel.name, "state": to_plain(vars(saved_state(panel, state)))})
        if panel.open_file is None:
            raise InvalidSpec("This panel opens only studies that it saved (.toml).", field="data")
        return to_json(description(panel.open_file(state)))
    settings = panel.state.model_validate_json(state)
    if name == "study":
        return panel.study(settings).encode()
    if name == "table":
        return to_csv({key: part(settings) for key, part in panel.parts.items()}).encode()
    return to_json(to_plain(panel.parts[name](settings)))  # five times as fast as json for large grids


def saved_state(panel: Panel, token: str) -> State:
    """Return the state with which the panel saved a dropped study."""
    tables = UPLOADS.read(token, "study", lambda path: tables_of(path, "the study file"))
    text, start = UPLOADS.file(token)[1].decode(), "# explorer, "
    lines = [line.removeprefix(start).partition(": ") for line in text.splitlines() if line.startswith(start)]
    if len(lines) != 1:
        raise InvalidSpec("The explorer opens only studies that it saved. Run others with `learncast`.", field="data")
    name, _, settings = lines[0]
    if name != panel.name:
        raise InvalidSpec(f"The panel {name!r} saved this study. Open it there.", field="data")
    try:
        found = panel.state.model_validate_json(settings, strict=True)
    except ValidationError as error:
        raise invalid_state(error, panel.state) from error
    if tables != tomllib.loads(panel.study(found)):
        raise InvalidSpec("The study was changed after the explorer saved it. Run it with `learncast`.", field="data")
    return found


def description(panel: Panel) -> dict[str, object]:
    """Describe a panel for the page, which builds its controls from it."""
    opening = panel.opening
    return {
        **{key: getattr(panel, key) for key in ("name", "title", "introduction")},
        "drops": ", or ".join(filter(None, (panel.drops, "a study that this panel saved (.toml)"))),
        "controls": to_plain([{**vars(one), "default": opening[one.key]} for one in panel.controls]),
        "parts": list(panel.parts),
        "examples": to_plain(panel.examples),
        "terms": to_plain(panel.terms),
        "topics": list(panel.topics.items()),
    }


def work(pipe: Connection, window: Window | None) -> None:
    """Compute answers in a worker process until the pipe closes, which the server's end does.

    Parameters
    ----------
    pipe : Connection
        Receives names of a panel and of its answer, the state, and the dropped files that it refers to, by token. Sends
        True when everything is loaded, and then the answers or exceptions.
    window : Window, optional
        The window that the last panel shows.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches only the server, which ends its workers itself
    listen()
    import_module("xarray")  # most computations need it, so it is loaded before the first request
    panels = {panel.name: panel for panel in all_panels(window)}
    result: object = True
    with suppress(EOFError, OSError):
        while True:
            pipe.send(result)
            name, asked, state, files = pipe.recv()
            for token, file in files.items():
                UPLOADS.store(token, *file)
            try:
                result = answer(panels[name], asked, state)
            except LearncastError as error:
                result = error
            except Exception as error:  # the server logs it
                result = RuntimeError(f"{type(error).__name__}: {error}")
