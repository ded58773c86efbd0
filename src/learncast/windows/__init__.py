"""How far back a trained recurrent model can learn, from N sequences, with its optimiser.

`window` answers it, `evolution` for every stored state of one training; `Measurement`, `DetectionRule` and `Batching`
say what is asked. Below them are the cells, then `replay` (what a layer did), `transport` (how far blame is carried)
and `detection` (what is told from noise). The names load on first use: some parts need torch, others do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learncast.windows.cells import LSTM, ConstGate, DiagGate, PaperGRU, SharedGate
    from learncast.windows.checkpoints import Evolution, evolution
    from learncast.windows.diagnosis import window
    from learncast.windows.learnability_window import LearnabilityWindow
    from learncast.windows.monitor import WindowMonitor, lightning_callback
    from learncast.windows.question import Batching, DetectionRule, Measurement

_NAMES = {
    "cells": ("LSTM", "ConstGate", "DiagGate", "PaperGRU", "SharedGate"),
    "checkpoints": ("Evolution", "evolution"),
    "diagnosis": ("window",),
    "learnability_window": ("LearnabilityWindow",),
    "monitor": ("WindowMonitor", "lightning_callback"),
    "question": ("Batching", "DetectionRule", "Measurement"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "LSTM", "Batching", "ConstGate", "DetectionRule", "DiagGate", "Evolution", "LearnabilityWindow", "Measurement",
    "PaperGRU", "SharedGate", "WindowMonitor", "evolution", "lightning_callback", "window",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'learncast.windows' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"learncast.windows.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
