"""The explorer as a folder of files: the same page, with the answers to its guided examples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from learncast._core.errors import InvalidSpec
from learncast._core.files import draft_folder
from learncast._core.progress import Progress, silent
from learncast.web.app import PAGE, assets, described, rooms, shown, table
from learncast.web.room import Room


def exported(folder: Path, progress: Progress = silent) -> Path:
    """Write the page and its answers to a new folder, which any web server can show.

    Parameters
    ----------
    folder : Path
        Must be new, or empty.
    progress : callable
        Called with the share of the examples that are answered.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidSpec(f"--export must name a new or an empty folder, got {folder}, which is there already.")
    everything = rooms()
    total = sum(len(room.examples) for room in everything)
    done = 0
    with draft_folder(folder) as draft:
        (draft / "assets").mkdir()
        for name, path in assets().items():
            shutil.copy(path, draft / "assets" / name)
        page = (PAGE / "index.html").read_text(encoding="utf-8")
        page = page.replace('<html lang="en-GB">', '<html lang="en-GB" data-answers="kept">')
        (draft / "index.html").write_text(page, encoding="utf-8")
        (draft / "api").mkdir()
        listed = json.dumps([{**described(room), "drops": ""} for room in everything], allow_nan=False)
        (draft / "api" / "rooms.json").write_text(listed, encoding="utf-8")
        for room in everything:
            for number, _ in enumerate(room.examples):
                _write(room, number, draft / "api" / room.name)
                done += 1
                progress(done / total)
    return folder


def _write(room: Room, number: int, folder: Path) -> None:
    """What a room answers to one of its examples."""
    folder.mkdir(exist_ok=True)
    state = room.shown(room.examples[number])
    for part in room.parts:
        (folder / f"{part}-{number}.json").write_bytes(shown(room, part)(state))
    (folder / f"study-{number}.toml").write_text(room.study(state), encoding="utf-8")
    (folder / f"table-{number}.csv").write_text(table(room)(state), encoding="utf-8")
