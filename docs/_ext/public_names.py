"""The public names of learncast, package by package, as the reference lists them and tests check them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import learncast

#: Packages and modules of the reference. A name that several of them export is listed under the first.
PACKAGES = (
    "tasks", "networks", "procedure", "planning", "training", "advice", "windows", "sweep", "theory", "papers", "figures",
    "study", "results",
)  # fmt: skip


@dataclass(frozen=True)
class Name:
    """A public name and the module that exports it."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """Import path."""
        return f"{self.module}.{self.name}"

    @property
    def value(self) -> Any:
        """The object."""
        return getattr(import_module(self.module), self.name)

    @property
    def home(self) -> str:
        """Module that defines the object, or the exporting module for plain data."""
        return str(getattr(self.value, "__module__", None) or self.module)

    @property
    def documents_itself(self) -> bool:
        """Whether it is a function or class of learncast; data and imported names have no docstring."""
        value = self.value
        return self.home.startswith("learncast") and (inspect.isclass(value) or callable(value))


def top_level() -> list[Name]:
    """Names of `learncast` itself, without packages."""
    names = [Name("learncast", name) for name in learncast.__all__]
    return [name for name in names if not isinstance(name.value, ModuleType)]


def of_package(package: str) -> list[Name]:
    """Names of a package, and of modules that it exports, that are not listed before."""
    return _listed()[package]


def every() -> list[Name]:
    """All public names."""
    return [*top_level(), *(name for names in _listed().values() for name in names)]


def _listed() -> dict[str, list[Name]]:
    seen, listed = {id(name.value) for name in top_level()}, {}
    for package in PACKAGES:
        exported = _exported(import_module(f"learncast.{package}"))
        modules = [name.value for name in exported if isinstance(name.value, ModuleType)]
        names = [*exported, *(name for module in modules for name in _exported(module))]
        listed[package] = [
            name
            for name in names
            if name.home.startswith("learncast")
            and not isinstance(name.value, ModuleType)
            and id(name.value) not in seen
        ]
        seen |= {id(name.value) for name in listed[package]}
    return listed


def _exported(module: ModuleType) -> list[Name]:
    """Names in `__all__`, or the functions and classes that the module defines."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
            if inspect.isclass(value) or inspect.isfunction(value)
        ]
    return [Name(module.__name__, name) for name in names]
