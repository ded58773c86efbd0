"""Curricula: the ground they stand on, plans, portraits, what is forgotten."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "CheapestPath": "schedules.optimal",
    "Design": "schedules.designer",
    "FastestPath": "schedules.optimal",
    "Front": "schedules.pareto",
    "IrregularSwitch": "forgetting",
    "Schedule": "schedules.schedule",
    "best_schedule": "schedules.search",
    "cheapest_path": "schedules.optimal",
    "convergence_order": "agreement",
    "design": "schedules.designer",
    "fastest_path": "schedules.optimal",
    "forgetting_front": "schedules.pareto",
    "ground_for": "methods.choice",
    "in_sequence": "forgetting",
    "loop_of": "plans.recommendation",
    "rehearse": "agreement",
    "stop_portrait": "plans.stop_portrait",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
