"""Names of a package that load on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported(
    package: str, names: Mapping[str, str], inner: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package.

    Parameters
    ----------
    package : str
        Its `__name__`.
    names : mapping
        From a module, relative to the package, to the names that it offers, separated by spaces.
    inner : mapping, optional
        Names that can be imported too, but are left out of `__all__` and of the reference pages.
    """
    public = {name: module for module, offered in names.items() for name in offered.split()}
    home = public | {name: module for module, offered in (inner or {}).items() for name in offered.split()}
    every = sorted(public)

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return every, get, lambda: every
