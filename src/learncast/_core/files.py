"""Files and folders that appear whole: written aside, then renamed."""

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

from learncast._core.system import alive, exchange, replace, sync


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
        replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_file(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write text or bytes; whoever looks finds the old file or the new one."""
    with draft_of(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


@contextmanager
def draft_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to be filled inside; at the end it becomes `path`, with what else the folder there holds.

    Whenever the process is killed, all files are the old ones or all are the new ones. Where a folder cannot be changed
    for another at once (it holds folders, somebody works inside, the system cannot) files are renamed one by one.
    """
    target = Path(path).absolute()
    # The draft lies beside what exists already, so that a failure leaves no new folder behind.
    beside = next(folder for folder in target.parents if folder.is_dir())
    _clear(beside, target.name)
    draft = beside / f".{target.name}.{_OWN}.{secrets.token_hex(4)}.part"
    draft.mkdir()
    try:
        yield draft
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            replace(draft, target)
        elif not _changed_at_once(draft, target):
            for file in sorted(draft.iterdir()):
                replace(file, target / file.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


#: This process among all that may write to one disk.
_OWN = f"{zlib.crc32(socket.gethostname().encode()):08x}-{os.getpid()}"


def _changed_at_once(draft: Path, target: Path) -> bool:
    """Whether the draft has taken the folder's place, with links to the files that it does not bring itself."""
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


def _clear(beside: Path, name: str) -> None:
    """Remove drafts of processes of this machine that live no more."""
    machine = _OWN.partition("-")[0]
    for draft in beside.glob(f".{glob.escape(name)}.{machine}-*.part"):
        number = draft.name.removeprefix(f".{name}.{machine}-").partition(".")[0]
        if number.isdecimal() and not alive(int(number)):
            shutil.rmtree(draft, ignore_errors=True)
