"""How far back a trained recurrent model can learn, from N sequences, with its optimiser.

The names below load on first use: some parts need torch, others do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "ConstGate": "cells",
    "DiagGate": "cells",
    "LSTM": "cells",
    "LearnabilityWindow": "learnability_window",
    "PaperGRU": "cells",
    "SharedGate": "cells",
    "WindowMonitor": "monitor",
    "lightning_callback": "monitor",
    "window": "diagnosis",
}

__all__ = [
    "LSTM",
    "ConstGate",
    "DiagGate",
    "LearnabilityWindow",
    "PaperGRU",
    "SharedGate",
    "WindowMonitor",
    "lightning_callback",
    "window",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"learncast.learnability.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'learncast.learnability' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from learncast.learnability.cells import LSTM, ConstGate, DiagGate, PaperGRU, SharedGate
    from learncast.learnability.diagnosis import window
    from learncast.learnability.learnability_window import LearnabilityWindow
    from learncast.learnability.monitor import WindowMonitor, lightning_callback
