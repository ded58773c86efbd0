"""The explorer as a folder of static files: the page, with the answers to its examples."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learncast._core.errors import InvalidSpec
from learncast._core.files import draft_folder
from learncast._core.progress import Progress, silent
from learncast.web.answers import all_panels, answer, description
from learncast.web.app import PAGE, assets
from learncast.web.panel import Panel

if TYPE_CHECKING:
    from learncast.windows import Window

NOTE = "This copy shows the examples above. To change the settings, run <code>learncast explore</code>."

#: Beginning of a sentence that asks for a change of settings.
ASKS = re.compile(r"(Then )?(change|choose|click|drag|move|set|try)\b", re.IGNORECASE)


def export_site(folder: Path, progress: Progress = silent, *, window: Window | None = None) -> Path:
    """Write the page and its answers to a new folder, which any web server can show.

    Parameters
    ----------
    folder : Path
        Must be new or empty.
    progress : callable
        Called with the fraction of the examples that are answered.
    window : Window, optional
        Content of the window panel.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidSpec(f"--export must name a new or empty folder, got {folder}.", field="--export")
    panels = all_panels(window)
    examples = [(panel, number) for panel in panels for number in range(len(panel.examples))]
    with draft_folder(folder) as draft:
        (draft / "assets").mkdir()
        for name, path in assets().items():
            shutil.copy(path, draft / "assets" / name)
        page = (PAGE / "index.html").read_text(encoding="utf-8")
        page = page.replace('<html lang="en-GB">', '<html lang="en-GB" data-static="true">')
        page = page.replace('<p id="introduction">', f'<p id="static">{NOTE}</p>\n        <p id="introduction">')
        (draft / "index.html").write_text(page, encoding="utf-8")
        (draft / "api").mkdir()
        listing = json.dumps([{**_watched(description(panel)), "drops": ""} for panel in panels], allow_nan=False)
        (draft / "api" / "panels.json").write_text(listing, encoding="utf-8")
        for done, (panel, number) in enumerate(examples, 1):
            _write_example(panel, number, draft / "api" / panel.name)
            progress(done / len(examples))
    return folder


def _watched(described: dict[str, Any]) -> dict[str, Any]:
    """Leave out the sentences of a panel that ask for a change of settings, which the copy does not allow."""
    examples = [{**one, "look": _without_changes(one["look"])} for one in described["examples"]]
    return {**described, "introduction": _without_changes(described["introduction"]), "examples": examples}


def _without_changes(text: str) -> str:
    kept = [one for one in re.split(r"(?<=[.?!]) ", text) if not ASKS.match(one)]
    return " ".join(kept)


def _write_example(panel: Panel, number: int, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    state = panel.state_of(panel.examples[number]).model_dump_json()
    suffixes = dict.fromkeys(panel.parts, "json") | {"study": "toml", "table": "csv"}
    for name, suffix in suffixes.items():
        (folder / f"{name}-{number}.{suffix}").write_bytes(answer(panel, name, state))
