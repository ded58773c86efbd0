"""Checkpoints of a training run, as safetensors files."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from learncast._core.errors import SchemaMismatch
from learncast._core.files import draft_of

FORMAT = "learncast-training-3"


@dataclass(frozen=True)
class Checkpoint:
    """State of a run.

    Attributes
    ----------
    tensors : dict of str to Tensor
    facts : dict
        Anything JSON can hold.
    """

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]

    def save(self, path: str | os.PathLike[str], *, spec: str) -> None:
        """Write atomically; `spec` is the hash of the run."""
        from safetensors.torch import save

        metadata = {"format": FORMAT, "spec": spec, "facts": json.dumps(self.facts), "digest": self.digest}
        with draft_of(path, sole=True) as draft:
            # safetensors' save_file writes through a draft of its own, which a killed process leaves behind.
            Path(draft).write_bytes(save(self.tensors, metadata=metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, spec: str) -> Checkpoint | None:
        """Read the state of the same run; None if the file does not exist."""
        from safetensors import SafetensorError, safe_open

        source = Path(path)
        if not source.exists():
            return None
        try:
            with safe_open(source, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dict
        except (OSError, SafetensorError) as error:
            raise _refused(source, f"is not a checkpoint ({type(error).__name__}: {error})") from error
        if metadata.get("format") != FORMAT:
            raise _refused(source, "is not a checkpoint of this version")
        if metadata.get("spec") != spec:
            raise _refused(source, "is a checkpoint of another run")
        loaded = cls(tensors, json.loads(metadata["facts"]))
        if loaded.digest != metadata.get("digest"):
            raise _refused(source, "is damaged")
        return loaded

    def under(self, prefix: str) -> dict[str, torch.Tensor]:
        """Return the tensors with this prefix, by the rest of their names."""
        return {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}

    @property
    def digest(self) -> str:
        """Checksum of tensors and facts, which the file format does not have."""
        from safetensors.torch import save

        return hashlib.sha256(save(self.tensors) + json.dumps(self.facts).encode()).hexdigest()


def _refused(path: Path, reason: str) -> SchemaMismatch:
    return SchemaMismatch(f"{path} {reason}. Use another file, or delete this one to train afresh.", field="checkpoint")
