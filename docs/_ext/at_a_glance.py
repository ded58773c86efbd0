"""Attributes of the result classes by purpose, with their types, above the complete list; users do not call the constructors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: Attributes and methods of each class that users need, by what they are for.
PURPOSES: dict[str, dict[str, tuple[str, ...]]] = {
    "learncast.Plan": {
        "The answer": ("summary", "stages", "total", "direct_total", "saving", "worthwhile", "stages_table"),
        "How sure it is": (
            "saving_interval", "interval", "direct_interval", "may_not_pay", "forecast_class", "trust", "sensitivity",
            "fragile",
        ),
        "Other plans": ("ranking_table", "alternatives", "follow", "cost_of", "front", "stop_portrait"),
        "Carry it out, look at it, save it": ("loop", "plot", "report", "dataset", "save", "load"),
        "The question": ("target", "pool", "network", "learning_rate", "goal"),
    },
    "learncast.Forecast": {
        "The answer": ("steps", "total", "direct", "saving", "stages", "table"),
        "Over time": ("at", "learning_curve", "losses", "forgetting", "curves", "modes", "solution"),
        "How sure it is": ("forecast_class", "trust", "remarks", "in_batches", "resampled"),
        "Look at it, save it": ("plot", "report", "dataset", "save", "load"),
        "The question": ("tasks", "target", "goal", "training", "learning_rate"),
    },
    "learncast.windows.Window": {
        "The answer": ("summary", "windows", "attributable", "table"),
        "How sure it is": ("validity", "trust", "null_windows"),
        "Look at it, save it": ("plot", "report", "save", "load"),
        "The question": ("sequences", "layers", "method"),
    },
}  # fmt: skip


def rows(cls: type, purposes: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    """Purpose, or name, type and meaning of an attribute."""
    for purpose, names in purposes.items():
        yield purpose, "", ""
        for name in names:
            value = inspect.getattr_static(cls, name)
            function = _function(value)
            kind = str(inspect.signature(function).return_annotation).replace("xr.", "xarray.")
            shown = name if isinstance(value, property | cached_property) else f"{name}()"
            yield shown, kind, (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def _function(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    if isinstance(value, cached_property):
        return value.func
    return getattr(value, "__func__", value)


def table(cls: type, path: str) -> list[str]:
    """The table as reStructuredText."""
    lines = ["", ".. list-table::", "   :class: glance", "   :widths: auto", ""]
    for name, kind, meaning in rows(cls, PURPOSES[path]):
        first = f"**{name}**" if not meaning else f":py:attr:`{name} <{path}.{name.removesuffix('()')}>`"
        lines += [f"   * - {first}", f"     - {f'``{kind}``' if kind else ''}", f"     - {meaning}"]
    return [*lines, ""]


def insert(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Insert the table below the first paragraph of a class."""
    if name in PURPOSES and what == "class":
        words = next((k for k, line in enumerate(lines) if line.strip()), 0)
        place = next((k for k in range(words, len(lines)) if not lines[k].strip()), len(lines))
        lines[place:place] = table(value, name)


def without_constructor(app: Sphinx, what: str, name: str, value: Any, *_: Any) -> tuple[str, str] | None:
    """Leave out the signature of a class that only functions of the library make."""
    return ("", "") if name in PURPOSES and what == "class" else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect after numpydoc, which has priority 500."""
    app.connect("autodoc-process-docstring", insert, priority=960)
    app.connect("autodoc-process-signature", without_constructor, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
