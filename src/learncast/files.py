"""Files and folders that appear whole: written aside, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def draft_of(path: str | os.PathLike[str], *, sole: bool = False, durable: bool = False) -> Iterator[Path]:
    """A draft beside `path`, to be written inside; it takes the place of `path` at the end, or goes if anything fails.

    Parameters
    ----------
    path : path
        Folders on the way to it are made.
    sole : bool
        Nobody else writes this file: drafts have one name, and what a kill leaves of one the next takes over.
    durable : bool
        The content is on the disk before the name is; the name is once `sync` was called for its folder.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not a tempfile: those are private, and the renamed file should be as readable as any other new one.
    draft = target.with_name(f".{target.name}.part" if sole else f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield draft
        if durable:
            sync(draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write text or bytes; whoever looks finds the old file or the new one."""
    with draft_of(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


@contextmanager
def draft_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to be filled inside; at the end it becomes `path`, or its files move into the folder that is there."""
    target = Path(path).absolute()
    # The draft lies beside what exists already, so that a failure leaves no new folder behind.
    beside = next(folder for folder in target.parents if folder.is_dir())
    draft = beside / f".{target.name}.{secrets.token_hex(4)}.part"
    draft.mkdir()
    try:
        yield draft
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            for file in sorted(draft.iterdir()):
                os.replace(file, target / file.name)
        else:
            os.replace(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)
