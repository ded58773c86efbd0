"""The public names of learncast, room by room, as the reference lists them and tests count them."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import learncast

#: Rooms of the reference: those at the top level, then those whose objects one is handed or asks more closely.
ROOMS = (
    "tasks", "planning", "windows", "training", "sweep", "theory", "papers", "figures", "networks", "procedure",
    "advice", "study", "theory.recurrence", "theory.dynamics", "theory.responses", "results", "theory.assumptions", "_core.errors",
)  # fmt: skip
#: Rooms that show no names of their own: theirs are those that their modules offer in `__all__`, or else define.
IN_MODULES = ("theory.recurrence", "theory.dynamics", "theory.responses")
#: Modules that are rooms of the reference, and which of their names are for readers.
ONE_MODULE = ("results", "theory.assumptions", "_core.errors")


@dataclass(frozen=True)
class Name:
    """A public name, and where it is found."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """As it is imported."""
        return f"{self.module}.{self.name}"

    @property
    def value(self) -> Any:
        """What it names."""
        return getattr(import_module(self.module), self.name)

    @property
    def documents_itself(self) -> bool:
        """Whether it is a function or a class, and ours: data and borrowed names carry no docstring."""
        value = self.value
        ours = str(getattr(value, "__module__", "")).startswith("learncast")
        return ours and (inspect.isclass(value) or callable(value))


def top_level() -> list[Name]:
    """Names of `learncast` itself that are no rooms."""
    return [Name("learncast", one) for one in learncast.__all__ if not isinstance(getattr(learncast, one), ModuleType)]


def of_room(room: str) -> list[Name]:
    """Names of a room, and of a module that it offers as a whole, that are not offered at the top level already."""
    told = {id(one.value) for one in top_level()}
    module = import_module(f"learncast.{room}")
    modules = [module]
    if room in IN_MODULES:
        modules = [import_module(one.name) for one in pkgutil.walk_packages(module.__path__, f"{module.__name__}.")]
    shown = [one for place in modules for one in _shown(place, room)]
    families = [one for part in shown if isinstance(part.value, ModuleType) for one in _shown(part.value, room)]
    return [one for one in (*shown, *families) if id(one.value) not in told and not isinstance(one.value, ModuleType)]


def _shown(module: ModuleType, room: str) -> list[Name]:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            one for one in dir(module) if not one.startswith("_") and _is_shown(getattr(module, one), module, room)
        ]
    return [Name(module.__name__, one) for one in names]


def _is_shown(value: Any, module: ModuleType, room: str) -> bool:
    if isinstance(value, ModuleType):
        return False
    home = str(getattr(value, "__module__", ""))
    here = home == module.__name__ if room in (*IN_MODULES, *ONE_MODULE) else home.startswith("learncast")
    return here and (inspect.isclass(value) or (inspect.isfunction(value) and room != "_core.errors"))


def every() -> list[Name]:
    """All public names."""
    return [*top_level(), *(one for room in ROOMS for one in of_room(room))]
