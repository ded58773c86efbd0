"""Attributes of the result classes by purpose, with their types, once; users do not call the constructors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from numpydoc.docscrape import NumpyDocString

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: Attributes and methods of each class that users need, by what they are for.
PURPOSES: dict[str, dict[str, tuple[str, ...]]] = {
    "learncast.Plan": {
        "The answer": ("summary", "best", "stages", "total", "direct_total", "saving", "worthwhile", "stages_table"),
        "How sure it is": (
            "proof", "saving_interval", "interval", "direct_interval", "may_not_pay", "forecast_class", "trust", "sensitivity",
            "fragile",
        ),
        "Other plans": ("ranking_table", "candidates", "alternatives", "follow", "cost_of", "front", "stop_portrait"),
        "Carry it out, look at it, save it": ("loop", "plot", "report", "dataset", "save", "load"),
        "The question": ("target", "pool", "network", "learning_rate", "terms", "goal"),
    },
    "learncast.Forecast": {
        "The answer": ("steps", "total", "direct", "saving", "stages", "table"),
        "Over time": ("at", "learning_curve", "losses", "forgetting", "curves", "modes", "solution"),
        "How sure it is": ("forecast_class", "trust", "remarks", "in_batches", "resampled"),
        "Look at it, save it": ("plot", "report", "dataset", "save", "load"),
        "The question": ("tasks", "target", "goal", "training", "learning_rate"),
    },
    "learncast.planning.Generalisation": {
        "The answer": ("sentence", "stop", "loss", "overfits", "rise", "table"),
        "How sure it is": ("stop_set", "loss_interval", "rise_interval", "remarks", "trust"),
        "Other trials": ("trials", "trials_for", "more_trials", "noise", "transfer"),
        "Look at it, save it": ("plot", "report", "curve", "modes", "dataset", "save", "load"),
    },
    "learncast.windows.Window": {
        "The answer": ("summary", "windows", "attributable", "table"),
        "How sure it is": ("validity", "trust", "null_windows"),
        "Look at it, save it": ("plot", "report", "save", "load"),
        "The question": ("sequences", "layers", "method"),
    },
}  # fmt: skip


def complete(cls: type, purposes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The purposes, and last the other public attributes and methods of the class."""
    named = {name for names in purposes.values() for name in names}
    own = [name for name, value in vars(cls).items() if not name.startswith("_") and _is_documented(value)]
    return purposes | {"More": tuple(name for name in (*own, *_fields(cls)) if name not in named)}


def rows(cls: type, purposes: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    """Purpose, or name, type and meaning of an attribute."""
    own = _fields(cls)
    for purpose, names in purposes.items():
        yield purpose, "", ""
        for name in names:
            if name in own:
                yield name, *own[name]
                continue
            value = inspect.getattr_static(cls, name)
            function = _function(value)
            kind = str(inspect.signature(function).return_annotation)
            yield _called(name, value), _short(kind), (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def explained_below(cls: type, name: str) -> bool:
    """Whether a method of the class itself has parameters that are described, below the table."""
    return name in vars(cls) and "\nParameters\n" in (inspect.getdoc(_function(inspect.getattr_static(cls, name, None))) or "")


def tabled() -> dict[str, list[str]]:
    """Names that are documented in the table alone, by class."""
    found = {}
    for path, purposes in PURPOSES.items():
        cls = _class(path)
        names = [name for group in complete(cls, purposes).values() for name in group]
        found[path] = [name for name in names if not explained_below(cls, name)]
    return found


def _class(path: str) -> type:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _fields(cls: type) -> dict[str, tuple[str, str]]:
    """Type and meaning of the fields of a dataclass that its docstring or those of its bases describe."""
    types = {field.name: str(field.type) for field in fields(cls)} if is_dataclass(cls) else {}
    bases = [one for one in reversed(cls.__mro__) if one.__module__.startswith("learncast")]
    described = [row for one in bases for row in NumpyDocString(inspect.getdoc(one) or "")["Attributes"]]
    return {
        name: (_short(types[name]), " ".join(text))
        for names, _, text in described
        for name in names.split(", ")
        if name in types and text and not text[0].startswith("As in")
    }


def _called(name: str, value: Any) -> str:
    """Name of a property, or a method with its arguments."""
    if isinstance(value, property | cached_property):
        return name
    parameters = list(inspect.signature(_function(value)).parameters.values())
    names = [f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name for p in parameters if p.name not in ("self", "cls")]
    return f"{name}({', '.join(names)})"


def _short(kind: str) -> str:
    return kind.replace("xr.", "xarray.").replace("None | ", "")


def _is_documented(value: Any) -> bool:
    return callable(_function(value)) and bool(inspect.getdoc(_function(value)))


def _function(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    if isinstance(value, cached_property):
        return value.func
    return getattr(value, "__func__", value)


def table(cls: type, path: str) -> list[str]:
    """The table as reStructuredText; a name that is documented nowhere else is the target of links to it."""
    lines = ["", ".. list-table::", "   :class: glance", "   :widths: auto", ""]
    for name, kind, meaning in rows(cls, complete(cls, PURPOSES[path])):
        bare = name.partition("(")[0]
        if not meaning:
            first = [f"**{name}**"]
        elif explained_below(cls, bare):
            first = [f":py:meth:`{name} <{path}.{bare}>`"]
        else:
            first = [f".. py:{'property' if bare == name else 'method'}:: {name}", "   :no-typesetting:", "", f"``{name}``"]
        lines += [f"   * - {first[0]}", *(f"       {line}".rstrip() for line in first[1:])]
        lines += [f"     - {f'``{kind}``' if kind else ''}", f"     - {meaning}"]
    return [*lines, ""]


def leave_out_fields(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Leave out the section of attributes, which the table contains, before numpydoc reads the docstring."""
    if name in PURPOSES and what == "class" and "Attributes" in lines:
        begin = lines.index("Attributes")
        heads = [k for k in range(begin + 2, len(lines) - 1) if lines[k] and set(lines[k + 1]) == {"-"}]
        del lines[begin : heads[0] if heads else len(lines)]


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
    """Connect before and after numpydoc, which has priority 500."""
    app.connect("autodoc-process-docstring", leave_out_fields, priority=450)
    app.connect("autodoc-process-docstring", insert, priority=960)
    app.connect("autodoc-process-signature", without_constructor, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
