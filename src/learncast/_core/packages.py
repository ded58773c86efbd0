"""Optional packages, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from learncast._core.errors import InvalidSpec

#: Packages of each extra, by the names under which they are installed and imported.
EXTRAS = {
    "torch": ("torch", "safetensors"),
    "tables": ("pyarrow",),
    "sweep": ("distributed",),
    "web": ("starlette", "uvicorn", "plotly"),
    "neurogym": ("neurogym", "torch"),
}


def install(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    It names the packages themselves: a clone of the repository is on no index where pip could find `learncast[...]`.
    """
    return f"pip install {' '.join(EXTRAS[extra])}"


def package(name: str, purpose: str, *, extra: str) -> Any:
    """Import a module of an optional package; `purpose` completes "must be installed ..." if it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or error.name != root:
            raise  # it is installed, and its import was interrupted or fails
        raise InvalidSpec(f"{root} must be installed {purpose}: {install(extra)}.", field=root) from error


def torch_package(purpose: str) -> object:
    """Import torch; called before any work, so that none is lost if torch is missing."""
    return package("torch", purpose, extra="torch")


def lightning_package() -> Any:
    """Import Lightning under either of the names it is published by."""
    for name in ("lightning", "pytorch_lightning"):
        if find_spec(name) is not None:
            return import_module("lightning.pytorch" if name == "lightning" else name)
    raise InvalidSpec("lightning must be installed for a Lightning callback: pip install lightning.", field="lightning")
