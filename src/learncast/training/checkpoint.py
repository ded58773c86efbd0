"""Checkpoints of a training run: files with a checksum and the state as `torch.save` writes it."""

from __future__ import annotations

import os
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from learncast._core.errors import SchemaMismatch
from learncast._core.files import draft_of

#: First bytes of a checkpoint, followed by the checksum and the state.
FORMAT = b"learncast-training-4"


def save_checkpoint(path: str | os.PathLike[str], state: dict[str, object], *, spec: str) -> None:
    """Write tensors, numbers and text atomically; `spec` is the hash of the run."""
    content = BytesIO()
    torch.save({"spec": spec, **state}, content)
    with draft_of(path, sole=True) as draft:
        draft.write_bytes(FORMAT + sha256(content.getvalue()).digest() + content.getvalue())


def load_checkpoint(path: str | os.PathLike[str], *, spec: str) -> dict[str, Any] | None:
    """Read the state of the same run; None if the file does not exist."""
    source = Path(path)
    if not source.exists():
        return None
    content = source.read_bytes() if source.is_file() else b""
    if not content.startswith(FORMAT):
        raise _refused(source, "is not a checkpoint of this version")
    begin = len(FORMAT) + sha256().digest_size
    if content[len(FORMAT) : begin] != sha256(content[begin:]).digest():
        raise _refused(source, "is damaged")
    state: dict[str, object] = torch.load(BytesIO(content[begin:]), weights_only=True)
    if state["spec"] != spec:
        raise _refused(source, "is a checkpoint of another run")
    return state


def _refused(path: Path, reason: str) -> SchemaMismatch:
    return SchemaMismatch(f"{path} {reason}. Use another file, or delete this one to train afresh.", field="checkpoint")
