"""The reference of public names: a page for the top level and one for every room."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import groupby
from types import ModuleType

import public_names
from public_names import Name

#: Names of the top level, in the order of the arrow: task, network, forecast, plan, practice.
ORDER = {
    "What is learned": ["Task"],
    "Who learns": ["LinearRNN", "TwoLayer", "Activated"],
    "Forecast": ["solve", "time_to_learn", "descend", "Solution", "Trajectory"],
    "Curricula and plans": ["plan", "Plan", "follow", "Curriculum", "Stage", "Terms", "phase_portrait", "forgetting"],
    "Practice": ["advise", "agreement"],
    "What can go wrong": [],
}


def pages() -> dict[str, Callable[[], str]]:
    """Pages by name."""
    rooms = [room for room in public_names.ROOMS if public_names.of_room(room)]
    return {"learncast": front, **{room: partial(room_page, room) for room in rooms}}


def front() -> str:
    """Names of the top level."""
    names = {one.name: one for one in public_names.top_level()}
    told = {name for chosen in ORDER.values() for name in chosen}
    parts = ["# learncast", "`import learncast as lc`. The names load on first use."]
    for title, chosen in ORDER.items():
        those = chosen or [name for name in names if name not in told]
        parts += [f"## {title}", _summary("learncast", [names[name] for name in those])]
    return "\n\n".join(parts) + "\n"


def room_page(room: str) -> str:
    """Names of one room, by the module that shows them."""
    module = import_module(f"learncast.{room}")
    parts = [f"# learncast.{room}", _opening(module)]
    for place, names in groupby(public_names.of_room(room), lambda one: one.module):
        if place != module.__name__:
            parts += [f"## {place.removeprefix('learncast.')}", _opening(import_module(place))]
        parts.append(_summary(place, list(names)))
    return "\n\n".join(parts) + "\n"


def _opening(module: ModuleType) -> str:
    return (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _summary(module: str, names: list[Name]) -> str:
    lines = "\n".join(f"   {one.name}" for one in names)
    return f"```{{eval-rst}}\n.. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: names\n   :nosignatures:\n\n{lines}\n```"
