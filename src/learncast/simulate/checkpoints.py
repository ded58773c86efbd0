"""Checkpoints of a training run: one safetensors file that is whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from learncast.errors import SchemaMismatch

FORMAT = "learncast-training-1"


@dataclass(frozen=True)
class Checkpoint:
    """A run's state: named tensors, and facts about where it stands.

    Attributes
    ----------
    tensors : dict of str to Tensor
    facts : dict
        Anything JSON can hold.
    """

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]

    def save(self, path: str | os.PathLike[str], *, spec: str) -> None:
        """Write through a temporary file and a rename; `spec` is the hash of what is trained and how."""
        from safetensors.torch import save_file

        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        # One name: what a kill leaves of one write, the next write takes over.
        draft = target.with_name(f".{target.name}.part")
        facts = {"format": FORMAT, "spec": spec, "facts": json.dumps(self.facts), "digest": self.digest}
        try:
            save_file({key: value.contiguous() for key, value in self.tensors.items()}, draft, metadata=facts)
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, spec: str) -> Checkpoint | None:
        """Read the state of the same run; None when there is none yet."""
        from safetensors import SafetensorError, safe_open

        source = Path(path)
        if not source.exists():
            return None
        try:
            with safe_open(source, framework="pt") as file:
                facts = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dict
        except (OSError, SafetensorError) as error:
            raise SchemaMismatch(
                required=f"{source} must be a checkpoint",
                got=f"{type(error).__name__}: {error}",
                why="training would go on from it",
                remedy="name another file, or remove this one to train afresh",
            ) from error
        if facts.get("format") != FORMAT or facts.get("spec") != spec:
            raise SchemaMismatch(
                required=f"{source} must be a checkpoint of this very run",
                got="one of another task, network or training"
                if facts.get("format") == FORMAT
                else "a file of another kind",
                why="going on from it would mix two runs",
                remedy="name another file, or remove this one to train afresh",
            )
        found = cls(tensors, json.loads(facts["facts"]))
        if found.digest != facts.get("digest"):
            raise SchemaMismatch(
                required=f"{source} must hold what was written to it",
                got="tensors that have changed since",
                why="training would go on from a damaged state",
                remedy="restore the file, or remove it to train afresh",
            )
        return found

    @property
    def digest(self) -> str:
        """Checksum of the tensors, which the file format does not have."""
        digest = hashlib.sha256()
        for key in sorted(self.tensors):
            value = self.tensors[key].detach().contiguous()
            digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
        return digest.hexdigest()


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """An optimiser's state as named tensors."""
    found: dict[str, torch.Tensor] = {}
    for k, state in optimiser.state_dict()["state"].items():
        for key, value in state.items():
            if value is not None:
                found[f"optimiser.{k}.{key}"] = torch.as_tensor(value).clone()
    return found


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Put such a state back."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, k, key = name.split(".", 2)
            state.setdefault(int(k), {})[key] = value
    whole = optimiser.state_dict()
    optimiser.load_state_dict({**whole, "state": state})
