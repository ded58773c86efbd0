"""Docstrings for the reference: lines "Implements: paper Eq. (n)" become a list of citations at the end."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CLAIM = re.compile(r"^\s*Implements: (\w+) ((?:Eq\. \([\w.]+\)|Thm\. [\w.]+))(?:, (.+))?$")


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
    app.connect("autodoc-process-docstring", take_out, priority=400)
    app.connect("autodoc-process-docstring", put_back, priority=900)
    app.connect("autodoc-process-docstring", keep_bars, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
