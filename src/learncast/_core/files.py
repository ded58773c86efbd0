"""Atomic writing of files and folders: write a draft, then rename it."""

from __future__ import annotations

import errno
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
        with _naming(path, draft):
            yield draft
            if durable:
                sync(draft)
            replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _naming(path: str | os.PathLike[str], draft: Path) -> Iterator[None]:
    """Let errors of the file system name the path that was asked for, not its draft."""
    try:
        yield
    except OSError as error:
        if error.errno is None or str(draft) not in str(error.filename):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


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
    if folders cannot be swapped: `path` holds folders, is the working folder or a mount point, or the file system
    cannot swap.
    """
    target = Path(path).absolute()
    draft = _new_draft(path)
    try:
        with _naming(path, draft):
            yield draft
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_dir():
                replace(draft, target)
            elif not _swapped(draft, target):
                for file in sorted(draft.iterdir()):
                    _move(file, target / file.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise if files cannot be written to a folder, which need not exist."""
    _new_draft(path).rmdir()


def _new_draft(path: str | os.PathLike[str]) -> Path:
    """Make an empty folder beside the folder `path`, or in it if nothing can be written beside it."""
    target = Path(path).absolute()
    # In the nearest existing folder, so that a failure leaves no new folder behind.
    parent = next(folder for folder in target.parents if folder.is_dir())
    try:
        return _draft_in(parent, target)
    except OSError as error:
        if not target.is_dir():
            raise OSError(error.errno, error.strerror, str(path)) from error
    with _naming(path, target):
        return _draft_in(target, target)


def _draft_in(parent: Path, target: Path) -> Path:
    _remove_dead_drafts(parent, target.name)
    draft = parent / f".{target.name}.{_PROCESS}.{secrets.token_hex(4)}.part"
    draft.mkdir()
    return draft


def _move(source: Path, target: Path) -> None:
    """Rename a file or folder; between mounts, copy it beside the target first."""
    try:
        return replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    copy = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
        replace(copy, target)
    finally:
        if copy.exists():
            shutil.rmtree(copy, ignore_errors=True) if copy.is_dir() else copy.unlink()


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
