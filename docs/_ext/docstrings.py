"""Docstrings for the reference: citations at the end, descriptions of constants, and no internals of classes."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

CLAIM = re.compile(r"^\s*Implements: (\w+) ((?:Eq\. \([\w.]+\)|Thm\. [\w.]+))(?:, (.+))?$")

#: Defaults that say something without the code: numbers, texts, tuples of them, True and False.
LITERAL = re.compile(r"""True|False|-?[\d.]+(e-?\d+)?|'.*'|".*"|\([\d., e'"-]*\)""")

#: Public methods of `Task` for the package itself, which trust their arguments or hold what was computed.
INTERNAL = ("trusted", "estimated", "replaced", "pooled_cache")


def leave_out(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave internal methods out of the page of a class."""
    return True if what == "class" and name in INTERNAL else None


def comment(name: str, value: Any) -> list[str]:
    """Lines of the comment above a constant, in whichever module of its package it is defined."""
    package, _, short = name.rpartition(".")
    for module in sorted(one for one in sys.modules if one == package or one.startswith(f"{package}.")):
        if getattr(sys.modules[module], short, None) is value:
            if lines := ModuleAnalyzer.for_module(module).find_attr_docs().get(("", short)):
                return lines
    return []


def describe(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Describe a constant by its comment, not by the docstring of its type."""
    if what == "data":
        lines[:] = comment(name, value)


def take_out(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Remove the claims before numpydoc reads the docstring."""
    claims = [match for line in lines if (match := CLAIM.match(line))]
    if claims:
        _claims[name] = claims
        lines[:] = [line for line in lines if not CLAIM.match(line)]


def put_back(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Append the claims as a list."""
    claims = _claims.pop(name, ())
    if claims:
        lines += ["", ".. rubric:: Implements", ""]
        lines += [f"- :cite:t:`{m[1]}` {m[2]}" + (f", {m[3]}" if m[3] else "") for m in claims]
        lines += [""]


def add_defaults(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Append the defaults of the signature to the types of parameters that do not name them."""
    if what not in ("function", "method", "class") or "Parameters" not in lines:
        return
    defaults = {k: repr(p.default) for k, p in inspect.signature(value).parameters.items()}
    for k in range(lines.index("Parameters") + 2, len(lines) - 1):
        if set(lines[k + 1]) == {"-"}:
            break
        names, _, kind = lines[k].partition(" : ")
        default, *others = {defaults.get(one, "") for one in names.split(", ")}
        if kind and LITERAL.fullmatch(default) and not others and "default" not in kind:
            lines[k] += f", default {default}".replace("'", '"')


_claims: dict[str, Any] = {}


def keep_bars(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Escape bars, which are absolute values here and not substitutions of reStructuredText; keep examples as they are."""
    example = False
    for k, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example and "|" in line:
            parts = line.split("``")
            parts[::2] = [one.replace("|", "\\|") for one in parts[::2]]
            lines[k] = "``".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect before and after numpydoc, which has priority 500."""
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", describe, priority=300)
    app.connect("autodoc-process-docstring", add_defaults, priority=350)
    app.connect("autodoc-process-docstring", take_out, priority=400)
    app.connect("autodoc-process-docstring", put_back, priority=900)
    app.connect("autodoc-process-docstring", keep_bars, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
