"""Packages that are used where they are installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from learncast._core.errors import InvalidSpec

#: Packages of each extra, by the names under which they are installed and loaded.
EXTRAS = {
    "torch": ("torch", "safetensors"),
    "tables": ("pyarrow",),
    "sweep": ("distributed",),
    "web": ("starlette", "uvicorn", "plotly"),
    "neurogym": ("neurogym", "torch"),
    "fast": ("numba", "torch"),
}


def install(extra: str) -> str:
    """How to install what an extra brings, wherever learncast itself came from.

    By the packages' own names: beside a clone, pip would look for `learncast[...]` on an index that does not hold it.
    """
    return f"pip install {' '.join(EXTRAS[extra])}"


def package(name: str, purpose: str, *, why: str, extra: str, otherwise: str = "") -> Any:
    """A module of a package that an extra brings; `purpose` says what it is needed for."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidSpec(f"{name.partition('.')[0]} must be installed {purpose}, got no such package.") from error


def torch_package(purpose: str) -> Any:
    """Torch; `purpose` says what it is needed for. Asked for before any work, so that none is lost."""
    return package("torch", purpose, why="networks are trained with it", extra="torch")


def lightning_package(instead: str) -> Any:
    """Lightning, under either of the names it is published by; `instead` says what to do without it."""
    for name in ("lightning", "pytorch_lightning"):
        if find_spec(name) is not None:
            return import_module("lightning.pytorch" if name == "lightning" else name)
    raise InvalidSpec(
        "lightning must be installed for a Lightning callback, got no such package. Pip install "
        f"lightning, or {instead}.",
        field="lightning",
    )
