"""Atomic writing of files and folders: write a draft, then rename it."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from learncast._core.errors import InvalidSpec
from learncast._core.system import alive, exchange, replace, sync


@contextmanager
def draft_of(path: str | os.PathLike[str], *, sole: bool = False, durable: bool = False) -> Iterator[Path]:
    """Yield the path of a draft, which replaces `path` at the end or is removed if anything fails.

    Parameters
    ----------
    path : path
        Missing parent folders are created.
    sole : bool
        No other process writes this file: drafts share one name, so a draft left by a kill is overwritten.
    durable : bool
        Flush the content to the disk before the rename. The rename is durable once `sync` was called for its folder.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A tempfile would be private; the renamed file must have the usual permissions.
    draft = target.with_name(f".{target.name}.part" if sole else f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield draft
        if durable:
            sync(draft)
        replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write text or bytes atomically."""
    with draft_of(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def as_folder(path: str | os.PathLike[str]) -> Path:
    """Return the path of a folder for files, which need not exist."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InvalidSpec(f"--out must name a folder, got the file {folder}.", field="out")
    return folder


@contextmanager
def draft_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder, which at the end becomes `path` together with the other files already there.

    If the process is killed, either all files are the old ones or all are the new ones. Files are renamed one by one
    if folders cannot be swapped: `path` holds folders or is the working folder, or the file system cannot swap.
    """
    target = Path(path).absolute()
    # In the nearest existing folder, so that a failure leaves no new folder behind.
    parent = next(folder for folder in target.parents if folder.is_dir())
    _remove_dead_drafts(parent, target.name)
    draft = parent / f".{target.name}.{_PROCESS}.{secrets.token_hex(4)}.part"
    draft.mkdir()
    try:
        yield draft
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            replace(draft, target)
        elif not _swapped(draft, target):
            for file in sorted(draft.iterdir()):
                replace(file, target / file.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


#: Identifies this process among all that may write to one file system.
_PROCESS = f"{zlib.crc32(socket.gethostname().encode()):08x}-{os.getpid()}"


def _swapped(draft: Path, target: Path) -> bool:
    """Swap the two folders, after linking the other files of the target into the draft; return whether it worked."""
    inside = Path.cwd()
    if inside == target or target in inside.parents or target.is_symlink():
        return False
    try:
        for file in target.iterdir():
            if file.is_dir() and not file.is_symlink():
                return False
            if not (draft / file.name).exists():
                os.link(file, draft / file.name, follow_symlinks=False)
        shutil.copymode(target, draft)
    except (OSError, NotImplementedError):
        return False
    return exchange(draft, target)


def _remove_dead_drafts(parent: Path, name: str) -> None:
    """Remove drafts of processes of this machine that no longer run."""
    machine = _PROCESS.partition("-")[0]
    for draft in parent.glob(f".{glob.escape(name)}.{machine}-*.part"):
        number = draft.name.removeprefix(f".{name}.{machine}-").partition(".")[0]
        if number.isdecimal() and not alive(int(number)):
            shutil.rmtree(draft, ignore_errors=True)
