"""What networks represent: similarities, alignment with a task, tangent kernels, richness, decoupling."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "AlignmentTime": "alignment",
    "hidden_similarity": "similarity",
    "misalignment": "alignment",
    "off_diagonal_strength": "similarity",
    "representation_distance": "similarity",
    "richness": "regimes",
    "tangent_kernel": "similarity",
    "tangent_kernel_summary": "similarity",
    "time_to_align": "alignment",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
